//! The `sim` bus: a folder that looks like sysfs, with devices in it that live in this process.
//!
//! ```text
//! DIR                                          locked by the process that serves it
//! DIR/control                                  control socket
//! DIR/ram                                      guest memory, for devices that reach it; the offset is the guest-physical address
//! DIR/bus/pci/devices/0000:00:05.0/
//!     vendor device class ... enable resource  text, as sysfs has it
//!     config                                   configuration space of version 2: ids, and the key of guest pages
//!     resource0                                BAR0: a SOCK_SEQPACKET socket (`socket.rs`)
//!     resource0_ro                             the registers that have no side effects and the facts, as a file (`page.rs`)
//!     resource1                                BAR1 of version 1: a socket like resource0, which takes blocks, too
//!     resource2  resource2_wc                  BAR2 of version 2: one sparse file under two names
//! ```
//! Guests of a folder are processes of the same host that may open these files, so the folder is a test bed,
//! not a wall: one that truncates the window file takes the device down, which no VM can do to its BARs.

mod address;
mod control;
mod crew;
mod folder;
mod page;
mod ram;
mod socket;
mod v1;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vgpu_wire::registers::WAKE_FUTEX;

pub use address::PciAddress;

use crate::device::{Device, DeviceConfig, DeviceError};
use crate::memory::GuestMemory;
use crate::status::{BusStatus, DeviceStatus};
use crate::window::{Window, WindowError};

use control::Control;
pub use control::ExitHandle;
use folder::{Bars, Bus, Function};
use page::PageLock;
use ram::RamFile;
pub use socket::connect_bar;
use socket::{Bar, RegisterServer};
pub(crate) use socket::{connect_to, listen_at};
pub use v1::{Seen, V1Config, V1Way, Watch};

/// How long the end of a bus waits for register accesses and sessions. What is in the middle of an executor's
/// work then goes on without the bus, until its process ends.
const ENDING_MOST: Duration = Duration::from_millis(500);

/// Why a folder cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// There are no devices, or two of one address.
    #[error("serve {folder}: {reason}")]
    Devices {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with the list of devices.
        reason: &'static str,
    },
    /// Another process serves the folder.
    #[error("serve {folder}: another process does")]
    Served {
        /// The folder.
        folder: PathBuf,
    },
    /// A file or socket cannot be made.
    #[error("{what} {path}")]
    File {
        /// What was tried, such as "create".
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A window cannot be made.
    #[error("give {address} its window: {source}")]
    Window {
        /// The device's address.
        address: PciAddress,
        /// Why.
        #[source]
        source: WindowError,
    },
    /// A device cannot be made.
    #[error("put a device at {address}: {source}")]
    Device {
        /// The device's address.
        address: PciAddress,
        /// Why.
        #[source]
        source: DeviceError,
    },
}

impl SimError {
    fn file(what: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::File { what, path: path.to_owned(), source: source.into() }
    }
}

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
    V1(v1::V1Device),
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
    fn serve(bus: &Bus, config: &DeviceConfig) -> Result<Self, SimError> {
        let address = config.address;
        let mut function = bus.new_function(address, Bars::V2(config.window_bytes))?;
        let window = Window::create(&function.path("resource2"), config.window_bytes)
            .map_err(|source| SimError::Window { address, source })?;
        function.finish_window()?;
        let device = Device::new(config, Arc::new(window), WAKE_FUTEX)
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

    fn status(&self) -> DeviceStatus {
        match &self.device {
            Served::V1(device) => device.status(),
            Served::V2(device) => device.status(),
        }
    }

    fn hold(&self) {
        match &self.device {
            Served::V1(device) => device.hold(),
            Served::V2(device) => device.hold(),
        }
    }

    fn release(&self) {
        match &self.device {
            Served::V1(device) => device.release(),
            Served::V2(device) => device.release(),
        }
    }
}

impl SimDevice {
    /// Takes the device off the bus: no guest finds or reaches it any more, and its sessions are told to end.
    /// Waits for nothing.
    fn leave(&self) {
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
    fn finish(&self, deadline: Instant) {
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

/// A folder with devices. Dropping it takes all of them off and removes its files.
#[derive(Debug)]
pub struct SimBus {
    control: Control,
    devices: Arc<[SimDevice]>,
    _ram: Option<RamFile>,
    bus: Bus,
}

impl SimBus {
    /// Makes `folder` a bus with these devices. It is created where it does not exist; what a process that died
    /// left in it is removed; one that another process serves is refused.
    pub fn serve(folder: &Path, configs: Vec<DeviceConfig>) -> Result<Self, SimError> {
        Self::serve_all(
            folder,
            None,
            configs,
            |config| config.address,
            |bus, config, _| SimDevice::serve(bus, config),
        )
    }

    /// The same in a guest of `ram_bytes` of memory, the file `ram` of the folder: devices take pages of it.
    pub fn serve_with_memory(
        folder: &Path,
        ram_bytes: u64,
        configs: Vec<DeviceConfig>,
    ) -> Result<Self, SimError> {
        Self::serve_all(
            folder,
            Some(ram_bytes),
            configs,
            |config| config.address,
            |bus, config, ram| {
                let memory = ram.map(|ram| Arc::clone(&ram.ram) as Arc<dyn GuestMemory>);
                SimDevice::serve(bus, &DeviceConfig { memory, ..config.clone() })
            },
        )
    }

    /// The same with devices of version 1, in a guest of `ram_bytes` of memory: the file `ram` of the folder.
    pub fn serve_v1(folder: &Path, ram_bytes: u64, configs: Vec<V1Config>) -> Result<Self, SimError> {
        Self::serve_all(
            folder,
            Some(ram_bytes),
            configs,
            |config| config.address,
            |bus, config, ram| {
                let memory: Arc<dyn GuestMemory> = match ram {
                    Some(ram) => Arc::clone(&ram.ram) as _,
                    None => {
                        return Err(SimError::file("find", &bus.folder().join("ram"), ErrorKind::NotFound));
                    }
                };
                SimDevice::serve_v1(bus, config, memory)
            },
        )
    }

    fn serve_all<C>(
        folder: &Path,
        ram_bytes: Option<u64>,
        mut configs: Vec<C>,
        address: impl Fn(&C) -> PciAddress,
        serve: impl Fn(&Bus, &C, Option<&RamFile>) -> Result<SimDevice, SimError>,
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
        let devices = configs.iter().map(|config| serve(&bus, config, ram.as_ref()));
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

    /// Sessions read messages but stop carrying them out.
    pub fn hold(&self) {
        for device in &*self.devices {
            device.hold();
        }
    }

    /// Sessions go on.
    pub fn release(&self) {
        for device in &*self.devices {
            device.release();
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
