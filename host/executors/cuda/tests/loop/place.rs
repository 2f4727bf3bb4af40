//! Where a test runs: as the host of the second device, or, started again by it, as the host of the first.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_device::{Addresses, DeviceConfig, GpuConfig, SimBus};
use vgpu_executor_cuda::{Cuda, CudaOptions};
use vgpu_executor_soft::{Soft, SoftOptions, TestHooks};
use vgpu_host_testing::bench::{Bench, CHANNELS, MEMORY, WINDOW, address, folder};
use vgpu_host_testing::guest::until;
use vgpu_wire::AddressRange;

use crate::locks;

/// Environment variable with the name of the test that runs in this process.
const INNER: &str = "VGPU_TEST_INNER";
/// Environment variable with the start of the range in which the second device reserves the addresses that a
/// program requests.
const RANGE: &str = "VGPU_TEST_RANGE";
/// Environment variable with the directory of the libraries that the executor loads.
const LIBRARIES: &str = "VGPU_TEST_LIBRARIES";
const LIBCUDA: &str = "libcuda.so.1";
const LIBCUBLAS: &str = "libcublas.so.13";
/// The executor loads this library because it lies beside cuBLAS.
const LIBCUBLASLT: &str = "libcublasLt.so.13";
/// Size in bytes of the range of device addresses.
pub const SPAN: u64 = 8 << 30;
/// Time limit of a test.
const PATIENCE: Duration = Duration::from_mins(5);

/// The first device: its executor, and the bus on which guests find it.
pub struct Loop {
    pub cuda: Arc<Cuda>,
    pub bench: Bench,
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Returns the directory of this project's libraries. Builds those whose inputs have changed.
fn build_libraries() -> PathBuf {
    let options = xtask::shims::Options {
        only: [LIBCUDA, LIBCUBLAS, LIBCUBLASLT].map(str::to_owned).to_vec(),
        ..xtask::shims::Options::embedded(&root())
    };
    let report = xtask::shims::update(&options).expect("the libraries are built");
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    options.out
}

/// Runs a test on a second device that does independent work in the order of the ring.
pub fn looped(name: &str, test: impl FnOnce(&Loop)) {
    looped_on(name, options, test);
}

/// Runs a test as [`looped`] does, with an executor of these options.
pub fn looped_on(name: &str, options: fn() -> CudaOptions, test: impl FnOnce(&Loop)) {
    if is_inner(name) { inner(&options(), test) } else { outer(name, None) }
}

/// Runs a test as [`looped`] does, once for each of several seeds, on a second device that does independent
/// work in an order drawn from the seed.
pub fn adversarial(name: &str, test: impl FnOnce(&Loop)) {
    if is_inner(name) {
        return inner(&options(), test);
    }
    for seed in 1..=4 {
        outer(name, Some(seed));
    }
}

/// Returns whether this process is that of the first device.
pub fn is_inner(name: &str) -> bool {
    std::env::var_os(INNER).is_some_and(|inner| inner == name)
}

/// Returns a command that runs this test alone in another process of this program.
pub fn test_again(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

/// Serves the second device and runs the test in another process. Checks that nothing is left on the device
/// when the process has ended.
pub fn outer(name: &str, adversary: Option<u64>) {
    // Its kernels may overlap.
    let compute_capability = (9, 0);
    let gpu = GpuConfig {
        memory_bytes: 1 << 30,
        compute_capability,
        ..GpuConfig::new("Second GPU").expect("a GPU")
    };
    let range = Soft::reservable(&gpu);
    let soft =
        Soft::with_hooks(&gpu, SoftOptions::default(), TestHooks { adversary, ..TestHooks::default() })
            .expect("an executor");
    let dir = folder();
    let config = DeviceConfig::new(address(), Arc::new(soft));
    let bus = SimBus::serve(dir.path(), vec![config]).expect("the second bus");
    let mut child = test_again(name)
        .env("VGPU_SYSFS", dir.path())
        .env("VGPU_LOG", std::env::var_os("VGPU_LOG").unwrap_or_else(|| "off".into()))
        .env(INNER, name)
        .env(RANGE, range.start.to_string())
        .env(LIBRARIES, build_libraries())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .stdout(Stdio::null())
        .spawn()
        .expect("the test is started again");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child's state") {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{name} (adversary {adversary:?}) takes too long: {:#?}", bus.status());
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(status.success(), "{name} (adversary {adversary:?}): {status}");
    let left = bus.status();
    assert_eq!(left.devices[0].allocated, 0, "memory of the second device is left: {left:#?}");
    assert!(left.devices[0].sessions.is_empty(), "a session of the second device is left: {left:#?}");
}

/// Returns the directory of the libraries, in the processes that [`outer`] starts.
fn libraries() -> PathBuf {
    std::env::var_os(LIBRARIES).expect("a folder").into()
}

/// Returns the path of this project's libcuda.
pub fn libcuda() -> PathBuf {
    libraries().join(LIBCUDA)
}

/// Returns the options that fit the second device.
pub fn options() -> CudaOptions {
    let base = std::env::var(RANGE).ok().and_then(|text| text.parse().ok()).expect("a range");
    let folder = libraries();
    CudaOptions {
        libcuda: Some(libcuda()),
        libcublas: Some(folder.join(LIBCUBLAS)),
        memory: Some(MEMORY),
        context_bytes: 1 << 20,
        contexts: 1,
        driver_text: Some("580.65.06".to_owned()),
        range: AddressRange { base, bytes: SPAN },
        ..CudaOptions::new(Addresses::next_in_process())
    }
}

/// Serves the first device and runs the test on it.
fn inner(options: &CudaOptions, test: impl FnOnce(&Loop)) {
    locks::watch();
    let cuda = Arc::new(Cuda::new(options).expect("the executor"));
    let config = DeviceConfig {
        window_bytes: WINDOW,
        channels: CHANNELS,
        ..DeviceConfig::new(address(), Arc::clone(&cuda) as Arc<dyn vgpu_device::Executor>)
    };
    let bench = Bench::with(config);
    let looped = Loop { cuda, bench };
    test(&looped);
    drop(looped.bench);
    // A bus that ends does not wait for sessions for long.
    until("nothing is left of ended sessions", || vgpu_device::Executor::allocated(&*looped.cuda) == 0);
}
