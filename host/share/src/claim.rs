//! The claim of a slot, by which memory is promised to a VM.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Promise, ShareError};
use crate::gpu::GpuShare;
use crate::layout::{Figure, NAME_BYTES, SLOTS};
use crate::slot::{Slot, SlotView, is_shown, largest_reserve};

/// Pause between two tries of a claim that waits for workers to end.
const PAUSE: Duration = Duration::from_millis(50);

/// The memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// Bytes that the GPU has.
    pub bytes: u64,
    /// Bytes that are promised to nobody, for the driver and for programs that use the GPU without a VM.
    pub reserve: u64,
}

/// What a device asks for.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Name of the VM. No two VMs of a GPU have the same.
    pub name: &'a str,
    /// Bytes of memory that the VM is promised, its contexts included. `None` asks for all that is free.
    pub promised: Option<u64>,
    /// Bytes that the device needs beside its promise.
    pub overhead: u64,
    /// Bytes that one context costs, or 0 if that is not known yet ([`Slot::set_context_bytes`]).
    pub context_bytes: u64,
    /// Share of the GPU's time relative to that of other VMs, from 1.
    pub weight: u64,
    /// The GPU's memory, as this process has found it.
    pub memory: GpuMemory,
    /// Time for which the claim waits for workers of ended devices.
    pub patience: Duration,
}

impl GpuShare {
    /// Takes a slot for a VM and promises it memory, which is refused if the GPU does not have it beside what
    /// others have been promised. A device that has taken a slot keeps its promise whatever is claimed later.
    /// What only workers of an ended device hold is waited for, because workers end by themselves.
    ///
    /// # Errors
    /// The memory is promised to others, the name is taken, or the file cannot be used.
    pub fn claim(&self, claim: &Claim<'_>) -> Result<Slot, ShareError> {
        let name = claim.name;
        if name.is_empty() || name.len() > NAME_BYTES || !name.chars().all(is_shown) {
            return Err(ShareError::Unnameable(name.to_owned()));
        }
        let end = Instant::now() + claim.patience;
        loop {
            match self.exclusively(|| self.take(claim)) {
                Err(error) if error.may_pass() && Instant::now() < end => std::thread::sleep(PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// Checks whether [`GpuShare::claim`] would be admitted now, and takes nothing. A device that has the
    /// claim's name already is left out: it is the one that is asked about.
    ///
    /// # Errors
    /// Those of a claim.
    pub fn judge(&self, claim: &Claim<'_>) -> Result<(), ShareError> {
        let mut holders = self.holders()?;
        holders.retain(|holder| holder.name() != claim.name);
        self.admit(claim, &holders).map(drop)
    }

    /// Takes the first free slot, if the claim is admitted.
    fn take(&self, claim: &Claim<'_>) -> Result<Slot, ShareError> {
        let promised = self.admit(claim, &self.holders()?)?;
        self.set_memory(claim.memory.bytes);
        for index in 0..SLOTS {
            let Some(slot) = Slot::take(self, index, claim.name)? else { continue };
            for (figure, value) in [
                (Figure::Process, u64::from(std::process::id())),
                (Figure::Promised, promised),
                (Figure::Overhead, claim.overhead),
                (Figure::Reserve, claim.memory.reserve),
                (Figure::ContextBytes, claim.context_bytes),
                (Figure::Weight, claim.weight),
            ] {
                slot.figure(figure).store(value, Ordering::Release);
            }
            return Ok(slot);
        }
        Err(ShareError::Full(self.uuid()))
    }

    /// Checks a claim against the slots that are taken, and returns the bytes that it may promise.
    fn admit(&self, claim: &Claim<'_>, holders: &[SlotView]) -> Result<u64, ShareError> {
        let gpu = self.uuid();
        let GpuMemory { bytes, reserve } = claim.memory;
        if let Some(holder) = holders.iter().find(|holder| !holder.is_recorded()) {
            return Err(self.unrecorded(holder.index()));
        }
        let known = self.memory_bytes();
        if !holders.is_empty() && known != bytes {
            return Err(ShareError::Disagree { gpu, found: bytes, known });
        }
        if let Some(other) = holders.iter().find(|other| other.name() == claim.name) {
            let (name, process) = (claim.name.to_owned(), other.figure(Figure::Process));
            let lives = other.device_lives();
            return Err(if lives {
                ShareError::Name { gpu, name, process }
            } else {
                ShareError::Left { gpu, name }
            });
        }
        if let Some(promised) = claim.promised.filter(|promised| *promised < claim.context_bytes) {
            return Err(ShareError::TooLittle { gpu, promised, context_bytes: claim.context_bytes });
        }
        // The promises of others were made with their reserve.
        let reserve = largest_reserve(holders).max(reserve);
        let ending = holders.iter().any(|other| !other.device_lives());
        let held = |other: &SlotView| {
            let name = other.name();
            let name = if other.device_lives() { name } else { format!("the ended device of {name}") };
            (name, other.held_bytes())
        };
        // A device without a context can do nothing.
        let least = claim.promised.unwrap_or(claim.context_bytes.max(1));
        let asked = least.saturating_add(claim.overhead);
        let has = bytes.saturating_sub(reserve);
        let promise = Promise { gpu, asked, has, holders: holders.iter().map(held).collect(), ending };
        let free = promise.free();
        if asked > free {
            return Err(promise.into());
        }
        Ok(claim.promised.unwrap_or(free - claim.overhead))
    }
}
