//! The bus: devices in a folder, served until the bus is dropped.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;

use super::control::{self, Control, ExitHandle};
use super::device::{ENDING_MOST, SimDevice, SimFunction};
use super::error::SimError;
use super::folder::Bus;
use super::ram::RamFile;
use crate::device::DeviceConfig;
use crate::hooks::TestHooks;
use crate::memory::guest::GuestMemory;
use crate::status::BusStatus;

/// A folder with devices. Dropping it takes all of them off and removes its files.
#[derive(Debug)]
pub struct SimBus {
    control: Control,
    devices: Arc<[SimDevice]>,
    _ram: Option<RamFile>,
    bus: Bus,
}

/// What is allocated on a bus, for who does not own it.
#[derive(Clone, Debug)]
pub struct StatusHandle(Arc<[SimDevice]>);

impl StatusHandle {
    /// What is allocated, by device and session.
    #[must_use]
    pub fn status(&self) -> BusStatus {
        control::status(&self.0)
    }
}

impl SimBus {
    /// Makes `folder` a bus with these devices. It is created where it does not exist; what a process that
    /// died left in it is removed; one that another process serves is refused.
    pub fn serve(folder: &Path, configs: Vec<DeviceConfig>) -> Result<Self, SimError> {
        Self::serve_hooked(folder, None, configs, &TestHooks::default())
    }

    /// The same in a guest of `ram_bytes` of memory, the file `ram` of the folder: devices take pages of it.
    pub fn serve_with_memory(
        folder: &Path,
        ram_bytes: u64,
        configs: Vec<DeviceConfig>,
    ) -> Result<Self, SimError> {
        Self::serve_hooked(folder, Some(ram_bytes), configs, &TestHooks::default())
    }

    /// The same for tests of guests: with memory or without, and with hooks in each of the devices.
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
        let serve = |bus: &Bus, config: &C, ram| SimDevice::serve_function(bus, || make(config, ram));
        Self::serve_all(folder, ram_bytes, configs, address, serve)
    }

    fn serve_all<C>(
        folder: &Path,
        ram_bytes: Option<u64>,
        mut configs: Vec<C>,
        address: impl Fn(&C) -> PciAddress,
        serve: impl Fn(&Bus, &C, Option<Arc<dyn GuestMemory>>) -> Result<SimDevice, SimError>,
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
        let bus = Bus::open(folder)?;
        let ram = match ram_bytes {
            Some(bytes) => Some(RamFile::create(&bus, bytes, addresses[0])?),
            None => None,
        };
        let memory = || ram.as_ref().map(|ram| Arc::clone(&ram.ram) as Arc<dyn GuestMemory>);
        let devices = configs.iter().map(|config| serve(&bus, config, memory()));
        let devices: Arc<[SimDevice]> = devices.collect::<Result<_, _>>()?;
        let control = Control::start(&bus.folder().join("control"), &devices)?;
        Ok(Self { control, devices, _ram: ram, bus })
    }

    /// The folder: what `VGPU_SYSFS` names.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.bus.folder()
    }

    /// The devices, in the order of their addresses.
    #[must_use]
    pub fn devices(&self) -> &[SimDevice] {
        &self.devices
    }

    /// What is allocated, by device and session.
    #[must_use]
    pub fn status(&self) -> BusStatus {
        control::status(&self.devices)
    }

    /// Answers what [`SimBus::status`] does, from any thread and for as long as it is kept.
    #[must_use]
    pub fn status_handle(&self) -> StatusHandle {
        StatusHandle(Arc::clone(&self.devices))
    }

    /// Sessions read messages but stop carrying them out.
    pub fn hold(&self) {
        for device in &*self.devices {
            device.served().hold();
        }
    }

    /// Sessions go on.
    pub fn release(&self) {
        for device in &*self.devices {
            device.served().release();
        }
    }

    /// Asks the bus to go, from any thread.
    #[must_use]
    pub fn exit_handle(&self) -> ExitHandle {
        self.control.exit_handle()
    }

    /// Waits until somebody asked, by the control socket or an [`ExitHandle`], that the bus should go, or for
    /// `limit`. True: it should.
    #[must_use]
    pub fn wait_for_exit(&self, limit: Option<Duration>) -> bool {
        self.control.wait_for_exit(limit)
    }
}

impl Drop for SimBus {
    fn drop(&mut self) {
        let deadline = Instant::now() + ENDING_MOST;
        self.control.stop();
        // All of them end at a time. The control socket's threads hold them, so this is not left to their own
        // drop.
        for device in &*self.devices {
            device.leave();
        }
        for device in &*self.devices {
            device.finish(deadline);
        }
        if !self.control.wait(deadline) {
            tracing::warn!(folder = %self.folder().display(), "a question on the control socket is still being answered");
        }
    }
}
