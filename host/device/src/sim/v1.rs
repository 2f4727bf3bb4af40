//! Devices of version 1 on the bus: BAR0 and BAR1 as sockets, guest memory as a file, and what an access
//! costs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_wire::pci::{PciAddress, V1_BAR1_BYTES};

use super::error::SimError;
use super::folder::{Bars, Bus, Function};
use super::socket::{self, RegisterServer};
use super::v1_hooks::{Seen, V1TestHooks, Watch};
use crate::memory::guest::GuestMemory;
use crate::status::{DeviceStatus, ELSEWHERE};
use crate::v1::{Bar, Client, Device, Local, Mediator, Properties};

/// Waits below this are spun: a sleep takes tens of microseconds longer than it is told to.
const SPIN_MOST: Duration = Duration::from_micros(200);

/// Where a device's calls go.
#[derive(Clone, Debug)]
pub enum V1Way {
    /// To a mediator of this process.
    Mediator(Arc<Mediator>),
    /// To the mediator that listens at this path.
    Socket(PathBuf),
}

/// A device of version 1 on the bus.
#[derive(Clone, Debug)]
pub struct V1Config {
    /// Where on the bus it is.
    pub address: PciAddress,
    /// What its administrator set.
    pub properties: Properties,
    /// Where its calls go.
    pub way: V1Way,
}

/// A device of version 1, and the mediator if it is of this process.
#[derive(Debug)]
pub(super) struct V1Device {
    address: PciAddress,
    device: Arc<Device>,
    way: V1Way,
}

/// One of the BARs.
#[derive(Debug)]
struct Socket {
    address: PciAddress,
    device: Arc<Device>,
    bar: Bar,
    cost: Duration,
    watch: Option<Arc<dyn Watch>>,
}

impl socket::Bar for Socket {
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
        let seen = Seen { process, bar: self.bar, write, offset, value };
        self.watch.as_ref().is_none_or(|watch| watch.admits(seen))
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

impl V1Device {
    /// Makes the device and its folder, and serves its BARs.
    pub(super) fn serve(
        bus: &Bus,
        config: &V1Config,
        hooks: &V1TestHooks,
        memory: Arc<dyn GuestMemory>,
    ) -> Result<(Function, Vec<RegisterServer>, Self), SimError> {
        let address = config.address;
        let mut function = bus.new_function(address, Bars::V1)?;
        let device = Device::with_hooks(config.properties, hooks.device, memory);
        device.attach(match &config.way {
            V1Way::Mediator(mediator) => {
                let thread =
                    |source| SimError::file("start a thread for", &function.path("resource0"), source);
                Box::new(Local::connect(mediator, device.inlet()).map_err(thread)?)
            }
            V1Way::Socket(path) => Box::new(Client::connect(path, device.inlet())),
        });
        let server = |name: &str, bar: Bar| {
            let socket = Socket {
                address,
                device: Arc::clone(&device),
                bar,
                cost: hooks.access_cost,
                watch: hooks.watch.clone(),
            };
            RegisterServer::start(&function.path(name), Arc::new(socket))
        };
        let servers = vec![server("resource0", Bar::Bar0)?, server("resource1", Bar::Bar1)?];
        function.show()?;
        tracing::info!(device = %address, folder = %bus.folder().display(), "device of version 1 served");
        Ok((function, servers, Self { address, device, way: config.way.clone() }))
    }

    pub(super) const fn address(&self) -> PciAddress {
        self.address
    }

    pub(super) const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn mediator(&self) -> Option<&Arc<Mediator>> {
        match &self.way {
            V1Way::Mediator(mediator) => Some(mediator),
            V1Way::Socket(_) => None,
        }
    }

    /// Owners and memory are known where the mediator is of this process.
    pub(super) fn status(&self) -> DeviceStatus {
        let mediator = self.mediator();
        let (total, allocated) = mediator.map_or((0, 0), |mediator| mediator.memory());
        DeviceStatus {
            address: self.address.to_string(),
            executor: mediator.map_or(ELSEWHERE, |mediator| mediator.executor()).to_owned(),
            generation: 0,
            total,
            allocated,
            charged_bytes: mediator.map_or(0, |mediator| mediator.charged_bytes()),
            kept_image_bytes: mediator.map_or(0, |mediator| mediator.kept_image_bytes()),
            workers_started: None,
            workers_running: None,
            contexts: 0,
            sessions: mediator.map(|mediator| mediator.owners()).unwrap_or_default(),
            free_channels: 0,
            accesses: Some(self.device.accesses()),
            longest_access_us: self.device.longest_access_us(),
            longest_attach_us: 0,
        }
    }

    pub(super) fn hold(&self) {
        if let Some(mediator) = self.mediator() {
            mediator.hold();
        }
    }

    pub(super) fn release(&self) {
        if let Some(mediator) = self.mediator() {
            mediator.release();
        }
    }

    pub(super) fn stop(&self) {
        if let Some(mediator) = self.mediator() {
            mediator.stop();
        }
    }
}
