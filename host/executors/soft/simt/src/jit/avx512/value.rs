//! Descriptions of the values that vector registers hold.

use iced_x86::code_asm::{AsmMemoryOperand, rbp, rbx, zmmword_ptr};

use crate::jit::side_exit::LiveValue;
use crate::machine::{RangeCache, Slot};

/// What a register holds. The first number of a variant is an offset in the frame, unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKey {
    /// A half of a vector of 32-bit lanes.
    Narrow(u32, usize),
    /// A quarter of a vector of 64-bit lanes.
    Wide(u32, usize),
    /// A scalar, broadcast to all lanes. Whether it has 64 bits.
    Scalar(u32, bool),
    /// Half of the offsets of an address vector, by its entry in the address-range cache.
    Offsets(usize, usize),
    /// Half of the bias that makes an unsigned-by-signed dot product signed.
    Dp4aBias(u32, usize),
    /// Half of a word that was loaded ahead: the instruction that loads it, the index among its words, and
    /// the half.
    Preloaded(usize, usize, usize),
    /// The indices of the lower words of 64-bit lanes in two registers, or of the upper words.
    Order(usize),
    /// A temporary, which no later instruction looks up.
    Temporary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterValue {
    pub(super) key: ValueKey,
    /// The vector that it is a part of, if the frame lacks it.
    pub(super) slot: Slot,
    /// Whether the frame still has an older value.
    pub(super) dirty: bool,
    /// Whether it is a float that has been neither flushed nor made canonical.
    pub(super) raw: bool,
    /// Whether all bytes are known to be below 128, so that signed and unsigned products agree.
    pub(super) small: bool,
}

impl RegisterValue {
    /// A value that memory has too.
    pub(super) const fn clean(key: ValueKey) -> Self {
        Self { key, slot: Slot::NONE, dirty: false, raw: false, small: false }
    }

    /// Describes the value for a side exit. Returns `None` if it is not part of a vector.
    pub(super) fn live_value(&self, register: usize) -> Option<LiveValue> {
        let (wide, part) = match self.key {
            ValueKey::Narrow(_, half) => (false, half),
            ValueKey::Wide(_, quarter) => (true, quarter),
            _ => return None,
        };
        Some(LiveValue { register: register as u8, slot: self.slot, wide, part: part as u8, raw: self.raw })
    }
}

impl ValueKey {
    /// The memory that holds a value, if there is any.
    pub(super) fn place(self) -> Option<AsmMemoryOperand> {
        match self {
            ValueKey::Narrow(at, part) | ValueKey::Wide(at, part) => {
                Some(zmmword_ptr(rbx + (at as usize + 64 * part) as i32))
            }
            ValueKey::Offsets(place, half) => Some(offsets(place, half)),
            _ => None,
        }
    }
}

/// The memory that holds half of the offsets of an address vector.
pub(super) fn offsets(place: usize, half: usize) -> AsmMemoryOperand {
    zmmword_ptr(rbp + (RangeCache::OFFSETS as usize + 128 * place + 64 * half) as i32)
}
