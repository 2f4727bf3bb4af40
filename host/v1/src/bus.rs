//! Devices of version 1 on the simulated bus: BAR0 and BAR1 as sockets, guest memory as a file, and the cost
//! of accesses.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_device::{BusDevice, DeviceStatus, GuestMemory, SimBus, SimError, SimFunction};
use vgpu_wire::pci::{PciAddress, V1_BAR0_BYTES, V1_BAR1_BYTES};

use super::access::Bar;
use super::bus_hooks::{BarAccess, BusTestHooks, Watch};
use super::client::Client;
use super::device::Device;
use super::local::Local;
use super::mediator::Mediator;
use super::properties::Properties;

/// Longest wait that spins. A sleep takes tens of microseconds longer than requested.
const SPIN_MOST: Duration = Duration::from_micros(200);
/// Name of the executor in the status of a device whose mediator is another process. Only that process knows
/// the sessions and the memory.
pub const OTHER_PROCESS: &str = "mediator";

/// Where the mediator runs that executes a device's calls.
#[derive(Clone, Debug)]
pub enum MediatorPlace {
    /// A mediator of this process.
    Local(Arc<Mediator>),
    /// The mediator that listens at this path.
    Socket(PathBuf),
}

/// Configuration of a version 1 device on the bus.
#[derive(Clone, Debug)]
pub struct BusDeviceConfig {
    /// The device's address on the bus.
    pub address: PciAddress,
    /// Properties that the device's administrator set.
    pub properties: Properties,
    /// Mediator that executes the device's calls.
    pub mediator: MediatorPlace,
}

/// A device on the bus, and its mediator if that is of this process.
#[derive(Debug)]
struct Served {
    address: PciAddress,
    device: Arc<Device>,
    mediator: Option<Arc<Mediator>>,
}

/// A BAR of the device, as its socket on the bus serves it.
#[derive(Debug)]
struct Socket {
    address: PciAddress,
    device: Arc<Device>,
    bar: Bar,
    cost: Duration,
    watch: Option<Arc<dyn Watch>>,
}

impl vgpu_device::Bar for Socket {
    fn address(&self) -> PciAddress {
        self.address
    }

    fn pay(&self, accesses: usize) {
        let cost = self.cost.saturating_mul(u32::try_from(accesses).unwrap_or(u32::MAX));
        if cost.is_zero() {
            return;
        }
        let end = Instant::now() + cost;
        if let Some(most) = cost.checked_sub(SPIN_MOST) {
            std::thread::sleep(most);
        }
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }

    fn admits(&self, process: u32, offset: u32, value: u32, write: bool) -> bool {
        let access = BarAccess { process, bar: self.bar, write, offset, value };
        self.watch.as_ref().is_none_or(|watch| watch.admits(access))
    }

    fn read(&self, offset: u32) -> u32 {
        self.device.read(self.bar, offset, size_of::<u32>()) as u32
    }

    fn write(&self, offset: u32, value: u32) {
        self.device.write(self.bar, offset, size_of::<u32>(), value.into());
    }

    fn block_bytes(&self) -> usize {
        match self.bar {
            Bar::Bar0 => 0,
            Bar::Bar1 => V1_BAR1_BYTES as usize,
        }
    }

    fn read_block(&self, offset: u32, bytes: usize) -> Vec<u8> {
        self.device.read_block(offset, bytes)
    }

    fn write_block(&self, offset: u32, bytes: &[u8]) {
        self.device.write_block(offset, bytes);
    }
}

/// Serves devices on a bus to a guest of `ram_bytes` of memory, which is the file `ram` of the directory.
pub fn serve_on_bus(
    folder: &Path,
    ram_bytes: u64,
    configs: Vec<BusDeviceConfig>,
    hooks: &BusTestHooks,
) -> Result<SimBus, SimError> {
    let address = |config: &BusDeviceConfig| config.address;
    SimBus::serve_functions(folder, Some(ram_bytes), configs, address, |config, memory| {
        function(config, hooks, memory.ok_or(io::ErrorKind::NotFound)?)
    })
}

/// Makes a device with its BARs.
fn function(
    config: &BusDeviceConfig,
    hooks: &BusTestHooks,
    memory: Arc<dyn GuestMemory>,
) -> io::Result<SimFunction> {
    let address = config.address;
    let device = Device::with_hooks(config.properties, hooks.device, memory);
    let mediator = match &config.mediator {
        MediatorPlace::Local(mediator) => {
            device.attach(Box::new(Local::connect(mediator, device.inlet())?));
            Some(Arc::clone(mediator))
        }
        MediatorPlace::Socket(path) => {
            device.attach(Box::new(Client::connect(path, device.inlet())));
            None
        }
    };
    let socket = |bar| -> Arc<dyn vgpu_device::Bar> {
        Arc::new(Socket {
            address,
            device: Arc::clone(&device),
            bar,
            cost: hooks.access_cost,
            watch: hooks.watch.clone(),
        })
    };
    let bars = vec![(V1_BAR0_BYTES, socket(Bar::Bar0)), (V1_BAR1_BYTES, socket(Bar::Bar1))];
    Ok(SimFunction { device: Arc::new(Served { address, device, mediator }), bars })
}

impl BusDevice for Served {
    fn address(&self) -> PciAddress {
        self.address
    }

    /// Returns the state of the device. Owners and memory are known if the mediator is in this process.
    fn status(&self) -> DeviceStatus {
        let mediator = self.mediator.as_ref();
        let (total, allocated) = mediator.map_or((0, 0), |mediator| mediator.memory());
        DeviceStatus {
            address: self.address.to_string(),
            executor: mediator.map_or(OTHER_PROCESS, |mediator| mediator.executor()).to_owned(),
            generation: 0,
            total,
            allocated,
            charged_bytes: mediator.map_or(0, |mediator| mediator.charged_bytes()),
            kept_image_bytes: mediator.map_or(0, |mediator| mediator.kept_image_bytes()),
            workers_started: None,
            workers_running: None,
            contexts: 0,
            context_bytes: 0,
            sessions: mediator.map(|mediator| mediator.owners()).unwrap_or_default(),
            free_channels: 0,
            accesses: Some(self.device.accesses()),
            longest_access_us: self.device.longest_access_us(),
            longest_attach_us: 0,
        }
    }

    fn hold(&self) {
        if let Some(mediator) = &self.mediator {
            mediator.hold();
        }
    }

    fn release(&self) {
        if let Some(mediator) = &self.mediator {
            mediator.release();
        }
    }

    /// Stops the work in progress: a guest's thread that waits for it would not end.
    fn end_sessions(&self) {
        if let Some(mediator) = &self.mediator {
            mediator.stop();
        }
    }
}
