//! Records of a program's tables: operands that do not fit into an instruction. The instruction has the index
//! of its record.
//!
//! Lowering creates the records, and the operations of `ops` read them.

use std::fmt;

use vgpu_ptx::ir::{Reduce, Space};

use super::reconvergence::Point;
use super::slot::{Slot, ValueLoc};

/// Tables of one variant of a program, by kind of record.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) memory: Vec<SlotList>,
    pub(crate) rare: Vec<RareOperands>,
    pub(crate) fields: Vec<Field>,
    pub(crate) barriers: Vec<BarrierOperands>,
    pub(crate) prints: Vec<PrintOperands>,
    pub(crate) quads: Vec<QuadsOperands>,
    pub(crate) products: Vec<ProductOperands>,
    pub(crate) atomics: Vec<AtomicOperands>,
    /// Whether lanes that wait for others of their warp in a loop let them run.
    pub(crate) independent_lanes: bool,
}

/// Up to four slots, such as the registers of a vector that is loaded or stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotList {
    pub(crate) slots: [Slot; 4],
}

/// An operand of a rare instruction. `bytes` is its width in each lane: 2, 4 or 8, or 1 for a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RareOperand {
    pub(crate) at: Slot,
    pub(crate) scalar: bool,
    pub(crate) bytes: u32,
}

/// Computes a result from up to four operands. Bits above the width of an operand are zero, and those above
/// the width of the result are dropped.
pub(crate) type RareFn = Box<dyn Fn([u64; 4]) -> u64 + Send + Sync>;

/// An instruction that need not be fast: its function is called for each active lane with the operands' bits.
pub(crate) struct RareOperands {
    pub(crate) function: RareFn,
    pub(crate) sources: Vec<RareOperand>,
    pub(crate) dst: RareOperand,
}

impl fmt::Debug for RareOperands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RareOperands")
            .field("sources", &self.sources)
            .field("dst", &self.dst)
            .finish_non_exhaustive()
    }
}

/// A bit field of a word and its movement: `(a << left >> right) & mask`. One of the two shifts is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) at: Slot,
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(crate) mask: u32,
}

/// Operands of a barrier instruction.
#[derive(Debug)]
pub(crate) struct BarrierOperands {
    pub(crate) number: ValueLoc,
    /// Number of threads that take part, or `None` for all threads of the block.
    pub(crate) threads: Option<ValueLoc>,
    pub(crate) kind: BarrierKind,
    /// Point that identifies the shared registers on which lanes must agree to reconverge after the barrier.
    pub(crate) agreement: Point,
}

/// Number of barriers that a block has.
pub(crate) const BARRIERS: usize = 16;

/// Effect of a barrier instruction besides the arrival.
#[derive(Debug)]
pub(crate) enum BarrierKind {
    /// Waits until all threads have arrived.
    Sync,
    /// Continues without waiting.
    Arrive,
    /// Waits, and reduces the predicate `p`, XORed with `xor`, into `dst`, which is a predicate or has 32
    /// bits.
    Reduce { op: Reduce, p: Slot, xor: u32, dst: ValueLoc },
}

/// Operands of a `vprintf` call. `format` and `arguments` are vectors of generic addresses, and `dst`
/// receives the number of arguments.
#[derive(Debug)]
pub(crate) struct PrintOperands {
    pub(crate) format: Slot,
    pub(crate) arguments: Slot,
    pub(crate) dst: Option<Slot>,
}

/// Registers of an `mma.m8n8k4` of halves, all of them vectors. Fragments are laid out as in the ISA.
#[derive(Debug)]
pub(crate) struct QuadsOperands {
    pub(crate) d: Vec<Slot>,
    pub(crate) a: [Slot; 2],
    pub(crate) b: [Slot; 2],
    pub(crate) c: Vec<Slot>,
    /// Whether A and B are stored by columns.
    pub(crate) columns: [bool; 2],
    /// Whether C and D consist of halves. Halves take four registers of two each, floats take eight
    /// registers.
    pub(crate) c_halves: bool,
    pub(crate) d_halves: bool,
    /// Slot of a scalar of all ones, because every lane takes part.
    pub(crate) members: Slot,
}

/// Registers of an `mma` of another shape, all of them vectors.
#[derive(Debug)]
pub(crate) struct ProductOperands {
    pub(crate) d: Vec<Slot>,
    pub(crate) a: Vec<Slot>,
    pub(crate) b: Vec<Slot>,
    pub(crate) c: Vec<Slot>,
    /// Number of rows of A, C and D in units of eight, which is 1 or 2.
    pub(crate) eights: usize,
    /// Whether C and D consist of halves, two in each register.
    pub(crate) halves: bool,
    /// Whether integer sums are clamped to their range (`.satfinite`).
    pub(crate) saturates: bool,
    /// Slot of a scalar of all ones, because every lane takes part.
    pub(crate) members: Slot,
}

/// Computes the new value of an element from the old one and two operands. The flag is true for the block's
/// own memory.
pub(crate) type AtomicFn = Box<dyn Fn(u64, u64, u64, bool) -> u64 + Send + Sync>;

/// Operands of an `atom` or `red` instruction, all of them vectors.
pub(crate) struct AtomicOperands {
    pub(crate) change: AtomicFn,
    pub(crate) space: Space,
    /// Size of the element in memory in bytes: 2, 4 or 8.
    pub(crate) bytes: u32,
    /// Slot of the 64-bit addresses.
    pub(crate) base: Slot,
    pub(crate) offset: i64,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) dst: Option<Slot>,
    /// Index of the window of device memory that the instruction uses.
    pub(crate) window: u32,
}

impl fmt::Debug for AtomicOperands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicOperands")
            .field("space", &self.space)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
