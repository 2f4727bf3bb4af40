//! Runs a test twice: first as the host, which serves a device and starts the same test again as a guest
//! process; then as that guest, which is told by its environment where the device is. Each guest has a
//! process of its own, since the driver is one thing for a process, from its first call to its exit handlers.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_device::{DeviceConfig, DeviceStatus, GpuConfig, SimBus};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;

const GUEST: &str = "VGPU_TEST_GUEST";

/// Returns a device that has memory and copies.
pub fn soft(address: &str, change: impl FnOnce(&mut GpuConfig)) -> DeviceConfig {
    let mut gpu = GpuConfig::new("Test GPU").unwrap();
    gpu.memory_bytes = 1 << 30;
    change(&mut gpu);
    DeviceConfig::new(address.parse().unwrap(), Arc::new(Soft::new(&gpu).unwrap()))
}

/// Returns a device that accepts everything and does nothing.
pub fn null(address: &str, change: impl FnOnce(&mut GpuConfig)) -> DeviceConfig {
    let mut gpu = GpuConfig::new("Test GPU").unwrap();
    change(&mut gpu);
    DeviceConfig::new(address.parse().unwrap(), Arc::new(Null::new(&gpu).unwrap()))
}

/// The host's side of a test.
pub struct Host {
    folder: tempfile::TempDir,
    /// The simulated bus with the devices, until the test removes it.
    pub bus: Option<SimBus>,
}

impl Host {
    /// Serves devices in a new directory.
    pub fn serve(devices: Vec<DeviceConfig>) -> Self {
        let folder = tempfile::Builder::new().prefix("vgpu-libcuda-").tempdir_in("/dev/shm").unwrap();
        let bus = SimBus::serve(folder.path(), devices).unwrap();
        Self { folder, bus: Some(bus) }
    }

    /// Returns where the devices are.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a guest that runs the test `name` again, with more environment.
    pub fn guest(&self, name: &str, environment: &[(&str, &str)]) -> Command {
        guest(self.path(), name, environment)
    }

    /// Runs a guest to its end, which must be success.
    pub fn run(&self, name: &str, environment: &[(&str, &str)]) {
        finish(self.guest(name, environment).spawn().unwrap());
    }

    /// Checks that the guests' ends left no memory and no session behind.
    ///
    /// An ending process waits for the device only for a while. What it did not tell the device to end would
    /// stay for good, because no other process looks for the dead.
    pub fn assert_nothing_left(&self) {
        self.wait_until("something is left", |device| device.allocated == 0 && device.sessions.is_empty());
    }

    /// Checks that the guests' ends left no memory behind, like [`Self::assert_nothing_left`].
    pub fn assert_nothing_allocated(&self) {
        self.wait_until("memory is left", |device| device.allocated == 0);
    }

    fn wait_until(&self, what: &str, done: impl Fn(&DeviceStatus) -> bool) {
        let end = Instant::now() + Duration::from_mins(1);
        loop {
            let left = self.bus.as_ref().unwrap().status();
            if left.devices.iter().all(&done) {
                return;
            }
            assert!(Instant::now() < end, "{what}: {left:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns a guest without any device, or with those of the bus in a directory.
pub fn guest(folder: &Path, name: &str, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("VGPU_SYSFS", folder).env(GUEST, name).env_remove("CUDA_VISIBLE_DEVICES");
    command.env("VGPU_LOG", std::env::var_os("VGPU_LOG").unwrap_or_else(|| "off".into()));
    // Drops the output of the test harness. Failures are printed on stderr.
    command.stdout(std::process::Stdio::null());
    command.envs(environment.iter().copied());
    command
}

/// Waits for a guest, which must end well and in time.
pub fn finish(mut guest: std::process::Child) {
    let status = vgpu_conformance::finish(&mut guest).expect("the guest ends in time");
    assert!(status.success(), "the guest ended with {:?} (signal {:?})", status.code(), status.signal());
}

/// Returns whether this process is the guest of the test.
pub fn is_guest(name: &str) -> bool {
    let guest = std::env::var_os(GUEST).is_some_and(|guest| guest == name);
    if guest {
        // The shim keeps panics quiet, once; here it shares its standard library with the test, whose panics
        // are to be seen.
        vgpu_abi::export::quiet_panics();
        std::panic::set_hook(Box::new(|panic| eprintln!("in the guest: {panic}")));
        crate::linked::choose();
    }
    guest
}

/// Runs a test with one device: `host` makes it, `guest` runs in a process that sees it.
pub fn with_device(name: &str, device: impl FnOnce() -> DeviceConfig, guest: impl FnOnce()) {
    if is_guest(name) {
        return guest();
    }
    let host = Host::serve(vec![device()]);
    host.run(name, &[]);
    host.assert_nothing_left();
}
