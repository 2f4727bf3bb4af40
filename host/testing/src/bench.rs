//! A bus with one device in a temporary directory, for one test.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use vgpu_device::{DeviceConfig, Executor, GpuConfig, PciAddress, SessionStatus, SimBus};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;

use super::guest::Guest;

/// Device memory of the test devices, in bytes.
pub const MEMORY: u64 = 64 << 20;
/// Window of the test devices in bytes: 8 channels, and 4 MiB for sessions to allocate.
pub const WINDOW: u64 = 8 << 20;
/// Part of the window that sessions allocate from, in bytes.
pub const SHARED: u64 = 4 << 20;
/// Number of channels of the test devices.
pub const CHANNELS: u32 = 8;

/// A bus with one device. Dropping it ends the device and removes the directory.
pub struct Bench {
    /// Bus that serves the device.
    pub bus: SimBus,
    dir: TempDir,
}

/// Returns the address of the test device.
pub fn address() -> PciAddress {
    "0000:00:05.0".parse().expect("an address")
}

/// Makes a temporary directory, on a tmpfs where there is one.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

/// Returns the configuration of a test device with this executor.
pub fn config(executor: impl Executor + 'static) -> DeviceConfig {
    DeviceConfig {
        window_bytes: WINDOW,
        channels: CHANNELS,
        ..DeviceConfig::new(address(), Arc::new(executor))
    }
}

/// Returns the configuration of the test GPU.
pub fn gpu() -> GpuConfig {
    GpuConfig { memory_bytes: MEMORY, ..GpuConfig::new("VGPU-STUB test").expect("a GPU") }
}

impl Bench {
    /// Serves a device of this configuration.
    pub fn with(config: DeviceConfig) -> Self {
        Self::within(folder(), config)
    }

    /// Serves a device of this configuration in a directory.
    pub fn within(dir: TempDir, config: DeviceConfig) -> Self {
        let bus = SimBus::serve(dir.path(), vec![config]).expect("a bus");
        Self { bus, dir }
    }

    /// Serves a device with the soft executor.
    pub fn soft() -> Self {
        Self::with(config(Soft::new(&gpu()).expect("a soft executor")))
    }

    /// Serves a device with the null executor.
    pub fn null() -> Self {
        Self::with(config(Null::new(&gpu()).expect("a null executor")))
    }

    /// Ends the device and returns the directory, which is removed when it is dropped.
    pub fn stop(self) -> TempDir {
        drop(self.bus);
        self.dir
    }

    /// Returns the directory of the bus.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Attaches a guest to channel `channel`.
    pub fn guest(&self, channel: u32) -> Guest {
        Guest::attach(self.folder(), address(), channel)
    }

    /// Returns the number of allocated bytes of device memory, as the status reports it.
    pub fn allocated(&self) -> u64 {
        self.bus.status().devices[0].allocated
    }

    /// Returns the status of a channel's session.
    pub fn session(&self, channel: u32) -> Option<SessionStatus> {
        self.bus.status().devices[0].sessions.iter().find(|session| session.channel == channel).cloned()
    }
}
