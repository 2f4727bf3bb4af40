//! Side exits, which leave a superblock while some registers hold values not yet spilled to the frame.
//!
//! A common routine stores all vector registers to the context, and [`SideExit::restore`] moves the live ones
//! to the frame. Separate instructions for each exit would be most of the code.

use crate::machine::{Context, Frame, Slot};
use crate::ops::float::{canonical, flush};

/// Flag in a result of machine code: the other bits are the index of a side exit.
pub(super) const SIDE_EXIT: u32 = 1 << 31;

/// Number of 32-bit words in a register.
const WORDS: usize = 16;

/// A register that holds part of a live vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LiveValue {
    pub(super) register: u8,
    pub(super) slot: Slot,
    /// Whether the lanes of the vector have 64 bits.
    pub(super) wide: bool,
    pub(super) part: u8,
    /// Whether the value holds floats that are neither flushed nor canonical.
    pub(super) raw: bool,
}

/// An exit from the middle of a superblock.
#[derive(Debug)]
pub(super) struct SideExit {
    /// Index of the instruction at which the interpreter continues.
    pub(super) pc: u32,
    pub(super) live: Box<[LiveValue]>,
}

impl SideExit {
    /// Moves the live values from the stored registers to the frame. `flushes` tells whether the code runs
    /// with subnormal floats flushed.
    pub(super) fn restore(&self, context: &Context, frame: &mut Frame, flushes: bool) {
        for value in &self.live {
            let words = context.register(value.register);
            let part = usize::from(value.part);
            if value.wide {
                let (pairs, _) = words.as_chunks::<2>();
                let lanes = &mut frame.vector_mut::<u64>(value.slot)[WORDS / 2 * part..][..WORDS / 2];
                for (lane, [low, high]) in lanes.iter_mut().zip(pairs) {
                    *lane = u64::from(*low) | u64::from(*high) << 32;
                }
                continue;
            }
            let lanes = &mut frame.vector_mut::<u32>(value.slot)[WORDS * part..][..WORDS];
            lanes.copy_from_slice(words);
            for lane in lanes.iter_mut().filter(|_| value.raw) {
                let float = f32::from_bits(*lane);
                *lane = canonical(if flushes { flush(float) } else { float }).to_bits();
            }
        }
    }

    /// Returns the size in bytes, including the list of values.
    pub(super) fn bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&self.live[..])) as u64
    }
}
