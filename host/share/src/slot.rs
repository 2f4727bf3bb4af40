//! A slot that this process has taken, and slots as everybody sees them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vgpu_paths::Access;

use crate::error::ShareError;
use crate::gpu::GpuShare;
use crate::layout::{ARBITER, ARBITER_WORDS, Figure, NAME, NAME_BYTES, PAGE, SLOTS, WEIGHT_MOST};
use crate::lock::{self, Kind, LockRange};
use crate::uuid::GpuUuid;

/// A slot of a GPU as everybody sees it, who may be mistaken: its device may have ended meanwhile.
#[derive(Clone, Debug)]
pub struct SlotView {
    gpu: GpuShare,
    index: usize,
    /// Whether the device lived when the slot was looked at. Otherwise its workers hold the slot.
    device_lives: bool,
}

impl GpuShare {
    /// Returns the slots that are taken now. Each is looked at once, and may be free by the time the caller
    /// looks at it.
    ///
    /// # Errors
    /// A lock file cannot be opened.
    pub fn holders(&self) -> Result<Vec<SlotView>, ShareError> {
        let mut holders = Vec::new();
        for index in 0..SLOTS {
            if let Some(part) = self.locked_part(index)? {
                let device_lives = matches!(part, LockRange::Device);
                holders.push(SlotView { gpu: self.clone(), index, device_lives });
            }
        }
        Ok(holders)
    }
}

/// Returns the bytes that these devices keep from all promises: the largest reserve.
#[must_use]
pub fn largest_reserve(holders: &[SlotView]) -> u64 {
    holders.iter().map(SlotView::reserve_bytes).max().unwrap_or(0)
}

/// Returns the bytes of the GPU's memory that these devices hold.
#[must_use]
pub fn promised_bytes(holders: &[SlotView]) -> u64 {
    holders.iter().fold(0, |sum, holder| sum.saturating_add(holder.held_bytes()))
}

/// Returns the sum of the weights of these devices, without those of which only workers are left.
#[must_use]
pub fn sum_of_weights(holders: &[SlotView]) -> u32 {
    holders.iter().filter(|holder| holder.device_lives).map(SlotView::weight).sum()
}

impl SlotView {
    /// Returns the GPU.
    #[must_use]
    pub const fn gpu(&self) -> &GpuShare {
        &self.gpu
    }

    /// Returns the number of the slot, below [`SLOTS`](crate::SLOTS).
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns whether the slot is still taken, by this device or by a later one.
    ///
    /// # Errors
    /// The lock file cannot be looked at.
    pub fn is_taken(&self) -> Result<bool, ShareError> {
        Ok(self.gpu.locked_part(self.index)?.is_some())
    }

    /// Returns whether the slot's device lived when the slot was looked at. Otherwise workers of it hold the
    /// slot, which have not ended yet.
    #[must_use]
    pub const fn device_lives(&self) -> bool {
        self.device_lives
    }

    /// Returns a figure as the device states it. What it can be true of is for the caller to judge.
    #[must_use]
    pub fn figure(&self, figure: Figure) -> u64 {
        self.word(figure).load(Ordering::Acquire)
    }

    /// Returns the GPU's time that the VM has had, in nanoseconds. A device adds it up a few times a second;
    /// one that says less than the node process has charged is not believed.
    #[must_use]
    pub fn gpu_time_ns(&self) -> u64 {
        self.figure(Figure::GpuTime).max(self.charged_ns())
    }

    /// Returns the bytes of the GPU's memory that the device holds by its promise, its overhead included. It
    /// is at most what the GPU has.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let held = self.figure(Figure::Promised).saturating_add(self.figure(Figure::Overhead));
        held.min(self.gpu.memory_bytes())
    }

    /// Returns the bytes that the device keeps from all promises. It is at most what the GPU has.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        self.figure(Figure::Reserve).min(self.gpu.memory_bytes())
    }

    /// Returns the weight of the VM's share of the GPU's time. It is 1 to 1000, whatever the device states.
    #[must_use]
    pub fn weight(&self) -> u32 {
        u32::try_from(self.figure(Figure::Weight)).unwrap_or(u32::MAX).clamp(1, WEIGHT_MOST)
    }

    /// Returns whether the slot says whose it is. Under a claim's lock every slot that is taken does, unless
    /// the GPU's file was replaced while the device ran.
    pub(crate) fn is_recorded(&self) -> bool {
        self.figure(Figure::Process) != 0 && !self.name().is_empty()
    }

    /// Returns the name of the VM. Characters that a table or a label cannot show are replaced.
    #[must_use]
    pub fn name(&self) -> String {
        let words = (0..NAME_BYTES / 8).map(|word| self.at(NAME + 8 * word).load(Ordering::Acquire));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take_while(|byte| *byte != 0).collect();
        let text = String::from_utf8_lossy(&bytes);
        text.chars().map(|char| if is_shown(char) { char } else { '\u{fffd}' }).collect()
    }

    /// Returns the UUID that the guest sees. All its digits are 0 before the device serves.
    #[must_use]
    pub fn device_uuid(&self) -> GpuUuid {
        GpuUuid::from_words([Figure::DeviceUuidLow, Figure::DeviceUuidHigh].map(|half| self.figure(half)))
    }

    /// Returns a 64-bit word of the arbiter, by a number below 128. All are 0 when the slot is taken.
    ///
    /// # Panics
    /// Panics if there is no word of this number.
    #[must_use]
    pub fn arbiter_word(&self, number: usize) -> &AtomicU64 {
        assert!(number < ARBITER_WORDS, "word {number} of the arbiter");
        self.at(ARBITER + 8 * number)
    }

    /// Returns the lower half of a word of the arbiter, which a futex can wait for.
    ///
    /// # Panics
    /// Panics if there is no word of this number.
    #[must_use]
    pub fn arbiter_half(&self, number: usize) -> &AtomicU32 {
        assert!(number < ARBITER_WORDS, "word {number} of the arbiter");
        self.gpu.u32_at(GpuShare::slot_offset(self.index) + ARBITER + 8 * number)
    }

    pub(crate) fn word(&self, figure: Figure) -> &AtomicU64 {
        self.at(figure as usize)
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        self.gpu.u64_at(GpuShare::slot_offset(self.index) + offset)
    }
}

