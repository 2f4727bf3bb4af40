//! Where machine code is left before a step while values are still in registers: what of them the frame lacks.
//!
//! The code writes all vector registers to the context, in a routine that all these places have in common, and
//! this moves them to the frame. Instructions for each place would be most of the code.

use crate::machine::{Context, Frame, Slot};
use crate::ops::float::{canonical, flush};

/// The bit of what code returns that says that it has left in this way; the others are the place's number.
pub(super) const DEPARTED: u32 = 1 << 31;

/// Words of a register.
const WORDS: usize = 16;

/// A register that holds part of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) register: u8,
    pub(super) slot: Slot,
    /// Whether the vector has lanes of 64 bits, and which 64 bytes of it these are.
    pub(super) wide: bool,
    pub(super) part: u8,
    /// Whether these are floats that are neither flushed nor canonical.
    pub(super) raw: bool,
}

/// A place where code is left.
#[derive(Debug)]
pub(super) struct Departed {
    /// The step with which the interpreter goes on.
    pub(super) pc: u32,
    pub(super) held: Box<[Held]>,
}

impl Departed {
    /// Moves values from the registers to the frame. `flushes`: floats of the code are flushed.
    pub(super) fn settle(&self, context: &Context, frame: &mut Frame, flushes: bool) {
        for held in &self.held {
            let words = context.register(held.register);
            let part = usize::from(held.part);
            if held.wide {
                let (pairs, _) = words.as_chunks::<2>();
                let lanes = &mut frame.vector_mut::<u64>(held.slot)[WORDS / 2 * part..][..WORDS / 2];
                for (lane, [low, high]) in lanes.iter_mut().zip(pairs) {
                    *lane = u64::from(*low) | u64::from(*high) << 32;
                }
                continue;
            }
            let lanes = &mut frame.vector_mut::<u32>(held.slot)[WORDS * part..][..WORDS];
            lanes.copy_from_slice(words);
            for lane in lanes.iter_mut().filter(|_| held.raw) {
                let float = f32::from_bits(*lane);
                *lane = canonical(if flushes { flush(float) } else { float }).to_bits();
            }
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&self.held[..])) as u64
    }
}
