//! The share of a GPU that `serve` promises its VM: a slot in the file that all devices of the GPU have
//! ([`vgpu_share`]).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use vgpu_device::Gate;
use vgpu_share::{Claim, Figure, GpuMemory, GpuUuid, Gpus, ShareError, Slot};

use crate::context_cost::MeasuredGpu;
use crate::turns::Turns;
use crate::values::Size;

/// Memory of a GPU that is promised to no VM by default: what cuBLAS, kernels that print and kernels with large
/// stacks take in contexts, beside what is charged for them.
const RESERVE: Size = Size(512 << 20);

/// Opens the directory of the GPUs' files: the given one, or that of all devices of this host.
pub(crate) fn gpus(given: Option<&Path>) -> Result<Gpus, ShareError> {
    given.map_or_else(Gpus::of_host, Gpus::open)
}

/// The share that a VM is to have, and its slot once it has been claimed.
#[derive(Debug)]
pub(crate) struct Share {
    /// Name of the VM.
    name: String,
    /// Memory that the VM is promised, or `None` for all that is free.
    promise: Option<Size>,
    reserve: Size,
    /// Directory of the GPUs' files, or `None` for the usual one.
    folder: Option<PathBuf>,
    /// Share of the GPU's time relative to that of other VMs.
    weight: u32,
    /// The thread that follows the node process, which ends before the slot is free.
    turns: OnceLock<Turns>,
    slot: OnceLock<Slot>,
}

impl Share {
    /// Makes the share of a VM, which has no slot yet. `folder` is the directory of the GPUs' files, if it is not
    /// the usual one.
    pub(crate) fn new(
        name: String,
        promise: Option<Size>,
        reserve: Option<Size>,
        folder: Option<PathBuf>,
        weight: u32,
    ) -> Self {
        let (turns, slot) = (OnceLock::new(), OnceLock::new());
        Self { name, promise, reserve: reserve.unwrap_or(RESERVE), folder, weight, turns, slot }
    }

    /// Takes a slot of the GPU. Returns the bytes of memory that the VM is promised.
    pub(crate) fn claim(&self, gpu: &MeasuredGpu) -> Result<u64> {
        let share = gpus(self.folder.as_deref())?.gpu(GpuUuid(gpu.uuid))?;
        let claim = Claim {
            name: &self.name,
            promised: self.promise.map(|promise| promise.0),
            overhead: 0,
            context_bytes: gpu.context_bytes,
            weight: self.weight.into(),
            memory: GpuMemory { bytes: gpu.total_bytes, reserve: self.reserve.0 },
        };
        let slot = share.claim(&claim)?;
        let promised = slot.figure(Figure::Promised).load(Ordering::Relaxed);
        // A process has one device with a share.
        let _ = self.slot.set(slot);
        tracing::info!(gpu = %share.uuid(), promised, context_bytes = gpu.context_bytes, "memory promised");
        Ok(promised)
    }

    /// Has a gate follow the node process, if a slot was taken.
    pub(crate) fn take_turns(&self, gate: &Arc<Gate>) -> Result<()> {
        if let Some(slot) = self.slot.get() {
            let turns =
                Turns::start(slot.seen(), gate).context("start a thread for the node process's orders")?;
            // A process has one device with a share.
            let _ = self.turns.set(turns);
        }
        Ok(())
    }

    /// Returns the lock that each worker keeps.
    pub(crate) fn workers_lock(&self) -> Result<Option<Arc<OwnedFd>>> {
        let duplicate = |slot: &Slot| slot.workers_lock().try_clone_to_owned().map(Arc::new);
        self.slot.get().map(duplicate).transpose().context("duplicate the lock of the GPU's slot")
    }
}
