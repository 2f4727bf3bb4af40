//! Memory that machine code addresses while it runs: a [`Context`], in addition to the frame of its warp.

use std::mem::offset_of;

use vgpu_arena::{LANES, View, Window};
use zerocopy::FromZeros;

use super::float_mode::FloatMode;
use super::frame::Frame;
use super::memory::{LocalMemory, SharedMemory};
use super::range_cache::RangeCache;
use super::split::{FIRST_STAGE, WarpSplit};
use super::warp::Warp;

/// Maximum number of memory accesses, and of vectors that lanes exchange, within one superblock.
pub(crate) const PLACES: usize = 16;

/// Number of address-range caches. The warps of a block share them by their indices, because the addresses of
/// neighbouring warps differ.
const RANGE_CACHES: usize = 4;

/// Value of an instruction index for "no barrier".
pub(crate) const NO_BARRIER: u32 = u32::MAX;

/// Number of AVX-512 vector registers.
const REGISTERS: usize = 32;

/// Maximum number of coalesced checks, and of sums of scalars in addresses, within one superblock.
pub(crate) const SUMS: usize = 64;

/// Aligns arrays that are loaded and stored as whole vectors to cache lines.
#[repr(C, align(64))]
#[derive(Debug, FromZeros)]
struct Lines<T>(T);

/// State of machine code, which addresses the fields by the constants below.
#[repr(C, align(64))]
#[derive(Debug, FromZeros)]
pub(crate) struct Context {
    // The fields that code accesses most are near the beginning, where its instructions have short
    // displacements. Fields that it writes lie apart: a load of several fields at once would stall on the
    // stores.
    mask: u32,
    shared_bytes: u32,
    alive: u32,
    /// Size of each lane's local memory in bytes.
    local_bytes: u32,
    lowest: u32,
    /// Stage of the warps that the scheduler runs in this sweep.
    stage: u32,
    /// Barrier instruction at which warps have arrived in this sweep, or [`NO_BARRIER`].
    arrival: u32,
    fuel: i64,
    /// Masks of the pending lanes by block; the next field is the bit set of the blocks at which lanes are
    /// pending.
    pending: *mut u32,
    occupied: *mut u64,
    /// Warp that the scheduler runs. Null while a single warp runs without the scheduler.
    split: *mut WarpSplit,
    /// Offset in bytes of the code of each block, or 0 if the interpreter executes the block.
    targets: *const u32,
    /// Offset in bytes of the code of each instruction, or 0 if there is none.
    entries: *const u32,
    /// Number of words in `occupied`.
    words: u64,
    /// Index of the first instruction of each block.
    blocks: *const u32,
    /// Address of the first warp that the scheduler runs; the next field is the address after the last one.
    splits: *mut WarpSplit,
    splits_end: *mut WarpSplit,
    frame: *mut u8,
    /// Host address that corresponds to device address 0.
    zero: *mut u8,
    windows: *mut Window,
    shared: *mut u32,
    /// Rows of the warp's local memory.
    local: *mut u32,
    /// Address-range cache of the warp, one of `range_caches`.
    range_cache: *mut RangeCache,
    /// Byte offset, in an array of 32-bit lanes, of the first group of eight with an active lane; the next
    /// field is that of the end of the last such group.
    first: u64,
    end: u64,
    /// All ones in the active lanes, and 0 in the others.
    masks: Lines<[u32; LANES]>,
    /// Mask with the single bit of each lane.
    bits: [u32; LANES],
    /// Byte offset of each lane in a row of local memory.
    columns: [u32; LANES],
    /// Values of the lanes that are about to be stored to memory, up to four elements for each lane.
    elements: Lines<[[u32; LANES]; 4]>,
    /// Host address of the accessed memory, for each access. The fields below hold its first address, the
    /// last offset in each lane, and the offsets of the lanes or the vector that lanes exchange.
    pointers: [*mut u8; SUMS],
    /// Sums of scalars that are added to address vectors.
    sums: [u64; SUMS],
    bases: [[u64; 4]; PLACES],
    lasts: [[u32; 8]; PLACES],
    offsets: Lines<[[u32; LANES]; PLACES]>,
    /// Contents of the vector registers after a side exit of AVX-512 code.
    registers: Lines<[[u32; 16]; REGISTERS]>,
    /// Whether `masks` is out of date, because code has run that does not use it.
    stale: bool,
    /// Floating-point mode of the thread. Machine code does not access it.
    pub(crate) mode: FloatMode,
    /// Address-range caches of the warps, which use them in turn.
    range_caches: [RangeCache; RANGE_CACHES],
}

macro_rules! offsets {
    ($($name:ident: $field:ident;)*) => { $(
        pub(crate) const $name: i32 = offset_of!(Context, $field) as i32;
    )* };
}

