//! Measures what a worker process between device and executor costs: launches a second, and round trips of a
//! synchronize, of the null executor in the device's process and in a worker, by a guest without shims.
//!
//! `worker_ring [DIR]`: DIR on a tmpfs; without it, a temporary folder. The two alternate; each figure is the
//! median of five runs.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use vgpu_device::{DeviceConfig, Executor, GpuConfig, SimBus};
use vgpu_executor_null::Null;
use vgpu_host_testing::guest::{Guest, message, until};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::stream::Signal;
use vgpu_wire::{Mark, area};
use vgpu_worker::{WorkerConfig, WorkerExecutor};

const TRIPS: u64 = 20_000;
const LAUNCHES: u32 = 1_000_000;
const RUNS: usize = 5;
/// Bytes of a launch.
const BYTES: usize = 192;

/// Nanoseconds of a synchronize that waits for its mark: median and 99th percentile.
fn trips(guest: &mut Guest, value: &mut u64) -> (u128, u128) {
    let mut times = Vec::with_capacity(TRIPS as usize);
    for _ in 0..TRIPS {
        *value += 1;
        let start = Instant::now();
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(1, *value) }, &[]);
        guest.wait_word(1, *value);
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
    assert_eq!(bytes.len(), BYTES);
    let start = Instant::now();
    for _ in 0..LAUNCHES {
        let left = area::RING_BYTES - guest.tail % area::RING_BYTES;
        let number = guest.number as u32 + if left < BYTES as u64 { 2 } else { 1 };
        bytes[8..12].copy_from_slice(&number.to_le_bytes());
        guest.send_bytes(&bytes);
    }
    let last = guest.number;
    until("the last launch", || guest.done() == last);
    f64::from(LAUNCHES) / start.elapsed().as_secs_f64()
}

fn executor(worker: bool) -> Result<Arc<dyn Executor>, Box<dyn Error>> {
    let gpu = GpuConfig::new("VGPU-STUB null")?;
    let null = Null::new(&gpu)?;
    if !worker {
        return Ok(Arc::new(null));
    }
    let config = WorkerConfig {
        name: "null",
        facts: null.facts(),
        memory_unit: null.memory_unit(),
        addresses: gpu.addresses.clone(),
        program: "/proc/self/exe".into(),
        arguments: vec!["worker".into()],
        executor: json!(gpu),
        user: None,
        connects: false,
        compiled: None,
    };
    Ok(Arc::new(WorkerExecutor::new(config)?))
}

fn measure() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1);
    let temporary = match &folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?,
    };
    let address = "0000:00:05.0".parse()?;
    let mut figures = [const { (Vec::new(), Vec::new(), Vec::new()) }; 2];
    let mut buses = Vec::new();
    for worker in [false, true] {
        let folder = temporary.path().join(if worker { "worker" } else { "alone" });
        std::fs::create_dir(&folder)?;
        let bus = SimBus::serve(&folder, vec![DeviceConfig::new(address, executor(worker)?)])?;
        buses.push((Guest::attach(&folder, address, 0), bus, 0));
    }
    for _ in 0..RUNS {
        for ((guest, _, value), (medians, late, rates)) in buses.iter_mut().zip(&mut figures) {
            let (median, percentile) = trips(guest, value);
            medians.push(median);
            late.push(percentile);
            rates.push(launches(guest));
        }
    }
    for (name, (mut medians, mut late, mut rates)) in ["no worker", "worker"].into_iter().zip(figures) {
        medians.sort_unstable();
        late.sort_unstable();
        rates.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.2} million launches a second; synchronize: median {} ns, 99th percentile {} ns",
            rates[RUNS / 2] / 1e6,
            medians[RUNS / 2],
            late[RUNS / 2]
        );
    }
    for (guest, bus, _) in &buses {
        let status = bus.status();
        let session = &status.devices[0].sessions[0];
        println!("{} messages, {} host sleeps", session.messages, session.host_sleeps);
        assert_eq!(guest.late(), None);
        guest.detach();
    }
    Ok(())
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        return vgpu_worker::main(|gpu| {
            let gpu: GpuConfig = serde_json::from_value(gpu.clone()).map_err(|error| error.to_string())?;
            Ok(Arc::new(Null::new(&gpu).map_err(|error| error.to_string())?))
        });
    }
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker_ring: {error}");
            ExitCode::FAILURE
        }
    }
}
