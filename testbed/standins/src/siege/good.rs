//! A good program: uploads, has a kernel compute, downloads, and compares every byte, again and again.

use std::ffi::CStr;
use std::io::Read;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::json;

use super::say;
use crate::soak::cuda::Cuda;

/// How often the kernel replaces each word `x` by `x * a + b`.
const STEPS: u32 = 256;
/// Threads of a block.
const THREADS: u32 = 256;

/// `p[i] = p[i] * a + b`, 256 ([`STEPS`]) times, for `n` words.
const PTX: &CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry steps(.param .u64 p, .param .u32 n, .param .u32 a, .param .u32 b)
{
    .reg .pred %q<3>;
    .reg .b32 %r<10>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [a];
    ld.param.u32 %r3, [b];
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ntid.x;
    mov.u32 %r6, %tid.x;
    mad.lo.u32 %r7, %r4, %r5, %r6;
    setp.ge.u32 %q1, %r7, %r1;
    @%q1 bra done;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r7, 4;
    add.s64 %d4, %d2, %d3;
    ld.global.u32 %r8, [%d4];
    mov.u32 %r9, 0;
again:
    mad.lo.u32 %r8, %r8, %r2, %r3;
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %q2, %r9, 256;
    @%q2 bra again;
    st.global.u32 [%d4], %r8;
done:
    ret;
}
";

/// Runs until stdin closes, or for so many units. Prints `attached MICROSECONDS`, then `unit N` for each upload that came back
/// right or wrong, and in the end JSON: `units`, `bytes` compared, `wrong` ones.
///
/// # Errors
/// A call fails.
pub fn run(seed: u64, units: Option<u64>, kib: usize) -> Result<ExitCode> {
    let closed = watch_stdin();
    let start = Instant::now();
    let cuda = Cuda::begin()?;
    let bytes = (kib << 10).max(4);
    cuda.free(cuda.alloc(bytes)?)?;
    say(&format!("attached {}", start.elapsed().as_micros()))?;
    let (_, function) = cuda.load(PTX, c"steps")?;
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut sent, mut back) = (vec![0; bytes], vec![0; bytes]);
    let (mut done, mut wrong) = (0, 0);
    while units.map_or_else(|| closed.try_recv() == Err(TryRecvError::Empty), |units| done < units) {
        rng.fill_bytes(&mut sent);
        let (a, b) = (rng.random::<u32>(), rng.random::<u32>());
        let address = cuda.alloc(bytes)?;
        cuda.to_device(address, &sent, None)?;
        let words = (bytes / 4) as u32;
        cuda.launch(
            function,
            [words.div_ceil(THREADS), THREADS],
            (address, words, a, b),
            std::ptr::null_mut(),
        )?;
        cuda.to_host(&mut back, address, None)?;
        cuda.free(address)?;
        wrong += differing(&sent, &back, a, b);
        done += 1;
        say(&format!("unit {done}"))?;
    }
    say(&json!({ "units": done, "bytes": done * bytes as u64, "wrong": wrong }).to_string())?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How many bytes of `back` are not what the kernel makes of `sent`.
fn differing(sent: &[u8], back: &[u8], a: u32, b: u32) -> u64 {
    // All steps are one: x * factor + rest.
    let step = |(factor, rest): (u32, u32)| (factor.wrapping_mul(a), rest.wrapping_mul(a).wrapping_add(b));
    let (factor, rest) = (0..STEPS).fold((1, 0), |all, _| step(all));
    let words = sent.chunks_exact(4).zip(back.chunks_exact(4));
    words
        .map(|(sent, back)| {
            let word = u32::from_le_bytes([sent[0], sent[1], sent[2], sent[3]]);
            let wanted = word.wrapping_mul(factor).wrapping_add(rest).to_le_bytes();
            wanted.iter().zip(back).filter(|(wanted, back)| wanted != back).count() as u64
        })
        .sum()
}

/// Is disconnected when stdin has closed.
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
    fn a_wrong_byte_is_counted() {
        let (a, b) = (5, 7);
        let word = (0..STEPS).fold(123_u32, |word, _| word.wrapping_mul(a).wrapping_add(b));
        let (sent, mut back) = (123_u32.to_le_bytes(), word.to_le_bytes());
        assert_eq!(differing(&sent, &back, a, b), 0);
        back[2] ^= 1;
        assert_eq!(differing(&sent, &back, a, b), 1);
    }
}
