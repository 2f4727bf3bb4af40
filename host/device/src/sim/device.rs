//! A device on the bus: its directory, the sockets of its BARs, and how it is removed.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgpu_wire::pci::{PciAddress, V2_BAR0_BYTES};
use vgpu_wire::registers::WAKE_FUTEX;

use super::directory::{BusDirectory, FunctionDirectory};
use super::error::SimError;
use super::page::{self, PageFile};
use super::socket::{Bar, RegisterServer};
use crate::device::{Device, DeviceConfig};
use crate::hooks::TestHooks;
use crate::memory::window::Window;
use crate::profile::SessionProfile;
use crate::status::DeviceStatus;

/// Time that the end of a device waits for register accesses and sessions. Work of an executor that takes
/// longer continues until the process ends.
pub(super) const ENDING_MOST: Duration = Duration::from_millis(500);

/// A device model that a bus serves.
pub trait BusDevice: std::fmt::Debug + Send + Sync {
    /// Returns the device's address on the bus.
    fn address(&self) -> PciAddress;

    /// Returns the state of the device and of its sessions.
    fn status(&self) -> DeviceStatus;

    /// Returns the profile of the time of each session's work, as far as the model measures it.
    fn profiles(&self) -> Vec<SessionProfile> {
        Vec::new()
    }

    /// Holds all sessions: they still read messages, but do not carry them out.
    fn hold(&self);

    /// Lets held sessions carry out messages again.
    fn release(&self);

    /// Tells all sessions to end, and waits for none.
    fn end_sessions(&self);

    /// Ends the session of a number as [`Device::end_session`] does, if the model has sessions.
    fn end_session(&self, _number: u32, _deadline: Instant) -> Option<bool> {
        None
    }

    /// Ends all sessions for good, and waits for their ends until `deadline`.
    fn shutdown_by(&self, _deadline: Instant) {}
}

/// A device model of another crate with its BARs, for [`super::SimBus::serve_functions`].
#[derive(Debug)]
pub struct SimFunction {
    /// Device model that the bus serves.
    pub device: Arc<dyn BusDevice>,
    /// The BARs from BAR0 on, with the size of each in bytes.
    pub bars: Vec<(u64, Arc<dyn Bar>)>,
}

/// A device on the bus.
#[derive(Debug)]
pub struct SimDevice {
    function: FunctionDirectory,
    servers: Vec<RegisterServer>,
    served: Arc<dyn BusDevice>,
    /// The device, unless another crate models it.
    device: Option<Arc<Device>>,
    _page: Option<PageFile>,
}

impl BusDevice for Device {
    fn address(&self) -> PciAddress {
        self.address()
    }

    fn status(&self) -> DeviceStatus {
        self.status()
    }

    fn profiles(&self) -> Vec<SessionProfile> {
        self.profiles()
    }

    fn hold(&self) {
        self.hold();
    }

    fn release(&self) {
        self.release();
    }

    fn end_sessions(&self) {
        self.end_sessions();
    }

    fn end_session(&self, number: u32, deadline: Instant) -> Option<bool> {
        self.end_session(number, deadline)
    }

    fn shutdown_by(&self, deadline: Instant) {
        self.shutdown_by(deadline);
    }
}

/// BAR0 of a version 2 device, as the socket serves it.
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
    /// Puts a device on the bus.
    pub(super) fn serve(
        bus: &BusDirectory,
        config: &DeviceConfig,
        hooks: &TestHooks,
    ) -> Result<Self, SimError> {
        let address = config.address;
        let mut function = bus.new_function(address, [V2_BAR0_BYTES, 0, config.window_bytes])?;
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
        // Everything exists now, so the function appears at once or not at all.
        function.show()?;
        tracing::info!(device = %address, folder = %bus.folder().display(), "device served");
        let served = Arc::clone(&device) as Arc<dyn BusDevice>;
        Ok(Self { function, servers: vec![server], served, device: Some(device), _page: Some(page) })
    }

    /// Puts a device that another crate models on the bus.
    pub(super) fn serve_function(
        bus: &BusDirectory,
        make: impl FnOnce() -> io::Result<SimFunction>,
    ) -> Result<Self, SimError> {
        let made = make().map_err(|source| SimError::file("make a device for", bus.folder(), source));
        let SimFunction { device: served, bars } = made?;
        let address = served.address();
        let size = |index: usize| bars.get(index).map_or(0, |&(bytes, _)| bytes);
        let mut function = bus.new_function(address, [size(0), size(1), size(2)])?;
        let start = |(index, (_, bar)): (usize, (u64, Arc<dyn Bar>))| {
            RegisterServer::start(&function.path(&format!("resource{index}")), bar)
        };
        let servers = bars.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        function.show()?;
        tracing::info!(device = %address, folder = %bus.folder().display(), "device served");
        Ok(Self { function, servers, served, device: None, _page: None })
    }

    /// Returns the device, or `None` if another crate models it.
    #[must_use]
    pub const fn device(&self) -> Option<&Arc<Device>> {
        self.device.as_ref()
    }

    /// Returns the device model as the bus uses it.
    pub(super) fn served(&self) -> &dyn BusDevice {
        &*self.served
    }

    /// Removes the device from the bus, so that no guest finds or reaches it any more, and tells its sessions
    /// to end. It does not wait.
    pub(super) fn leave(&self) {
        self.function.remove();
        for server in &self.servers {
            server.stop();
        }
        self.served.end_sessions();
    }

    /// Waits until a removed device is idle, but not beyond `deadline`.
    pub(super) fn finish(&self, deadline: Instant) {
        if !self.servers.iter().all(|server| server.wait(deadline)) {
            tracing::warn!(device = %self.served.address(), "a register access is still being carried out");
        }
        self.served.shutdown_by(deadline);
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.leave();
        self.finish(Instant::now() + ENDING_MOST);
        tracing::info!(device = %self.served.address(), "device gone");
    }
}
