//! Figures of the VMs of each GPU. All of them are read from the directory in which the devices find each
//! other: no device is asked, so that one that hangs makes nobody wait.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use vgpu_share::{
    Figure, GpuShare, GpuUuid, ShareError, SlotView, largest_reserve, promised_bytes, sum_of_weights,
};

use crate::share;

/// Figures of the GPUs at one moment. Two of them make a report.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) gpus: BTreeMap<GpuUuid, GpuReading>,
    /// Why figures cannot be read.
    pub(crate) failures: Vec<String>,
}

/// Figures of one GPU.
#[derive(Debug)]
pub(crate) struct GpuReading {
    pub(crate) at: Instant,
    pub(crate) total: u64,
    pub(crate) reserve: u64,
    pub(crate) promised: u64,
    /// Sum of the weights of the VMs whose devices run.
    pub(crate) weights: u32,
    /// Whether a node process has the GPU, and how many signs of life node processes have given.
    pub(crate) has_node: bool,
    pub(crate) beats: u64,
    /// VMs by the numbers of their slots.
    pub(crate) vms: BTreeMap<usize, VmReading>,
}

/// Figures of one VM.
#[derive(Debug)]
pub(crate) struct VmReading {
    /// The slot, for what does not change.
    pub(crate) slot: SlotView,
    pub(crate) process: u64,
    /// Bytes that the VM has been promised.
    pub(crate) held: u64,
    /// The GPU's time that the VM has had as its device stored it, and when, on a clock of the device's own.
    pub(crate) gpu_time: Duration,
    pub(crate) stored: Duration,
    pub(crate) charged: Duration,
    pub(crate) waited: Duration,
}

impl Reading {
    /// Reads the GPUs that have VMs, from the directory that `given` names or the usual one. A GPU whose file
    /// cannot be read does not hide the others. Nothing is made and nobody is waited for.
    pub(crate) fn now(given: Option<&Path>) -> Self {
        let mut reading = Self::default();
        if let Err(error) = reading.add_all(given) {
            reading.failures.push(reason(error));
        }
        reading
    }

    fn add_all(&mut self, given: Option<&Path>) -> Result<(), ShareError> {
        let Some(gpus) = share::existing_gpus(given)? else { return Ok(()) };
        for uuid in gpus.all()? {
            match gpus.existing_gpu(uuid).and_then(|gpu| GpuReading::now(&gpu)) {
                Ok(reading) if reading.vms.is_empty() => {}
                Ok(reading) => drop(self.gpus.insert(uuid, reading)),
                Err(error) => self.failures.push(reason(error)),
            }
        }
        Ok(())
    }

    /// Returns whether no GPU has a VM.
    pub(crate) fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }
}

fn reason(error: ShareError) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

impl GpuReading {
    fn now(gpu: &GpuShare) -> Result<Self, ShareError> {
        let holders = gpu.holders()?;
        let (reserve, weights) = (largest_reserve(&holders), sum_of_weights(&holders));
        let promised = promised_bytes(&holders);
        let vms = holders.into_iter().map(|slot| (slot.index(), VmReading::now(slot))).collect();
        Ok(Self {
            at: Instant::now(),
            total: gpu.memory_bytes(),
            reserve,
            promised,
            weights,
            has_node: gpu.has_node()?,
            beats: gpu.node_beats(),
            vms,
        })
    }
}

impl VmReading {
    fn now(slot: SlotView) -> Self {
        Self {
            process: slot.figure(Figure::Process),
            held: slot.held_bytes(),
            gpu_time: Duration::from_nanos(slot.figure(Figure::GpuTime)),
            stored: Duration::from_nanos(slot.figure(Figure::Stored)),
            charged: Duration::from_nanos(slot.charged_ns()),
            waited: Duration::from_nanos(slot.waited_ns()),
            slot,
        }
    }
}
