//! Confined worker processes on a driver that makes the system calls of NVIDIA's, compiles slowly, ends
//! slowly, and waits for held streams.

use std::path::Path;

use serde_json::{Value, json};
use vgpu_host_testing::bench::{address, folder};
use vgpu_host_testing::commands::{
    KERNELS, LAUNCH, allocate, function, launch, load, params, send_module, stream, synchronize,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_recording_cuda::Recording;
use vgpu_wire::Mark;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::module::ModuleLoad;
use vgpu_wire::body::stream::{EventCreate, EventRecord, StreamHold, StreamRelease, StreamWait};

use crate::probe::BLOCKING;
use crate::program::program;
use crate::serve::Served;

/// Name of the bus in a test's directory.
const BUS: &str = "bus";

/// The options of the driver. Its contexts take longer to end than a process that ends at once.
fn slow_driver() -> Recording {
    let options = json!({ "system_calls": true, "compile_ms": 100, "teardown_ms": 1500 });
    Recording::new(&options).unwrap()
}

/// Serves a device with this driver. Compiled code is kept if `cache` is set.
fn serve(driver: &Recording, folder: &Path, cache: bool) -> Served {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let [library, cublas] = [driver.library(), driver.cublas()].map(|path| path.to_str().unwrap().to_owned());
    let (bus, compiled, shares) = (format!("sim:{}", path(BUS)), path("compiled"), path("shares"));
    let mut arguments = vec!["--bus", &bus, "--libcuda", &library, "--libcublas", &cublas, "--memory", "1G"];
    // The driver's GPU is that of all tests.
    arguments.extend(["--shares", &shares]);
    if cache {
        arguments.extend(["--compiled", &compiled]);
    }
    Served::start(folder, &arguments)
}

/// Attaches a guest to the device, which allocates memory and loads a module. Returns it with the memory.
fn attach(folder: &Path) -> (Guest, u64) {
    let mut guest = Guest::attach(&folder.join(BUS), address(), 0);
    let memory = allocate(&mut guest, 4096);
    load(&mut guest, 1);
    function(&mut guest, 1, "scale");
    (guest, memory)
}

fn kernel(guest: &mut Guest, memory: u64, stream: u32) {
    launch(guest, Launch { function: 1, stream, ..LAUNCH }, &params(memory, &[1, 2]));
}

/// Has two guests, one after the other, load a module and launch a kernel of it. Returns the recorded calls.
fn two_guests(driver: &Recording, cache: bool) -> Vec<Value> {
    let folder = folder();
    let served = serve(driver, folder.path(), cache);
    for _ in 0..2 {
        let (mut guest, memory) = attach(folder.path());
        kernel(&mut guest, memory, 0);
        synchronize(&mut guest);
        assert_eq!(guest.late(), None);
        guest.detach();
    }
    served.end();
    assert_eq!(driver.refused().unwrap(), Vec::<Value>::new());
    driver.lines().unwrap()
}

fn of<'a>(calls: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    calls.iter().filter(move |line| line["call"] == name)
}

/// The driver starts in the worker's confinement, and a worker has the time that its context takes to end.
#[test]
fn workers_start_and_end_in_their_own_time() {
    let driver = slow_driver();
    let calls = two_guests(&driver, false);
    let starts = of(&calls, "cuInit").filter(|line| line["status"] == 0).count();
    assert!(starts >= 2, "one of each worker: {calls:#?}");
    // A worker that is killed before its context has ended records no end.
    let ends = of(&calls, "cuCtxDestroy_v2").filter(|line| line["status"] == 0).count();
    assert_eq!(ends, of(&calls, "cuCtxCreate_v2").count());
    let compiled = of(&calls, "cuModuleLoadDataEx").filter(|line| line["notes"] == json!(["compiled"]));
    assert_eq!(compiled.count(), 2, "nothing is kept without a directory");
}

