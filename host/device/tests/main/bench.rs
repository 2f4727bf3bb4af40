//! A bus in a temporary folder, for one test.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use vgpu_device::{DeviceConfig, Executor, GpuConfig, PciAddress, SessionStatus, SimBus};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;

use crate::guest::Guest;

/// Device memory of the test devices.
pub const MEMORY: u64 = 64 << 20;
/// Window of the test devices: 8 channels and 4 MiB to share out.
pub const WINDOW: u64 = 8 << 20;
pub const SHARED: u64 = 4 << 20;
pub const CHANNELS: u32 = 8;

pub struct Bench {
    pub bus: SimBus,
    dir: TempDir,
}

pub fn address() -> PciAddress {
    "0000:00:05.0".parse().expect("an address")
}

/// A folder on a tmpfs where there is one.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}

pub fn config(executor: impl Executor + 'static) -> DeviceConfig {
    DeviceConfig {
        window_bytes: WINDOW,
        channels: CHANNELS,
        ..DeviceConfig::new(address(), Arc::new(executor))
    }
}

pub fn gpu() -> GpuConfig {
    GpuConfig { memory_bytes: MEMORY, ..GpuConfig::new("VGPU-STUB test").expect("a GPU") }
}

impl Bench {
    pub fn with(config: DeviceConfig) -> Self {
        let dir = folder();
        let bus = SimBus::serve(dir.path(), vec![config]).expect("a bus");
        Self { bus, dir }
    }

    pub fn soft() -> Self {
        Self::with(config(Soft::new(&gpu()).expect("a soft executor")))
    }

    pub fn null() -> Self {
        Self::with(config(Null::new(&gpu()).expect("a null executor")))
    }

    /// Takes the device away; the folder stays.
    pub fn stop(self) -> TempDir {
        drop(self.bus);
        self.dir
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// A guest on channel `channel`.
    pub fn guest(&self, channel: u32) -> Guest {
        Guest::attach(self.folder(), address(), channel)
    }

    pub fn allocated(&self) -> u64 {
        self.bus.status().devices[0].allocated
    }

    pub fn session(&self, channel: u32) -> Option<SessionStatus> {
        self.bus.status().devices[0].sessions.iter().find(|session| session.channel == channel).cloned()
    }
}
