//! The claim of a slot, by which memory is promised to a VM.

use std::sync::atomic::Ordering;

use crate::error::{Promise, ShareError};
use crate::gpu::GpuShare;
use crate::layout::{Figure, NAME_BYTES, SLOTS};
use crate::slot::{Holder, Slot, is_shown};

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
    /// Bytes that one context costs.
    pub context_bytes: u64,
    /// Share of the GPU's time relative to that of other VMs, from 1.
    pub weight: u64,
    /// The GPU's memory, as this process has found it.
    pub memory: GpuMemory,
}

impl GpuShare {
    /// Takes a slot for a VM and promises it memory, which is refused if the GPU does not have it beside what
    /// others have been promised. A device that has taken a slot keeps its promise whatever is claimed later.
    ///
    /// # Errors
    /// The memory is promised to others, the name is taken, or the file cannot be used.
    pub fn claim(&self, claim: &Claim<'_>) -> Result<Slot, ShareError> {
        let name = claim.name;
        if name.is_empty() || name.len() > NAME_BYTES || !name.chars().all(is_shown) {
            return Err(ShareError::Unnameable(name.to_owned()));
        }
        self.exclusively(|| {
            let holders = self.holders()?;
            let promised = self.admit(claim, &holders)?;
            for index in 0..SLOTS {
                let Some(slot) = Slot::take(self, index, name)? else { continue };
                for (figure, value) in [
                    (Figure::Process, u64::from(std::process::id())),
                    (Figure::Promised, promised),
                    (Figure::Overhead, claim.overhead),
                    (Figure::ContextBytes, claim.context_bytes),
                    (Figure::Weight, claim.weight),
                ] {
                    slot.figure(figure).store(value, Ordering::Release);
                }
                return Ok(slot);
            }
            Err(ShareError::Full(self.uuid()))
        })
    }

    /// Checks a claim against the slots that are taken, and returns the bytes that it may promise.
    fn admit(&self, claim: &Claim<'_>, holders: &[Holder]) -> Result<u64, ShareError> {
        let gpu = self.uuid();
        let GpuMemory { bytes, mut reserve } = claim.memory;
        if !holders.is_empty() {
            let known = self.memory_bytes();
            if known != bytes {
                return Err(ShareError::Disagree { gpu, found: bytes, known });
            }
            // The promises of others were made with their reserve.
            reserve = reserve.max(self.reserve_bytes());
        }
        if let Some(other) = holders.iter().find(|other| other.name() == claim.name) {
            let process = other.figure(Figure::Process);
            return Err(ShareError::Name { gpu, name: claim.name.to_owned(), process });
        }
        let holders = holders.iter().map(|other| (other.name(), other.held_bytes())).collect();
        // A device without a context can do nothing.
        let least = claim.promised.unwrap_or(claim.context_bytes.max(1));
        let asked = least.saturating_add(claim.overhead);
        let promise = Promise { gpu, asked, has: bytes.saturating_sub(reserve), holders };
        let free = promise.free();
        if asked > free {
            return Err(promise.into());
        }
        self.set_memory(bytes, reserve);
        Ok(claim.promised.unwrap_or(free - claim.overhead))
    }
}