/// Returns whether a name may contain the character.
pub(crate) fn is_shown(char: char) -> bool {
    !char.is_whitespace() && !char.is_control() && char != '\u{fffd}'
}

/// A slot that this process has taken. It is free when this value is dropped and every worker has ended that
/// got a [`Slot::worker_lock`].
#[derive(Debug)]
pub struct Slot {
    seen: SlotView,
    /// The device's own lock. No process gets it but one that this process becomes.
    lock: File,
}

impl Slot {
    /// Takes a slot if it is free. The caller claims exclusively.
    pub(crate) fn take(gpu: &GpuShare, index: usize, name: &str) -> Result<Option<Self>, ShareError> {
        let failed = |error| gpu.failed("lock a slot of", error);
        let own = gpu.open_lock(index, Access::ReadWrite)?;
        if !lock::set(&own, LockRange::All, Kind::Exclusive).map_err(failed)? {
            return Ok(None);
        }
        gpu.reserve_slot(index)?;
        let slot = SlotView { gpu: gpu.clone(), index, device_lives: true };
        for word in 0..PAGE / 8 {
            slot.at(8 * word).store(0, Ordering::Relaxed);
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        for (word, part) in bytes.as_chunks::<8>().0.iter().enumerate() {
            slot.at(NAME + 8 * word).store(u64::from_le_bytes(*part), Ordering::Release);
        }
        // The device's part stays locked.
        lock::set(&own, LockRange::Workers, Kind::None).map_err(failed)?;
        Ok(Some(Self { seen: slot, lock: own }))
    }

    /// Takes over the slot of an index that the program which this process was before has taken. `lock` is its
    /// [`Slot::lock`].
    ///
    /// # Errors
    /// The file is not that slot's lock, or holds no lock.
    pub fn adopt(gpu: &GpuShare, index: usize, lock: OwnedFd) -> Result<Self, ShareError> {
        let failed = |error| gpu.failed("take over a slot of", error);
        if index >= SLOTS {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let lock = File::from(lock);
        let (own, slots) = (lock.metadata(), gpu.open_lock(index, Access::Read)?);
        let (own, slots) = (own.map_err(failed)?, slots.metadata().map_err(failed)?);
        // Setting the lock that the open file has already succeeds, and nobody else can have taken it.
        let is_same = (own.dev(), own.ino()) == (slots.dev(), slots.ino());
        if !is_same || !lock::set(&lock, LockRange::Device, Kind::Exclusive).map_err(failed)? {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        Ok(Self { seen: SlotView { gpu: gpu.clone(), index, device_lives: true }, lock })
    }

    /// Returns the file whose lock is the device's, for [`Slot::adopt`].
    #[must_use]
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Records what a context costs, when it is known, and gives up the overhead that the claim asked for
    /// until then.
    ///
    /// # Errors
    /// The promise does not suffice for a context. The caller drops the slot.
    pub fn set_context_bytes(&self, bytes: u64) -> Result<(), ShareError> {
        let promised = self.figure(Figure::Promised).load(Ordering::Relaxed);
        if promised < bytes {
            return Err(ShareError::TooLittle { gpu: self.seen.gpu.uuid(), promised, context_bytes: bytes });
        }
        self.figure(Figure::ContextBytes).store(bytes, Ordering::Release);
        self.figure(Figure::Overhead).store(0, Ordering::Release);
        Ok(())
    }

    /// Records the UUID that the guest sees.
    pub fn set_device_uuid(&self, uuid: GpuUuid) {
        for (half, word) in [Figure::DeviceUuidLow, Figure::DeviceUuidHigh].into_iter().zip(uuid.words()) {
            self.figure(half).store(word, Ordering::Release);
        }
    }

    /// Returns the slot as everybody sees it.
    #[must_use]
    pub const fn seen(&self) -> &SlotView {
        &self.seen
    }

    /// Returns the word of a figure, which this device alone stores.
    #[must_use]
    pub fn figure(&self, figure: Figure) -> &AtomicU64 {
        self.seen.word(figure)
    }

    /// Returns a lock for one worker to keep until it has ended: an open file of its own, which is empty and
    /// can only be read. A worker that drops it gives up its own lock, and no other one.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn worker_lock(&self) -> Result<OwnedFd, ShareError> {
        let SlotView { gpu, index, .. } = &self.seen;
        let file = gpu.open_lock(*index, Access::Read)?;
        match lock::set(&file, LockRange::Workers, Kind::Shared) {
            Ok(true) => Ok(file.into()),
            // Nobody else gets this part while the device has its own.
            Ok(false) => Err(gpu.failed("lock a slot of", io::ErrorKind::WouldBlock.into())),
            Err(error) => Err(gpu.failed("lock a slot of", error)),
        }
    }
}
