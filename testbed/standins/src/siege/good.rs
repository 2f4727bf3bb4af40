//! A good program: repeatedly uploads data, runs a kernel, downloads the result, and compares every byte.

use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::json;

use super::tell::say;
use crate::mix::{self, Mix};
use crate::soak::cuda::Cuda;

/// Number of steps of the kernel, chosen so that it runs for a while.
const STEPS: u32 = 256;
/// Number of threads in a block.
const THREADS: u32 = 256;

/// Path of the kernel's statistics of the calling thread: nanoseconds on a processor, nanoseconds of waiting
/// for one, and time slices (`Documentation/scheduler/sched-stats.rst`).
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Runs until stdin closes, or for a number of units. Prints `attached MICROSECONDS`, then `unit N QUEUED`
/// for each unit, whether its bytes are right or wrong, and at the end JSON: `units`, `bytes` compared, and
/// `wrong` ones. `QUEUED` is the time that this thread has waited for a processor so far, in microseconds.
///
/// # Errors
/// A call fails.
pub fn work(seed: u64, units: Option<u64>, kib: usize) -> Result<ExitCode> {
    let closed = watch_stdin();
    let start = Instant::now();
    let cuda = Cuda::begin()?;
    let bytes = (kib << 10).max(4);
    cuda.free(cuda.alloc(bytes)?)?;
    say(&format!("attached {}", start.elapsed().as_micros()))?;
    let (_, function) = cuda.load(mix::PTX, mix::NAME)?;
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut sent, mut back) = (vec![0; bytes], vec![0; bytes]);
    let (mut done, mut wrong) = (0, 0);
    while units.map_or_else(|| closed.try_recv() == Err(TryRecvError::Empty), |units| done < units) {
        rng.fill_bytes(&mut sent);
        let work = Mix { words: (bytes / 4) as u32, a: rng.random(), b: rng.random(), steps: STEPS };
        let address = cuda.alloc(bytes)?;
        cuda.to_device(address, &sent, None)?;
        let shape = [work.words.div_ceil(THREADS), THREADS];
        cuda.launch(function, shape, address, work, std::ptr::null_mut())?;
        cuda.to_host(&mut back, address, None)?;
        cuda.free(address)?;
        wrong += differing(&sent, &back, work);
        done += 1;
        let text = std::fs::read_to_string(SCHEDSTAT).with_context(|| format!("read {SCHEDSTAT}"))?;
        let queued =
            queued_us(&text).with_context(|| format!("find three numbers in {SCHEDSTAT}: {text:?}"))?;
        say(&format!("unit {done} {queued}"))?;
    }
    say(&json!({ "units": done, "bytes": done * bytes as u64, "wrong": wrong }).to_string())?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses the time in microseconds that a thread has waited for a processor from its `schedstat`.
fn queued_us(schedstat: &str) -> Option<u64> {
    let [_ran, queued, _slices] = schedstat.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
        return None;
    };
    queued.parse::<u64>().ok().map(|nanoseconds| nanoseconds / 1000)
}

/// Returns the number of bytes in `back` that differ from the kernel's expected result for `sent`.
fn differing(sent: &[u8], back: &[u8], work: Mix) -> u64 {
    let mixed = work.whole();
    let words = sent.chunks_exact(4).zip(back.chunks_exact(4));
    words
        .map(|(sent, back)| {
            let wanted = mixed(u32::from_le_bytes([sent[0], sent[1], sent[2], sent[3]])).to_le_bytes();
            wanted.iter().zip(back).filter(|(wanted, back)| wanted != back).count() as u64
        })
        .sum()
}

/// Starts to watch stdin. The returned channel is disconnected when stdin has closed.
fn watch_stdin() -> Receiver<()> {
    let (send, closed) = mpsc::channel();
    thread::spawn(move || {
        // An error ends the wait as the end does.
        let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        drop(send);
    });
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_processor_is_read() {
        assert_eq!(queued_us("7152548476 269132569 4711\n"), Some(269_132));
        assert_eq!(queued_us("7152548476 269132569"), None);
        assert!(queued_us(&std::fs::read_to_string(SCHEDSTAT).unwrap()).is_some());
    }

    #[test]
    fn a_wrong_byte_is_counted() {
        let work = Mix { words: 1, a: 5, b: 7, steps: STEPS };
        let word = work.whole()(123);
        let (sent, mut back) = (123_u32.to_le_bytes(), word.to_le_bytes());
        assert_eq!(differing(&sent, &back, work), 0);
        back[2] ^= 1;
        assert_eq!(differing(&sent, &back, work), 1);
    }
}
