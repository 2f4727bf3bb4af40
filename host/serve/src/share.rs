//! The share of a GPU that `serve` promises its VM: a slot in the file that all devices of the GPU have
//! ([`vgpu_share`]).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use vgpu_device::{Gate, ShareSource};
use vgpu_executor_cuda::CONTEXT_BYTES;
use vgpu_share::{Claim, Figure, GpuMemory, GpuUuid, Gpus, ShareError, Slot};

use crate::context_cost::{GpuQuestion, PLAUSIBLE};
use crate::figures::{FigureThread, ReadFigures, ServedFigures, UncontendedTime};
use crate::guest_share::GuestShare;
use crate::turns::ArbiterClient;
use crate::values::Size;

/// Memory of a GPU that is promised to no VM by default: what cuBLAS, kernels that print and kernels with
/// large stacks take in contexts, beside what is charged for them.
pub(crate) const RESERVE: Size = Size(512 << 20);

/// Time for which a start waits while another device measures what a context costs.
const MEASURING_MOST: Duration = Duration::from_secs(70);

/// Time for which a start waits for workers of a device that has ended. A driver may take seconds to free
/// tens of GiB.
const LEAVING_MOST: Duration = Duration::from_secs(10);

/// Opens the directory of the GPUs' files: the given one, or that of all devices of this host.
pub(crate) fn gpus(given: Option<&Path>) -> Result<Gpus, ShareError> {
    given.map_or_else(Gpus::of_host, Gpus::open)
}

/// Returns the directory of the GPUs' files, if there is one, for a look.
pub(crate) fn existing_gpus(given: Option<&Path>) -> Result<Option<Gpus>, ShareError> {
    given.map_or_else(Gpus::existing_of_host, Gpus::existing)
}

/// What a VM has been promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promised {
    /// Bytes of memory, its contexts included.
    pub(crate) bytes: u64,
    /// Bytes that each context costs.
    pub(crate) context_bytes: u64,
}

/// A VM's slot, as a program leaves it to its successor.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedSlot {
    /// UUID of the GPU.
    gpu: [u8; 16],
    index: usize,
    /// The GPU's time that the VM has had while it was alone.
    alone: Duration,
}

/// The share that a VM is to have, and its slot once it has been claimed.
#[derive(Debug)]
pub(crate) struct VmShare {
    /// Name of the VM.
    name: String,
    /// Memory that the VM is promised, or `None` for all that is free.
    promise: Option<Size>,
    reserve: Size,
    /// Directory of the GPUs' files, or `None` for the usual one.
    folder: Option<PathBuf>,
    /// Share of the GPU's time relative to that of other VMs.
    weight: u32,
    /// The GPU's time that the VM has had while it was alone.
    alone: Arc<UncontendedTime>,
    /// The thread that follows the node process, which ends before the slot is free.
    turns: OnceLock<ArbiterClient>,
    slot: OnceLock<Slot>,
    /// What the guest is shown.
    guest: OnceLock<Arc<GuestShare>>,
}

impl VmShare {
    /// Makes the share of a VM, which has no slot yet. `folder` is the directory of the GPUs' files, if it is
    /// not the usual one.
    pub(crate) fn new(
        name: String,
        promise: Option<Size>,
        reserve: Option<Size>,
        folder: Option<PathBuf>,
        weight: u32,
    ) -> Self {
        let (alone, turns, slot, guest) = (Arc::default(), OnceLock::new(), OnceLock::new(), OnceLock::new());
        let reserve = reserve.unwrap_or(RESERVE);
        Self { name, promise, reserve, folder, weight, alone, turns, slot, guest }
    }