impl Context {
    offsets! {
        ENTRIES: entries; SPLITS: splits; SPLIT: split; SPLITS_END: splits_end; STAGE: stage;
        ARRIVAL: arrival;
        FRAME: frame; ZERO: zero; WINDOWS: windows; SHARED: shared; LOCAL: local; PENDING: pending;
        OCCUPIED: occupied; WORDS: words; TARGETS: targets; BLOCKS: blocks; FUEL: fuel;
        MASK: mask;
        ALIVE: alive; LOWEST: lowest; SHARED_BYTES: shared_bytes; LOCAL_BYTES: local_bytes;
        FIRST: first; END: end; MASKS: masks; BITS: bits; COLUMNS: columns; ELEMENTS: elements;
        POINTERS: pointers;
        RANGE_CACHE: range_cache; SUMS: sums; BASES: bases; LASTS: lasts; OFFSETS: offsets;
        REGISTERS: registers;
    }

    /// Returns the contents of a vector register after a side exit.
    pub(crate) fn register(&self, number: u8) -> &[u32; 16] {
        &self.registers.0[usize::from(number) % REGISTERS]
    }

    /// Returns a context for a thread on which nothing has run yet.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            arrival: NO_BARRIER,
            bits: std::array::from_fn(|lane| 1 << lane),
            columns: std::array::from_fn(|lane| 4 * lane as u32),
            stale: true,
            ..Self::new_zeroed()
        })
    }

    /// Prepares for the run of a warp. `masks` tells that the code reads the lane masks from memory.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        warp: &mut Warp,
        view: &View,
        windows: &mut [Window],
        (shared, local): (&mut SharedMemory, &mut [LocalMemory]),
        (targets, blocks): (&[u32], &[u32]),
        masks: bool,
    ) {
        let Warp { frame, mask, index, alive, fuel, lowest, pending, occupied, .. } = warp;
        self.pending = pending.as_mut_ptr();
        self.range_cache = &raw mut self.range_caches[*index as usize % RANGE_CACHES];
        self.occupied = occupied.as_mut_ptr();
        self.words = occupied.len() as u64;
        (self.targets, self.blocks) = (targets.as_ptr(), blocks.as_ptr());
        self.frame = Frame::base(frame);
        self.zero = view.zero();
        self.windows = windows.as_mut_ptr();
        self.shared = shared.words_mut().as_mut_ptr();
        (self.fuel, self.alive, self.lowest) = (*fuel, *alive, *lowest);
        self.shared_bytes = shared.bytes;
        (self.local, self.local_bytes) = rows_of(local, *index as usize);
        if !masks {
            (self.mask, self.stale) = (*mask, true);
        } else if self.mask != *mask || self.stale {
            (self.mask, self.stale) = (*mask, false);
            self.spread(*mask);
        }
    }

    /// Resets the warp scheduler to the state in which no warp has arrived at a barrier.
    pub(crate) const fn reset_scheduler(&mut self) {
        (self.stage, self.arrival) = (FIRST_STAGE, NO_BARRIER);
    }

    /// Returns the stage of the warps that run in this sweep, and the barrier instruction at which the others
    /// wait.
    pub(crate) const fn sweep(&self) -> (u32, u32) {
        (self.stage, self.arrival)
    }

    /// Refreshes the pointers that machine code uses for each warp, or only for the warp `touched`.
    pub(crate) fn bind(
        &mut self,
        splits: &mut [WarpSplit],
        local: &mut [LocalMemory],
        touched: Option<usize>,
    ) {
        let touched = touched.map_or(0..splits.len(), |index| index..index + 1);
        for split in &mut splits[touched] {
            let warp = split.warp.index as usize;
            let range_cache = &raw mut self.range_caches[warp % RANGE_CACHES];
            split.bind(range_cache, rows_of(local, warp));
        }
    }

    /// Prepares the scheduler to run the warp `index` first. The contexts of all warps must be bound.
    pub(crate) const fn enter_scheduler(&mut self, splits: &mut [WarpSplit], index: usize, entries: &[u32]) {
        let range = splits.as_mut_ptr_range();
        (self.splits, self.split, self.splits_end) =
            (range.start, range.start.wrapping_add(index), range.end);
        self.entries = entries.as_ptr();
    }

    /// Ends the scheduler's run. Returns the index of the warp that has run last.
    pub(crate) fn leave_scheduler(&mut self) -> usize {
        let index = (self.split.addr() - self.splits.addr()) / size_of::<WarpSplit>();
        self.split = std::ptr::null_mut();
        index
    }

    /// Expands the mask of active lanes to `masks`, and finds the groups of eight lanes that contain them.
    fn spread(&mut self, mask: u32) {
        self.masks.0 = std::array::from_fn(|lane| (mask >> lane & 1).wrapping_neg());
        self.first = u64::from(mask.trailing_zeros() / 8 * 32);
        self.end = u64::from((39 - mask.leading_zeros()) / 8 * 32);
    }

    /// Copies the state that a run has changed back to the warp. The frame and the memory are up to date
    /// already.
    pub(crate) const fn leave(&self, warp: &mut Warp) {
        (warp.fuel, warp.mask, warp.alive, warp.lowest) = (self.fuel, self.mask, self.alive, self.lowest);
    }
}

/// Returns the address of a warp's local memory, and the bytes of each lane.
fn rows_of(local: &mut [LocalMemory], warp: usize) -> (*mut u32, u32) {
    match local.get_mut(warp) {
        Some(local) => (local.rows(), local.bytes),
        None => (std::ptr::null_mut(), 0),
    }
}
