//! Measures the ring over the sim bus with a guest that has no shims: the median round trip of an
//! `Echo` while both sides spin, and how many launches of 192 bytes a second the null executor's device
//! checks and completes.
//!
//! `ring [DIR]`: DIR on a tmpfs; without it, a temporary folder. Each number is the best of five runs and the
//! median of them.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use vgpu_device::{DeviceConfig, GpuConfig, PciAddress, SimBus};
use vgpu_executor_null::Null;
use vgpu_host_testing::guest::{Function, Guest, message, until};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::session::Echo;
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, area};

const ECHOES: usize = 50_000;
const LAUNCHES: u32 = 2_000_000;
const RUNS: usize = 5;

fn echoes(guest: &mut Guest) -> (u128, u128) {
    let mut times = Vec::with_capacity(ECHOES);
    for cookie in 0..ECHOES as u64 {
        let start = Instant::now();
        guest.call(Echo { reply: 0, reserved: 0, cookie }, &[]);
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Launches until all are done; messages a second.
fn launches(guest: &mut Guest) -> f64 {
    let body = Launch {
        function: 1,
        stream: 0,
        grid: [1; 3],
        block: [32, 1, 1],
        cluster: [0; 3],
        shared_bytes: 0,
        flags: 0,
        param_bytes: 100,
        priority: 0,
        reserved: 0,
    };
    let mut bytes = message(&body, &[0x5a; 100], 0);
    assert_eq!(bytes.len(), 192);
    let start = Instant::now();
    for _ in 0..LAUNCHES {
        let number = guest.number as u32 + 1;
        let left = area::RING_BYTES - guest.tail % area::RING_BYTES;
        let number = if left < 192 { number + 1 } else { number };
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        guest.send_bytes(&bytes);
    }
    let last = guest.number;
    until("the last launch", || guest.done() == last);
    f64::from(LAUNCHES) / start.elapsed().as_secs_f64()
}

/// Microseconds from attach to the greeting's answer, and of the detach; medians.
fn sessions(folder: &Path, address: PciAddress) -> (u128, u128) {
    let (mut begins, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let function = Function::open(folder, address);
        let start = Instant::now();
        let guest = Guest::try_attach(function, 1, WIRE_VERSION, TABLE_DIGEST);
        let mut guest = guest.unwrap_or_else(|(why, _)| panic!("refused: {why}"));
        guest.hello();
        begins.push(start.elapsed().as_micros());
        let start = Instant::now();
        guest.detach();
        ends.push(start.elapsed().as_micros());
    }
    begins.sort_unstable();
    ends.sort_unstable();
    (begins[100], ends[100])
}

fn main() -> Result<(), Box<dyn Error>> {
    let temporary = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let folder = std::env::args().nth(1).map_or_else(|| temporary.path().to_owned(), Into::into);
    let address = "0000:00:05.0".parse()?;
    let null = Null::new(&GpuConfig::new("VGPU-STUB null")?)?;
    let bus = SimBus::serve(&folder, vec![DeviceConfig::new(address, Arc::new(null))])?;
    let (begin, end) = sessions(bus.folder(), address);
    println!("session: attach and greeting {begin} us, detach {end} us");
    let mut guest = Guest::attach(bus.folder(), address, 0);
    let mut medians = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..RUNS {
        let (median, late) = echoes(&mut guest);
        println!("echo: median {median} ns, 99th percentile {late} ns");
        medians.push(median);
        let rate = launches(&mut guest);
        println!("launch: {:.2} million a second", rate / 1e6);
        rates.push(rate);
    }
    medians.sort_unstable();
    rates.sort_by(f64::total_cmp);
    let status = bus.status();
    let session = &status.devices[0].sessions[0];
    println!(
        "echo median: best {} ns, median of runs {} ns; launches: best {:.2}, median of runs {:.2} million a second",
        medians[0],
        medians[RUNS / 2],
        rates[RUNS - 1] / 1e6,
        rates[RUNS / 2] / 1e6
    );
    println!("{} messages, {} host sleeps", session.messages, session.host_sleeps);
    assert_eq!(guest.late(), None);
    guest.detach();
    Ok(())
}
