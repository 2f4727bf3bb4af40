//! A device on the bus, of either version: its folder, the sockets of its BARs, and how it leaves.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;
use vgpu_wire::registers::WAKE_FUTEX;

use super::error::SimError;
use super::folder::{Bars, Bus, Function};
use super::page::{self, PageLock};
use super::socket::{Bar, RegisterServer};
use super::v1::{V1Config, V1Device};
use super::v1_hooks::V1TestHooks;
use crate::device::{Device, DeviceConfig};
use crate::hooks::TestHooks;
use crate::memory::guest::GuestMemory;
use crate::memory::window::Window;
use crate::profile::SessionProfile;
use crate::status::DeviceStatus;

/// How long the end of a device waits for register accesses and sessions. What is in the middle of an
/// executor's work then goes on without the bus, until its process ends.
pub(super) const ENDING_MOST: Duration = Duration::from_millis(500);

/// A device on the bus.
#[derive(Debug)]
pub struct SimDevice {
    function: Function,
    servers: Vec<RegisterServer>,
    device: Served,
    _page: Option<PageLock>,
}

/// A device of either version.
#[derive(Debug)]
enum Served {
    V1(V1Device),
    V2(Arc<Device>),
}

/// BAR0 of a device of version 2.
#[derive(Debug)]
struct Registers {
    device: Arc<Device>,
    packets: Mutex<()>,
}

impl Bar for Registers {
    fn address(&self) -> PciAddress {
        self.device.address()
    }

    fn read(&self, offset: u32) -> u32 {
        self.device.read(offset)
    }

    fn write(&self, offset: u32, value: u32) {
        self.device.write(offset, value);
    }

    fn packets(&self) -> Option<&Mutex<()>> {
        Some(&self.packets)
    }
}

impl SimDevice {
    /// Puts a device of version 2 on the bus.
    pub(super) fn serve(bus: &Bus, config: &DeviceConfig, hooks: &TestHooks) -> Result<Self, SimError> {
        let address = config.address;
        let mut function = bus.new_function(address, Bars::V2(config.window_bytes))?;
        let window = Window::create(&function.path("resource2"), config.window_bytes)
            .map_err(|source| SimError::Window { address, source })?;
        function.finish_window()?;
        let device = Device::with_hooks(config, hooks, Arc::new(window), WAKE_FUTEX)
            .map_err(|source| SimError::Device { address, source })?;
        let device = Arc::new(device);
        function.write_config(device.pages_key())?;
        let bar0 = Registers { device: Arc::clone(&device), packets: Mutex::default() };
        let server = RegisterServer::start(&function.path("resource0"), Arc::new(bar0))?;
        let page = page::publish(&function.path("resource0_ro"), &device)?;
        // Everything is there: the function appears at once or not at all.
        function.show()?;
        tracing::info!(device = %address, folder = %bus.folder().display(), "device served");
        Ok(Self { function, servers: vec![server], device: Served::V2(device), _page: Some(page) })
    }

    /// Puts a device of version 1 on the bus, in a guest with this memory.
    pub(super) fn serve_v1(
        bus: &Bus,
        config: &V1Config,
        hooks: &V1TestHooks,
        memory: Arc<dyn GuestMemory>,
    ) -> Result<Self, SimError> {
        let (function, servers, device) = V1Device::serve(bus, config, hooks, memory)?;
        Ok(Self { function, servers, device: Served::V1(device), _page: None })
    }

    /// The device itself, if it is of version 2.
    #[must_use]
    pub const fn device(&self) -> Option<&Arc<Device>> {
        match &self.device {
            Served::V1(_) => None,
            Served::V2(device) => Some(device),
        }
    }

    /// The device itself, if it is of version 1.
    #[must_use]
    pub const fn device_v1(&self) -> Option<&Arc<crate::v1::Device>> {
        match &self.device {
            Served::V1(device) => Some(device.device()),
            Served::V2(_) => None,
        }
    }

    fn address(&self) -> PciAddress {
        match &self.device {
            Served::V1(device) => device.address(),
            Served::V2(device) => device.address(),
        }
    }

    /// What is allocated, by session.
    pub(super) fn status(&self) -> DeviceStatus {
        match &self.device {
            Served::V1(device) => device.status(),
            Served::V2(device) => device.status(),
        }
    }

    /// Where the time of each session's work went. A device of version 1 does not say.
    pub(super) fn profiles(&self) -> Vec<SessionProfile> {
        self.device().map(|device| device.profiles()).unwrap_or_default()
    }

    /// Sessions read messages but stop carrying them out.
    pub(super) fn hold(&self) {
        match &self.device {
            Served::V1(device) => device.hold(),
            Served::V2(device) => device.hold(),
        }
    }

    /// Sessions go on.
    pub(super) fn release(&self) {
        match &self.device {
            Served::V1(device) => device.release(),
            Served::V2(device) => device.release(),
        }
    }

    /// Takes the device off the bus: no guest finds or reaches it any more, and its sessions are told to end.
    /// Waits for nothing.
    pub(super) fn leave(&self) {
        self.function.remove();
        for server in &self.servers {
            server.stop();
        }
        match &self.device {
            // A call that takes long would keep its guest's thread.
            Served::V1(device) => device.stop(),
            Served::V2(device) => device.end_sessions(),
        }
    }

    /// Waits until nothing of a device that has left is under way, but not beyond `deadline`.
    pub(super) fn finish(&self, deadline: Instant) {
        if !self.servers.iter().all(|server| server.wait(deadline)) {
            tracing::warn!(device = %self.address(), "a register access is still being carried out");
        }
        if let Served::V2(device) = &self.device {
            device.shutdown_by(deadline);
        }
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.leave();
        self.finish(Instant::now() + ENDING_MOST);
        tracing::info!(device = %self.address(), "device gone");
    }
}
