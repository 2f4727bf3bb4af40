//! What machine code finds in memory while it runs: a [`Context`] beside the frame of its warp.

use std::mem::offset_of;

use vgpu_arena::{LANES, View, Window};

use super::frame::Frame;
use super::memory::{LocalMemory, SharedMemory};
use super::warp::Warp;

/// Accesses to memory, and vectors that lanes exchange, within one piece of machine code that is entered and
/// left as a whole.
pub(crate) const PLACES: usize = 16;

/// The control and status register under which subnormal operands count as zero. All exceptions are masked.
const FLUSHES: u32 = 0x1fc0;

/// The state that machine code works on. Machine code addresses the fields by the constants below.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Context {
    frame: *mut u8,
    /// The pointer that corresponds to device address 0.
    zero: *mut u8,
    windows: *mut Window,
    shared: *mut u32,
    /// The rows of the warp's local memory.
    local: *mut u32,
    /// Lanes pending by block, and a bit for each block where there are some.
    pending: *mut u32,
    occupied: *mut u64,
    /// Number of words of `occupied`.
    words: u64,
    /// Where the code of each block begins, in bytes; 0 where the interpreter goes on.
    targets: *const u32,
    /// The first step of each block.
    blocks: *const u32,
    /// Number of the view's table.
    number: u64,
    fuel: i64,
    mask: u32,
    alive: u32,
    lowest: u32,
    shared_bytes: u32,
    /// Bytes of local memory of each lane.
    local_bytes: u32,
    /// Where the vectors of the active lanes begin and end: multiples of 32 bytes.
    first: u64,
    end: u64,
    /// The control and status register of floating-point operations: the caller's, and the code's.
    saved: u32,
    mode: u32,
    /// All ones in the active lanes.
    masks: [u32; LANES],
    /// The bit of each lane.
    bits: [u32; LANES],
    /// Where the words of each lane lie in a row of local memory, in bytes.
    columns: [u32; LANES],
    /// Eight lanes on their way to memory, up to four elements each.
    elements: [[u32; 8]; 4],
    /// By place: the memory that is accessed, its first address and the last offset in each lane, and the
    /// offsets that the lanes access, or the vector that lanes exchange.
    pointers: [*mut u8; PLACES],
    bases: [[u64; 4]; PLACES],
    lasts: [[u32; 8]; PLACES],
    offsets: [[u32; LANES]; PLACES],
}

macro_rules! offsets {
    ($($name:ident: $field:ident;)*) => { $(
        pub(crate) const $name: i32 = offset_of!(Context, $field) as i32;
    )* };
}

impl Context {
    offsets! {
        FRAME: frame; ZERO: zero; WINDOWS: windows; SHARED: shared; LOCAL: local; PENDING: pending;
        OCCUPIED: occupied; WORDS: words; TARGETS: targets; BLOCKS: blocks; NUMBER: number; FUEL: fuel;
        MASK: mask;
        ALIVE: alive; LOWEST: lowest; SHARED_BYTES: shared_bytes; LOCAL_BYTES: local_bytes;
        FIRST: first; END: end; SAVED: saved;
        MODE: mode; MASKS: masks; BITS: bits; COLUMNS: columns; ELEMENTS: elements; POINTERS: pointers;
        BASES: bases;
        LASTS: lasts; OFFSETS: offsets;
    }

    /// A context in which nothing runs yet.
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            frame: std::ptr::null_mut(),
            zero: std::ptr::null_mut(),
            windows: std::ptr::null_mut(),
            shared: std::ptr::null_mut(),
            local: std::ptr::null_mut(),
            pending: std::ptr::null_mut(),
            occupied: std::ptr::null_mut(),
            words: 0,
            targets: std::ptr::null(),
            blocks: std::ptr::null(),
            number: 0,
            fuel: 0,
            mask: 0,
            alive: 0,
            lowest: 0,
            shared_bytes: 0,
            local_bytes: 0,
            first: 0,
            end: 0,
            saved: 0,
            mode: FLUSHES,
            masks: [0; LANES],
            bits: std::array::from_fn(|lane| 1 << lane),
            columns: std::array::from_fn(|lane| 4 * lane as u32),
            elements: [[0; 8]; 4],
            pointers: [std::ptr::null_mut(); PLACES],
            bases: [[0; 4]; PLACES],
            lasts: [[0; 8]; PLACES],
            offsets: [[0; LANES]; PLACES],
        })
    }

    /// Prepares for a run of a warp.
    pub(crate) fn enter(
        &mut self,
        warp: &mut Warp,
        view: &View,
        windows: &mut [Window],
        (shared, local): (&mut SharedMemory, &mut [LocalMemory]),
        targets: &[u32],
        blocks: &[u32],
    ) {
        let Warp { frame, mask, index, alive, fuel, lowest, pending, occupied, .. } = warp;
        self.pending = pending.as_mut_ptr();
        self.occupied = occupied.as_mut_ptr();
        self.words = occupied.len() as u64;
        (self.targets, self.blocks) = (targets.as_ptr(), blocks.as_ptr());
        self.frame = Frame::base(frame);
        self.zero = view.zero();
        self.windows = windows.as_mut_ptr();
        self.shared = shared.words_mut().as_mut_ptr();
        self.number = view.number();
        (self.fuel, self.alive, self.lowest) = (*fuel, *alive, *lowest);
        self.shared_bytes = shared.bytes;
        (self.local, self.local_bytes) = match local.get_mut(*index as usize) {
            Some(local) => (local.rows(), local.bytes),
            None => (std::ptr::null_mut(), 0),
        };
        if self.mask != *mask {
            self.mask = *mask;
            self.masks = std::array::from_fn(|lane| (*mask >> lane & 1).wrapping_neg());
            self.first = u64::from(mask.trailing_zeros() / 8 * 32);
            self.end = u64::from((39 - mask.leading_zeros()) / 8 * 32);
        }
    }

    /// Takes over what a run has changed besides the frame and memory.
    pub(crate) const fn leave(&self, warp: &mut Warp) {
        (warp.fuel, warp.mask, warp.alive, warp.lowest) = (self.fuel, self.mask, self.alive, self.lowest);
    }
}