/// What the driver compiles for one worker is kept for the next.
#[test]
fn code_is_compiled_once() {
    let driver = slow_driver();
    let calls = two_guests(&driver, true);
    let compiled: Vec<&Value> = of(&calls, "cuModuleLoadDataEx").map(|line| &line["notes"]).collect();
    assert_eq!(compiled, [&json!(["compiled"]), &Value::Null]);
}

/// A stream waits for the guest, and the driver returns neither from the load of a module nor, beside it,
/// from a launch. The release must not need the threads that wait.
#[test]
fn a_release_ends_the_calls_that_wait_for_the_held_stream() {
    let driver = Recording::new(&json!({ "blocking": BLOCKING })).unwrap();
    let folder = folder();
    let served = serve(&driver, folder.path(), false);
    let (mut guest, memory) = attach(folder.path());
    stream(&mut guest, 1, 1);
    guest.send(&StreamHold { stream: 1, hold: 1, mark: Mark::new(900, 1) }, &[]);
    guest.wait_word(900, 1);
    assert_eq!(send_module(&mut guest, 2, KERNELS), Ok(false));
    let load = guest.send(&ModuleLoad { reply: 7, module: 2 }, &[]);
    until("the load waits", || driver.has_held("cuModuleLoadDataEx"));
    kernel(&mut guest, memory, 0);
    until("a launch waits beside it", || driver.has_held("cuLaunchKernel"));
    guest.store_release(1);
    guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
    assert_eq!(guest.answer(7, load).0, 0);
    synchronize(&mut guest);
    assert_eq!(guest.late(), None);
    guest.detach();
    served.end();
}

/// A held stream and one that waits for it share a channel of the driver, which takes less work than is given
/// to both.
#[test]
fn a_release_makes_room_in_a_full_channel() {
    const CHANNELS: u32 = 8;
    let driver = Recording::new(&json!({ "queue": 600 })).unwrap();
    let folder = folder();
    let served = serve(&driver, folder.path(), false);
    let (mut guest, memory) = attach(folder.path());
    for number in 1..=CHANNELS + 1 {
        stream(&mut guest, number, 1);
        // The driver's stream is created for the first work.
        kernel(&mut guest, memory, number);
    }
    synchronize(&mut guest);
    guest.send(&StreamHold { stream: 1, hold: 1, mark: Mark::NONE }, &[]);
    guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
    guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::NONE }, &[]);
    guest.send(&StreamWait { stream: CHANNELS + 1, event: 1 }, &[]);
    for number in [1, CHANNELS + 1] {
        (0..350).for_each(|_| kernel(&mut guest, memory, number));
    }
    until("a launch waits for room", || driver.has_held("cuLaunchKernel"));
    guest.store_release(1);
    guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
    synchronize(&mut guest);
    assert_eq!(guest.late(), None);
    guest.detach();
    served.end();
    assert_eq!(driver.refused().unwrap(), Vec::<Value>::new());
}

/// A driver that reserves no TiB is asked for less, and serves. One that moves every reservation is named.
#[test]
fn a_device_has_the_addresses_that_the_driver_reserves() {
    let small = json!({ "reservations": [{ "least_bytes": 1_u64 << 40, "status": 2 }] });
    let driver = Recording::new(&small).unwrap();
    let directory = folder();
    let served = serve(&driver, directory.path(), false);
    let (mut guest, memory) = attach(directory.path());
    kernel(&mut guest, memory, 0);
    synchronize(&mut guest);
    guest.detach();
    served.end();
    assert_eq!(driver.refused().unwrap(), Vec::<Value>::new());

    let moved = json!({ "reservations": [{ "from": 0x5100_0020_0000_u64 }] });
    let driver = Recording::new(&moved).unwrap();
    let (library, bus) = (driver.library(), format!("sim:{}", directory.path().join("other").display()));
    let output = program()
        .args(["serve", "--until-stdin-closes", "--bus", &bus, "--libcuda"])
        .arg(library)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("reserves"), "{error}");
    assert!(
        driver.lines().unwrap().iter().all(|line| line["call"] != "cuMemMap"),
        "nothing is used elsewhere"
    );
}
