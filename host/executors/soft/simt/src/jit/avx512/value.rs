//! Descriptions of the values that vector registers hold.

use iced_x86::code_asm::{AsmMemoryOperand, rbp, rbx, zmmword_ptr};

use crate::jit::side_exit::LiveValue;
use crate::machine::{RangeCache, Slot};

/// Identity of the value that a register holds. The first number of a variant is an offset in the frame,
/// unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKey {
    /// A half of a vector of 32-bit lanes.
    Narrow(u32, usize),
    /// A quarter of a vector of 64-bit lanes.
    Wide(u32, usize),
    /// A scalar, broadcast to all lanes. The flag tells whether it has 64 bits.
    Scalar(u32, bool),
    /// Half of the offsets of an address vector, by its entry in the address-range cache.
    Offsets(usize, usize),
    /// Half of the bias that makes an unsigned-by-signed dot product signed.
    Dp4aBias(u32, usize),
    /// Half of a word that was loaded ahead: the index of the loading instruction, the index among its words,
    /// and the half.
    Preloaded(usize, usize, usize),
    /// Indices that select the lower words (0) or the upper words (1) of 64-bit lanes in two registers.
    Order(usize),
    /// A temporary of the current instruction, which no later instruction looks up.
    Temporary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterValue {
    pub(super) key: ValueKey,
    /// Vector that the value is a part of, if the frame does not have it yet.
    pub(super) slot: Slot,
    /// Whether the frame has an older value than the register.
    pub(super) dirty: bool,
    /// Whether the value is a float that has been neither flushed nor made canonical.
    pub(super) raw: bool,
    /// Whether all bytes of the value are known to be below 128, so that signed and unsigned products agree.
    pub(super) small: bool,
}

impl RegisterValue {
    /// Describes a value that is also in memory.
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
    /// Returns the memory operand that holds a value, if there is one.
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

/// Returns the memory operand that holds half of the offsets of an address vector.
pub(super) fn offsets(place: usize, half: usize) -> AsmMemoryOperand {
    zmmword_ptr(rbp + (RangeCache::OFFSETS as usize + 128 * place + 64 * half) as i32)
}
