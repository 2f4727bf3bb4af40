//! Measures waits: a launch of a kernel that does nothing, with a few bytes back from the device after it.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::machine::{self, Waits};
use crate::percentiles::{nanoseconds, percentiles};
use crate::rates::Program;

/// Time for which waits are made before they count.
const WARM: Duration = Duration::from_millis(500);
/// Time for which this machine's own threads are measured, in each way.
const MACHINE: Duration = Duration::from_millis(300);
/// Size in bytes of the copy by which the null executor tells when the launch started and ended.
const TIMES_BYTES: usize = 16;

/// Returns a clock of the system in nanoseconds.
fn clock(id: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live place for the time.
    unsafe { libc::clock_gettime(id, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Launches, copies `N` bytes back and waits for them, over and over for `time`. `each` gets the bytes, and
/// the nanoseconds that it took.
fn trips<const N: usize>(
    program: &Program,
    time: Duration,
    mut each: impl FnMut([u8; N], u64),
) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let start = Instant::now();
        program.launch()?;
        let word = program.read::<N>()?;
        each(word, nanoseconds(start));
    }
    Ok(())
}

/// Returns what the machine's own threads need: a ring of so many, and, if launches take time, a word that
/// comes `after` such a time, at least a hundred times.
fn machine_times(threads: usize, after: Option<Duration>) -> Value {
    json!({
        "polling_ring_ns": percentiles(machine::ring(threads, Waits::Polling, MACHINE)),
        "sleeping_ring_ns": percentiles(machine::ring(threads, Waits::Asleep, MACHINE)),
        "late_ns": after.map(|after| percentiles(machine::late(after, MACHINE.max(after * 100)))),
    })
}

/// Makes waits for `seconds` and prints a line of JSON when it starts to count, and one with the figures.
/// `timed` tells that launches take time and the device tells when they are over. With `ring`, a ring of so
/// many threads of the machine's own is measured before. `stay` makes the process remain until stdin closes.
pub fn measure(seconds: f64, timed: bool, ring: Option<usize>, stay: bool) -> Result<ExitCode> {
    let program = Program::begin(4096)?;
    let time = Duration::try_from_secs_f64(seconds).context("so long a time cannot be")?;
    let mut usual = Vec::new();
    trips::<4>(&program, WARM, |_, took| usual.push(took))?;
    usual.sort_unstable();
    let after = usual.get(usual.len() / 2).filter(|_| timed).map(|took| Duration::from_nanos(*took));
    let machine = ring.map(|threads| machine_times(threads, after));
    if machine.is_some() {
        trips::<4>(&program, WARM, |_, _| {})?;
    }
    println!("{}", json!({ "started": true }));
    std::io::stdout().flush()?;
    let used = clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    let start = Instant::now();
    let mut waits = Vec::new();
    let (mut late, mut over) = (Vec::new(), Vec::new());
    if timed {
        trips::<TIMES_BYTES>(&program, time, |times, took| {
            let now = clock(libc::CLOCK_REALTIME);
            let [began, ended] =
                [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| times[at + byte])));
            waits.push(took);
            late.push(now.saturating_sub(ended));
            over.push(took.saturating_sub(ended.saturating_sub(began)));
        })?;
    } else {
        trips::<4>(&program, time, |_, took| waits.push(took))?;
    }
    let elapsed = nanoseconds(start);
    let used = clock(libc::CLOCK_PROCESS_CPUTIME_ID) - used;
    let mut answer = json!({
        "trip_ns": percentiles(waits),
        "client_ns": used,
        "elapsed_ns": elapsed,
        "machine": machine,
    });
    if timed {
        // From the completion on the device's clock, which is this one where both run on one kernel; and the
        // time that a launch took beyond that of its work, whatever the clocks.
        answer["late_ns"] = percentiles(late);
        answer["beyond_ns"] = percentiles(over);
    }
    println!("{answer}");
    std::io::stdout().flush()?;
    if stay {
        // Whoever measures reads the processor times of the device's threads, which end with this process.
        until_stdin_closes();
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for the end of stdin.
pub fn until_stdin_closes() {
    // Whatever ends the reading, nobody needs this process any more.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Keeps a processor busy until stdin closes.
pub fn keep_busy() -> ExitCode {
    static OVER: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        until_stdin_closes();
        OVER.store(true, Ordering::Relaxed);
    });
    while !OVER.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    ExitCode::SUCCESS
}
