//! Objects behind handles. A handle is a number that names a slot and the slot's generation, so a stale,
//! foreign or invented handle is recognised without dereferencing it.
//!
//! Slots are never freed, only reused: a call that races with the destruction of its object works on a dead
//! object or on another one, never on freed memory. So every field of an object is an atomic or behind a
//! lock, and finding an object takes a few loads and no lock.
//!
//! ```text
//!   bit 46      40 39         24 23         4 3    0
//!      │   kind   │ generation  │   index    │ 0000 │      canonical, aligned, never a stream's 1 or 2
//! ```

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::sync::Mutex;

/// Number of slots in the first chunk. Each chunk has twice as many as the one before. The number is small
/// because a process that only lists devices needs one context and one pool, and the kernel takes two
/// microseconds to provide a page of memory.
const SLOTS: usize = 4;
/// Number of chunks: as many as the bits of the index can name.
const CHUNKS: usize = 18;
const INDEX_SHIFT: u32 = 4;
const GENERATION_SHIFT: u32 = 24;
const KIND_SHIFT: u32 = 40;
/// Mask of the index once it is shifted to bit 0: 20 bits.
const INDEX_MASK: usize = (1 << (GENERATION_SHIFT - INDEX_SHIFT)) - 1;
const GENERATION_MASK: u32 = 0xffff;
/// Bit of [`Slot::state`] that is set while the object lives. The generation is in the bits above it.
const LIVE: u32 = 1;

struct Slot<T> {
    state: AtomicU32,
    object: T,
}

/// Returns the chunk of a slot, and its offset there. Chunk k starts at slot SLOTS * (2^k - 1).
const fn place(index: usize) -> (usize, usize) {
    let chunk = (index / SLOTS + 1).ilog2() as usize;
    (chunk, index - SLOTS * ((1 << chunk) - 1))
}

/// A table of all objects of one kind, which finds them by their handles.
pub struct Slab<T: 'static> {
    kind: usize,
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    /// Number of slots that have ever been used.
    used: AtomicUsize,
    /// Slots that can be reused. The lock is held while a slot is taken.
    spare: Mutex<Vec<usize>>,
}

