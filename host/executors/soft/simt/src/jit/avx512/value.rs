//! What the vector registers hold.

use iced_x86::code_asm::{AsmMemoryOperand, rbp, rbx, zmmword_ptr};

use crate::jit::departed::Held;
use crate::machine::{RangeCache, Slot};

/// What a register holds. The first numbers are offsets in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A half of a vector of 32-bit lanes.
    Narrow(u32, usize),
    /// A quarter of a vector of 64-bit lanes.
    Wide(u32, usize),
    /// A scalar in all lanes.
    Scalar(u32, bool),
    /// Half of the offsets of a root, by its place in the context.
    Offsets(usize, usize),
    /// Half of what products with the bytes of a vector have too much where the other bytes' signs are
    /// flipped.
    Excess(u32, usize),
    /// Half of a word that the load of a step has been loaded for: which step, and which of its words.
    Ahead(usize, usize, usize),
    /// The numbers of the words of two registers that are the lower halves of lanes of 64 bits, or the upper.
    Order(usize),
    /// Nothing that can be found again.
    Temporary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) key: Key,
    /// The vector whose part it is, if the frame lacks it.
    pub(super) slot: Slot,
    /// Whether the frame lacks it.
    pub(super) dirty: bool,
    /// Whether it is a float that is neither flushed nor canonical yet.
    pub(super) raw: bool,
    /// Whether all bytes are known to be below 128.
    pub(super) small: bool,
}

impl Value {
    /// A value that is known from memory.
    pub(super) const fn clean(key: Key) -> Self {
        Self { key, slot: Slot::NONE, dirty: false, raw: false, small: false }
    }

    /// What a place where code is left needs to know of it in a register: nothing, if it is no part of a
    /// vector.
    pub(super) fn held(&self, register: usize) -> Option<Held> {
        let (wide, part) = match self.key {
            Key::Narrow(_, half) => (false, half),
            Key::Wide(_, quarter) => (true, quarter),
            _ => return None,
        };
        Some(Held { register: register as u8, slot: self.slot, wide, part: part as u8, raw: self.raw })
    }
}

impl Key {
    /// Where a value lies in memory.
    pub(super) fn place(self) -> Option<AsmMemoryOperand> {
        match self {
            Key::Narrow(at, part) | Key::Wide(at, part) => {
                Some(zmmword_ptr(rbx + (at as usize + 64 * part) as i32))
            }
            Key::Offsets(place, half) => Some(offsets(place, half)),
            _ => None,
        }
    }
}

/// Where the context keeps half of the offsets of a root.
pub(super) fn offsets(place: usize, half: usize) -> AsmMemoryOperand {
    zmmword_ptr(rbp + (RangeCache::OFFSETS as usize + 128 * place + 64 * half) as i32)
}
