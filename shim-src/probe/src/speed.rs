//! Measures how fast copies and waits are. Slowness is not a failure.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use vgpu_probe_steps::{Bandwidth, Fault, Latency};

use crate::driver::{Driver, Kernel, Stream};
use crate::say::Say;

/// Size of a copy in bytes: twice all staging buffers, so that a copy waits for the host and not for its own
/// writes alone, and little enough that the measurement costs a healthy check little processor time.
const BYTES: u32 = 16 << 20;
/// Number of times that a copy is repeated, unless it takes too long.
const TIMES: usize = 4;
const ENOUGH: Duration = Duration::from_millis(400);
const ROUND_TRIPS: usize = 100;

/// Measures copies and launches, and reports each figure.
pub fn measure(driver: &Driver, kernel: Option<Kernel>, say: &mut Say) {
    say.step(|said| bandwidth(driver, said));
    say.step(|said| latency(driver, kernel, said));
}

fn bandwidth(driver: &Driver, said: &mut Bandwidth) -> Result<(), Fault> {
    let memory = driver.allocate(BYTES as usize)?;
    let stream = driver.stream()?;
    let mut pageable = vec![1_u8; BYTES as usize];
    let mut pinned = driver.pinned(BYTES as usize)?;
    pinned.bytes().fill(1);
    said.pageable_to_device = rate(|| driver.write(memory, &pageable))?;
    said.pageable_to_host = rate(|| driver.read(&mut pageable, memory))?;
    said.pinned_to_device = rate(|| driver.write_pinned(memory, &pinned, stream))?;
    said.pinned_to_host = rate(|| driver.read_pinned(&mut pinned, memory, stream))?;
    driver.unpin(&pinned)?;
    driver.free(memory)
}

/// Returns the rate of the fastest of several copies, in bytes per second.
fn rate(mut copy: impl FnMut() -> Result<(), Fault>) -> Result<u64, Fault> {
    let start = Instant::now();
    let mut best = Duration::MAX;
    for _ in 0..TIMES {
        let one = Instant::now();
        copy()?;
        best = best.min(one.elapsed());
        if start.elapsed() > ENOUGH {
            break;
        }
    }
    Ok((f64::from(BYTES) / best.as_secs_f64().max(1e-9)).round() as u64)
}

/// Stores the median time of reading four bytes, and of launching a kernel of one block and waiting for it.
fn latency(driver: &Driver, kernel: Option<Kernel>, said: &mut Latency) -> Result<(), Fault> {
    let memory = driver.allocate(4096)?;
    driver.fill(memory, 0)?;
    let mut word = [0; 4];
    said.read_ns = median(|| driver.read(&mut word, memory))?;
    if let Some(kernel) = kernel {
        let (mut output, mut input, mut factor) = (memory.address, memory.address, 3_u32);
        let mut parameters: [*mut c_void; 3] =
            [(&raw mut output).cast(), (&raw mut input).cast(), (&raw mut factor).cast()];
        said.launch_ns = median(|| {
            driver.launch(kernel, 1, 256, Stream::LEGACY, &mut parameters)?;
            driver.wait_for_all()
        })?;
    }
    driver.free(memory)
}

fn median(mut once: impl FnMut() -> Result<(), Fault>) -> Result<u64, Fault> {
    let start = Instant::now();
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    while times.len() < ROUND_TRIPS && (times.is_empty() || start.elapsed() < ENOUGH) {
        let one = Instant::now();
        once()?;
        times.push(one.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
