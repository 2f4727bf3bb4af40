//! Confined worker processes on a driver that makes the system calls of NVIDIA's, compiles slowly, and ends
//! slowly.

use serde_json::{Value, json};
use vgpu_host_testing::bench::{address, folder};
use vgpu_host_testing::commands::{LAUNCH, allocate, function, launch, load, params, synchronize};
use vgpu_host_testing::guest::Guest;
use vgpu_recording_cuda::Recording;
use vgpu_wire::body::launch::Launch;

use crate::serve::Served;

/// The options of the driver. Its contexts take longer to end than a process that ends at once.
fn slow_driver() -> Recording {
    let options = json!({ "system_calls": true, "compile_ms": 100, "teardown_ms": 1500 });
    Recording::new(&options).unwrap()
}

/// Serves a device with this driver, has two guests, one after the other, load a module and launch a kernel of
/// it, and returns the recorded calls.
fn two_guests(driver: &Recording, cache: bool) -> Vec<Value> {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [library, cublas] = [driver.library(), driver.cublas()].map(|path| path.to_str().unwrap().to_owned());
    let (bus, compiled) = (format!("sim:{}", path("bus")), path("compiled"));
    let mut arguments = vec!["--bus", &bus, "--libcuda", &library, "--libcublas", &cublas, "--memory", "1G"];
    if cache {
        arguments.extend(["--compiled", &compiled]);
    }
    let served = Served::start(folder.path(), &arguments);
    for _ in 0..2 {
        let mut guest = Guest::attach(&folder.path().join("bus"), address(), 0);
        let memory = allocate(&mut guest, 4096);
        load(&mut guest, 1);
        function(&mut guest, 1, "scale");
        launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(memory, &[1, 2]));
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
    assert_eq!(of(&calls, "cuCtxDestroy_v2").filter(|line| line["status"] == 0).count(), 2);
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
