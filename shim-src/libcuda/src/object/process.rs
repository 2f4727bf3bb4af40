//! The devices of this process: functions on the bus, and those among them that CUDA_VISIBLE_DEVICES makes
//! visible to the program.

use std::sync::OnceLock;

use vgpu_abi::{CUresult, log};
use vgpu_transport::{
    AttachError, Device, Notice, OpenError, PciFunction, Session, listen, scan, sysfs_root,
};

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::{context, pool};
use crate::sync::Mutex;
use crate::visible::{Visible, uuid_text};

/// The visible devices of the process, by CUDA ordinal.
pub type Devices = Vec<&'static Gpu>;

/// Functions on the bus, in the order of their addresses.
#[derive(Debug)]
pub struct Process {
    slots: Vec<GpuSlot>,
}

#[derive(Debug)]
struct GpuSlot {
    function: PciFunction,
    gpu: OnceLock<&'static Gpu>,
    /// Held while the device is opened.
    attach: Mutex<()>,
}

impl Process {
    /// Scans the bus. Fails if it finds no function.
    pub fn discover() -> Result<Self> {
        listen(hear);
        let root = sysfs_root();
        let functions = scan(&root).map_err(|error| {
            log::error(format_args!("failed to look for devices: {}", Chain(&error)));
            CUresult::SYSTEM_NOT_READY
        })?;
        if functions.is_empty() {
            log::info(format_args!("no VGPU-STUB function below {}", root.display()));
            return Err(CUresult::NO_DEVICE);
        }
        let slot = |function| GpuSlot { function, gpu: OnceLock::new(), attach: Mutex::new(()) };
        Ok(Self { slots: functions.into_iter().map(slot).collect() })
    }

    /// Returns the number of functions on the bus.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the device of a function. The first call opens it, without attaching: its session attaches
    /// with the first message.
    pub fn gpu(&self, index: usize) -> Result<&'static Gpu> {
        let slot = self.slots.get(index).ok_or(CUresult::INVALID_DEVICE)?;
        if let Some(gpu) = slot.gpu.get() {
            return Ok(gpu);
        }
        let _attach = slot.attach.lock();
        if let Some(gpu) = slot.gpu.get() {
            return Ok(gpu);
        }
        let gpu = attach(&slot.function, index)?;
        Ok(slot.gpu.get_or_init(|| gpu))
    }

    /// Opens the devices that CUDA_VISIBLE_DEVICES makes visible, and assigns their ordinals.
    pub fn visible(&self) -> Result<Devices> {
        let value = std::env::var_os("CUDA_VISIBLE_DEVICES");
        let visible = Visible::parse(value.as_deref().map(|text| text.to_str().unwrap_or("")));
        let uuid = |index| self.gpu(index).map(|gpu| uuid_text(&gpu.shown.facts.uuid));
        let chosen = visible.choose(self.count(), uuid)?;
        let devices = chosen.iter().map(|&index| self.gpu(index)).collect::<Result<Devices>>()?;
        for (ordinal, gpu) in devices.iter().enumerate() {
            gpu.set_ordinal(ordinal);
        }
        Ok(devices)
    }

    /// Returns the devices that the process has opened.
    pub fn open(&self) -> impl Iterator<Item = &'static Gpu> + '_ {
        self.slots.iter().filter_map(|slot| slot.gpu.get().copied())
    }

    /// Ends the sessions of all devices.
    pub fn close(&self) {
        for gpu in self.open() {
            gpu.queue.session.close();
        }
    }
}

/// Logs the transport's notices. The loss of a session is also printed to the program's stderr.
fn hear(notice: &Notice) {
    match notice {
        Notice::Lost { .. } => {
            log::alarm(format_args!("{notice}. To find out what is wrong: vgpu-run check"));
        }
        _ => log::warn(format_args!("{notice}")),
    }
}

fn attach(function: &PciFunction, index: usize) -> Result<&'static Gpu> {
    let address = function.address;
    let device = Device::identify(function, Some(vgpu_transport_v1::open)).map_err(|error| {
        log::error(format_args!("failed to open device {address}: {}", Chain(&error)));
        match error {
            OpenError::Version1 { .. } => CUresult::SYSTEM_DRIVER_MISMATCH,
            OpenError::Forked { .. } => CUresult::NOT_INITIALIZED,
            _ => CUresult::SYSTEM_NOT_READY,
        }
    })?;
    let session = Session::open(device).map_err(|error| {
        log::error(format_args!("failed to use device {address}: {}", Chain(&error)));
        match error {
            AttachError::Version { .. } | AttachError::Digest { .. } => CUresult::SYSTEM_DRIVER_MISMATCH,
            AttachError::NoChannel { .. } => CUresult::DEVICE_UNAVAILABLE,
            _ => CUresult::SYSTEM_NOT_READY,
        }
    })?;
    log::info(format_args!("found device {address}"));
    let gpu = Gpu::new(session, index);
    pool::create_default(gpu)?;
    context::create_primary(gpu)?;
    Ok(gpu)
}

/// Displays an error with its causes on one line.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            write!(f, ": {cause}")?;
            next = cause.source();
        }
        Ok(())
    }
}