    /// Takes a slot of the GPU. What a context costs is taken from devices that run, or else measured: after
    /// the claim, so that a start that is refused makes no context, and the contexts of the measurement are
    /// part of the promise.
    pub(crate) fn claim(&self, gpu: &GpuQuestion) -> Result<Promised> {
        let found = gpu.find()?;
        let gpus = gpus(self.folder.as_deref())?;
        if self.folder.is_none() && !rustix::process::geteuid().is_root() {
            let path = gpus.path().display();
            tracing::warn!(
                "the GPU's memory is shared only with devices of this user, who know of each other in {path}"
            );
        }
        let share = gpus.gpu(GpuUuid(found.uuid))?;
        // Whoever starts meanwhile waits for the figure.
        let turn = share.lock_measurement(MEASURING_MOST)?;
        let holders = share.holders()?;
        let known = holders.iter().map(|holder| holder.figure(Figure::ContextBytes));
        let known = known.filter(|bytes| PLAUSIBLE.contains(bytes)).max();
        let known = known.or_else(|| turn.is_none().then_some(CONTEXT_BYTES));
        let turn = turn.filter(|_| known.is_none());
        let promise = self.promise.map(|promise| promise.0);
        // The VM has no session yet, so that all of its promise is there for the contexts.
        let lacking = promise.map_or(0, |bytes| (2 * CONTEXT_BYTES).saturating_sub(bytes));
        let slot = share.claim(&Claim {
            name: &self.name,
            promised: promise,
            overhead: if turn.is_some() { lacking } else { 0 },
            context_bytes: known.unwrap_or(0),
            weight: self.weight.into(),
            memory: GpuMemory { bytes: found.total_bytes, reserve: self.reserve.0 },
            patience: LEAVING_MOST,
        })?;
        let context_bytes = known.map_or_else(|| gpu.measure(), Ok)?;
        slot.set_context_bytes(context_bytes)?;
        drop(turn);
        let promised = slot.figure(Figure::Promised).load(Ordering::Relaxed);
        // A process has one device with a share.
        let _ = self.slot.set(slot);
        tracing::info!(gpu = %share.uuid(), promised, context_bytes, "memory promised");
        Ok(Promised { bytes: promised, context_bytes })
    }

    /// Returns the slot with its lock, for [`VmShare::restore`] in the program that takes over.
    pub(crate) fn save(&self) -> io::Result<Option<(SavedSlot, OwnedFd)>> {
        let Some(slot) = self.slot.get() else { return Ok(None) };
        let seen = slot.seen();
        let saved = SavedSlot { gpu: seen.gpu().uuid().0, index: seen.index(), alone: self.alone.sum() };
        Ok(Some((saved, slot.lock().try_clone_to_owned()?)))
    }

    /// Takes over the slot of the program that this process was before.
    pub(crate) fn restore(&self, saved: &SavedSlot, lock: OwnedFd) -> Result<()> {
        let gpu = gpus(self.folder.as_deref())?.gpu(GpuUuid(saved.gpu))?;
        let slot = Slot::adopt(&gpu, saved.index, lock)?;
        slot.figure(Figure::Weight).store(self.weight.into(), Ordering::Release);
        self.alone.restore(saved.alone);
        // A process has one device with a share.
        let _ = self.slot.set(slot);
        Ok(())
    }

    /// Has a gate follow the node process, if a slot was taken.
    pub(crate) fn take_turns(&self, gate: &Arc<Gate>) -> Result<()> {
        if let Some(slot) = self.slot.get() {
            let turns = ArbiterClient::start(slot.seen(), gate, &self.alone, self.guest(slot))
                .context("start a thread for the node process's orders")?;
            // A process has one device with a share.
            let _ = self.turns.set(turns);
        }
        Ok(())
    }

    /// Returns what the guest is shown, if a slot was taken.
    pub(crate) fn source(&self) -> Option<Arc<dyn ShareSource>> {
        Some(Arc::clone(self.guest(self.slot.get()?)) as Arc<dyn ShareSource>)
    }

    fn guest(&self, slot: &Slot) -> &Arc<GuestShare> {
        self.guest.get_or_init(|| Arc::new(GuestShare::new(slot.seen().clone())))
    }

    /// Stores the figures that `read` returns in the slot until the returned value is dropped.
    pub(crate) fn show(self: &Arc<Self>, read: ReadFigures) -> Result<FigureThread> {
        let share = Arc::clone(self);
        let store = move |figures: &ServedFigures, alone| {
            if let Some(slot) = share.slot.get() {
                figures.store(slot, alone);
                share.guest(slot).compare();
            }
        };
        FigureThread::start(&self.alone, read, store).context("start a thread for the device's figures")
    }

    /// Returns a lock of the slot for a worker to keep.
    pub(crate) fn worker_lock(&self) -> io::Result<OwnedFd> {
        let slot = self.slot.get().ok_or_else(|| io::Error::other("no slot has been claimed"))?;
        slot.worker_lock().map_err(io::Error::other)
    }
}
