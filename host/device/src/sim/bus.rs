//! The bus: devices in a directory, served until the bus is dropped.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;

use super::control::{self, BusControl, ExitHandle};
use super::device::{ENDING_MOST, SimDevice, SimFunction};
use super::directory::BusDirectory;
use super::error::SimError;
use super::ram::RamFile;
use crate::device::DeviceConfig;
use crate::figures::DeviceFigures;
use crate::hooks::TestHooks;
use crate::memory::guest::GuestMemory;
use crate::status::BusStatus;

/// Directory with devices. Dropping it removes all devices and their files.
#[derive(Debug)]
pub struct SimBus {
    control: BusControl,
    devices: Arc<[SimDevice]>,
    _ram: Option<RamFile>,
    bus: BusDirectory,
}

/// Reports the status of a bus to a caller that does not own the bus.
#[derive(Clone, Debug)]
pub struct StatusHandle(Arc<[SimDevice]>);

impl StatusHandle {
    /// Returns the state of all devices and sessions.
    #[must_use]
    pub fn status(&self) -> BusStatus {
        control::status(&self.0)
    }

    /// Returns the figures of the first device that has some.
    #[must_use]
    pub fn figures(&self) -> Option<DeviceFigures> {
        self.0.iter().find_map(|device| device.device()).map(|device| device.figures())
    }

    /// Ends the session of a number as [`Device::end_session`](crate::Device::end_session) does, whichever
    /// device has it.
    #[must_use]
    pub fn end_session(&self, number: u32, deadline: Instant) -> Option<bool> {
        self.0.iter().find_map(|device| device.served().end_session(number, deadline))
    }
}

impl SimBus {
    /// Makes `folder` a bus with these devices. The directory is created if it does not exist, and files of a
    /// dead server are removed. It is refused if another process serves it.
    pub fn serve(folder: &Path, configs: Vec<DeviceConfig>) -> Result<Self, SimError> {
        Self::serve_hooked(folder, None, configs, &TestHooks::default())
    }

    /// Serves devices in a guest of `ram_bytes` of memory, which is the file `ram` of the directory. The
    /// devices accept guest pages.
    pub fn serve_with_memory(
        folder: &Path,
        ram_bytes: u64,
        configs: Vec<DeviceConfig>,
    ) -> Result<Self, SimError> {
        Self::serve_hooked(folder, Some(ram_bytes), configs, &TestHooks::default())
    }

    /// Serves devices for tests of guests, with or without memory, and with hooks in each device.
    pub fn serve_hooked(
        folder: &Path,
        ram_bytes: Option<u64>,
        configs: Vec<DeviceConfig>,
        hooks: &TestHooks,
    ) -> Result<Self, SimError> {
        Self::serve_all(
            folder,
            ram_bytes,
            configs,
            |config| config.address,
            |bus, config, ram| {
                let memory = ram.or_else(|| config.memory.clone());
                SimDevice::serve(bus, &DeviceConfig { memory, ..config.clone() }, hooks)
            },
        )
    }

    /// Serves devices that another crate models. `make` makes one of them from its configuration and the
    /// guest's memory.
    pub fn serve_functions<C>(
        folder: &Path,
        ram_bytes: Option<u64>,
        configs: Vec<C>,
        address: impl Fn(&C) -> PciAddress,
        make: impl Fn(&C, Option<Arc<dyn GuestMemory>>) -> io::Result<SimFunction>,
    ) -> Result<Self, SimError> {
        let serve =
            |bus: &BusDirectory, config: &C, ram| SimDevice::serve_function(bus, || make(config, ram));
        Self::serve_all(folder, ram_bytes, configs, address, serve)
    }

    fn serve_all<C>(
        folder: &Path,
        ram_bytes: Option<u64>,
        mut configs: Vec<C>,
        address: impl Fn(&C) -> PciAddress,
        serve: impl Fn(&BusDirectory, &C, Option<Arc<dyn GuestMemory>>) -> Result<SimDevice, SimError>,
    ) -> Result<Self, SimError> {
        configs.sort_by_key(&address);
        let addresses: Vec<PciAddress> = configs.iter().map(address).collect();
        let wrong = |reason| SimError::Devices { folder: folder.to_owned(), reason };
        if addresses.is_empty() {
            return Err(wrong("there is no device to put there"));
        }
        if addresses.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong("two devices have one address"));
        }
        let bus = BusDirectory::open(folder)?;
        let ram = match ram_bytes {
            Some(bytes) => Some(RamFile::create(&bus, bytes, addresses[0])?),
            None => None,
        };
        let memory = || ram.as_ref().map(|ram| Arc::clone(&ram.ram) as Arc<dyn GuestMemory>);
        let devices = configs.iter().map(|config| serve(&bus, config, memory()));
        let devices: Arc<[SimDevice]> = devices.collect::<Result<_, _>>()?;
        let control = BusControl::start(&bus.folder().join("control"), &devices)?;
        Ok(Self { control, devices, _ram: ram, bus })
    }

    /// Returns the directory, which is the value of `VGPU_SYSFS` for guests.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.bus.folder()
    }

    /// Returns the devices, in the order of their addresses.
    #[must_use]
    pub fn devices(&self) -> &[SimDevice] {
        &self.devices
    }

    /// Returns the state of all devices and sessions.
    #[must_use]
    pub fn status(&self) -> BusStatus {
        control::status(&self.devices)
    }

    /// Returns a handle that reports what [`SimBus::status`] does, from any thread and beyond the life of the
    /// bus.
    #[must_use]
    pub fn status_handle(&self) -> StatusHandle {
        StatusHandle(Arc::clone(&self.devices))
    }

    /// Holds all sessions: they still read messages, but do not carry them out.
    pub fn hold(&self) {
        for device in &*self.devices {
            device.served().hold();
        }
    }

    /// Lets held sessions carry out messages again.
    pub fn release(&self) {
        for device in &*self.devices {
            device.served().release();
        }
    }

    /// Returns a handle by which any thread can ask the bus to end.
    #[must_use]
    pub fn exit_handle(&self) -> ExitHandle {
        self.control.exit_handle()
    }

    /// Waits until the control socket or an [`ExitHandle`] asks the bus to end, but at most for `limit`.
    /// Returns whether the bus was asked.
    #[must_use]
    pub fn wait_for_exit(&self, limit: Option<Duration>) -> bool {
        self.control.wait_for_exit(limit)
    }
}

impl Drop for SimBus {
    fn drop(&mut self) {
        let deadline = Instant::now() + ENDING_MOST;
        self.control.stop();
        // All devices end at the same time. The control socket's threads hold them, so this is not left to
        // their own drop.
        for device in &*self.devices {
            device.leave();
        }
        for device in &*self.devices {
            device.finish(deadline);
        }
        if !self.control.wait(deadline) {
            tracing::warn!(folder = %self.folder().display(), "a request of the control socket is still being answered");
        }
    }
}