impl<T: Default + Sync + 'static> Slab<T> {
    /// Creates a slab without objects. `kind`, 1 to 127, is part of its handles.
    pub const fn new(kind: u8) -> Self {
        assert!(kind != 0 && kind < 128);
        Self {
            kind: kind as usize,
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            used: AtomicUsize::new(0),
            spare: Mutex::new(Vec::new()),
        }
    }

    /// Returns whether the handle is one of this slab's, alive or not.
    pub fn owns(&self, handle: usize) -> bool {
        handle >> KIND_SHIFT == self.kind
    }

    fn slot(&self, index: usize) -> Option<&'static Slot<T>> {
        let (chunk, offset) = place(index);
        let chunk = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a chunk's pointer, once stored by `take`, points to as many slots as `place` has offsets.
        let slot = unsafe { chunk.add(offset) };
        // SAFETY: slots are never freed, and shared by reference alone.
        Some(unsafe { &*slot })
    }

    /// Returns the live object of a handle.
    pub fn get(&self, handle: usize) -> Option<&'static T> {
        if !self.owns(handle) || handle & ((1 << INDEX_SHIFT) - 1) != 0 {
            return None;
        }
        let slot = self.slot((handle >> INDEX_SHIFT) & INDEX_MASK)?;
        let generation = (handle >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
        (slot.state.load(Ordering::Acquire) == (generation << 1 | LIVE)).then_some(&slot.object)
    }

    /// Takes a slot for a new object. `prepare` writes the object's fields (a reused slot has those of its
    /// predecessor) before the handle becomes valid. Returns `None` if a million objects are alive.
    pub fn insert(&self, prepare: impl FnOnce(usize, &'static T)) -> Option<(usize, &'static T)> {
        let index = self.take_free()?;
        let slot = self.slot(index)?;
        let generation = (slot.state.load(Ordering::Relaxed) >> 1) & GENERATION_MASK;
        let handle =
            self.kind << KIND_SHIFT | (generation as usize) << GENERATION_SHIFT | index << INDEX_SHIFT;
        prepare(handle, &slot.object);
        slot.state.store(generation << 1 | LIVE, Ordering::Release);
        Some((handle, &slot.object))
    }

    fn take_free(&self) -> Option<usize> {
        let mut spare = self.spare.lock();
        if let Some(index) = spare.pop() {
            return Some(index);
        }
        let index = self.used.load(Ordering::Relaxed);
        let (chunk, _) = place(index);
        let first = self.chunks.get(chunk)?;
        if first.load(Ordering::Relaxed).is_null() {
            let slots: Vec<Slot<T>> = (0..SLOTS << chunk)
                .map(|_| Slot { state: AtomicU32::new(0), object: T::default() })
                .collect();
            first.store(slots.leak().as_mut_ptr(), Ordering::Release);
        }
        self.used.store(index + 1, Ordering::Release);
        Some(index)
    }

    /// Invalidates the handle. Of several callers one gets the object and cleans it up in `finish`; after
    /// that the slot can be reused.
    pub fn remove<R>(&self, handle: usize, finish: impl FnOnce(&'static T) -> R) -> Option<R> {
        let object = self.get(handle)?;
        let index = (handle >> INDEX_SHIFT) & INDEX_MASK;
        let slot = self.slot(index)?;
        let generation = (handle >> GENERATION_SHIFT) as u32 & GENERATION_MASK;
        let next = (generation + 1) & GENERATION_MASK;
        slot.state
            .compare_exchange(generation << 1 | LIVE, next << 1, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        let result = finish(object);
        self.spare.lock().push(index);
        Some(result)
    }

    /// Returns the live objects with their handles. Objects that come or go during the iteration may be
    /// missed.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &'static T)> + '_ {
        (0..self.used.load(Ordering::Acquire)).filter_map(|index| {
            let slot = self.slot(index)?;
            let state = slot.state.load(Ordering::Acquire);
            let generation = (state >> 1) as usize;
            (state & LIVE != 0).then_some((
                self.kind << KIND_SHIFT | generation << GENERATION_SHIFT | index << INDEX_SHIFT,
                &slot.object,
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..=INDEX_MASK - SLOTS {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == SLOTS << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(expected, (CHUNKS, 0), "the last chunk ends where the index's bits do");
    }

    #[test]
    fn handles_die_with_their_objects() {
        static SLAB: Slab<AtomicU64> = Slab::new(3);
        let (first, object) = SLAB.insert(|_, o| o.store(7, Ordering::Relaxed)).unwrap();
        assert_eq!(object.load(Ordering::Relaxed), 7);
        assert!(SLAB.get(first).is_some());
        assert_eq!(SLAB.remove(first, |o| o.load(Ordering::Relaxed)), Some(7));
        assert!(SLAB.get(first).is_none());
        assert!(SLAB.remove(first, |_| ()).is_none());
        let (second, _) = SLAB.insert(|_, _| ()).unwrap();
        assert_ne!(first, second, "the slot is used again, the handle is not");
        assert!(SLAB.get(first).is_none());
        assert!(SLAB.get(second).is_some());
    }

    #[test]
    fn foreign_numbers_are_no_handles() {
        static SLAB: Slab<AtomicU64> = Slab::new(5);
        static OTHER: Slab<AtomicU64> = Slab::new(6);
        let (handle, _) = SLAB.insert(|_, _| ()).unwrap();
        let (other, _) = OTHER.insert(|_, _| ()).unwrap();
        for wrong in [0, 1, 2, handle + 1, handle + 16, handle | 1 << 63, other, usize::MAX, 0x7fff_1234_5678]
        {
            assert!(SLAB.get(wrong).is_none(), "{wrong:#x}");
        }
        assert!(SLAB.owns(handle) && !SLAB.owns(other));
        assert_eq!(handle & 15, 0);
        assert!(handle >> 47 == 0, "a canonical address of user space");
    }

    #[test]
    fn threads_get_distinct_handles() {
        static SLAB: Slab<AtomicU64> = Slab::new(7);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(|| {
                    let mut mine = Vec::new();
                    for round in 0..500_u64 {
                        let (handle, object) =
                            SLAB.insert(|h, o| o.store(h as u64 ^ round, Ordering::Relaxed)).unwrap();
                        assert_eq!(object.load(Ordering::Relaxed), handle as u64 ^ round);
                        if round % 3 == 0 {
                            assert!(SLAB.remove(handle, |_| ()).is_some());
                        } else {
                            mine.push(handle);
                        }
                    }
                    mine
                })
            })
            .collect();
        let all: Vec<usize> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let set: HashSet<usize> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len());
        let live: HashSet<usize> = SLAB.iter().map(|(handle, _)| handle).collect();
        assert_eq!(live, set);
    }
}
