//! Operands that do not fit a step: records of a program's tables, which steps name by index.
//!
//! A record says what a step works on and how. Steps of `ops` read them; lowering makes them.

use std::fmt;

use vgpu_ptx::ir::{Reduce, Space};

use super::reconvergence::Point;
use super::slot::{Slot, ValueLoc};

/// The tables of one variant of a program, by kind of record.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) memory: Vec<SlotList>,
    pub(crate) rare: Vec<RareOperands>,
    pub(crate) fields: Vec<Field>,
    pub(crate) barriers: Vec<BarrierOperands>,
    pub(crate) prints: Vec<PrintOperands>,
    pub(crate) quads: Vec<QuadsOperands>,
    pub(crate) products: Vec<ProductOperands>,
    pub(crate) wholes: Vec<WmmaOperands>,
    pub(crate) atomics: Vec<AtomicOperands>,
}

/// Up to four slots: the registers of a vector that is loaded or stored, or another short list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotList {
    pub(crate) slots: [Slot; 4],
}

/// An operand with its width in bytes a lane: 2, 4, 8, or 1 for a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RareOperand {
    pub(crate) at: Slot,
    pub(crate) scalar: bool,
    pub(crate) bytes: u32,
}

/// Computes a result from up to four operands. Bits above an operand's width are zero; those above the
/// result's are dropped.
pub(crate) type RareFn = Box<dyn Fn([u64; 4]) -> u64 + Send + Sync>;

/// An instruction that need not be fast: a function of bits, called for each active lane.
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

/// A bit field of a word, moved: `(a << left >> right) & mask`. One of the two shifts is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) at: Slot,
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(crate) mask: u32,
}

/// A barrier instruction.
#[derive(Debug)]
pub(crate) struct BarrierOperands {
    pub(crate) number: ValueLoc,
    /// Number of threads that take part; all of the block if `None`.
    pub(crate) threads: Option<ValueLoc>,
    pub(crate) kind: BarrierKind,
    /// Names the shared registers that lanes must agree on to reconverge behind the barrier.
    pub(crate) agreement: Point,
}

/// Number of barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// What a barrier instruction does besides arriving.
#[derive(Debug)]
pub(crate) enum BarrierKind {
    /// Waits until all threads have arrived.
    Sync,
    /// Does not wait.
    Arrive,
    /// Waits, and reduces the predicate `p`, inverted by `xor`, into `dst`: a predicate or 32 bits.
    Reduce { op: Reduce, p: Slot, xor: u32, dst: ValueLoc },
}

/// A call of `vprintf`. Both operands are vectors of 64 bits; the result is the number of arguments.
#[derive(Debug)]
pub(crate) struct PrintOperands {
    pub(crate) format: Slot,
    pub(crate) arguments: Slot,
    pub(crate) dst: Option<Slot>,
}

/// The registers of one `mma.m8n8k4` of halves, all vectors. Fragments are laid out as in the ISA.
#[derive(Debug)]
pub(crate) struct QuadsOperands {
    pub(crate) d: Vec<Slot>,
    pub(crate) a: [Slot; 2],
    pub(crate) b: [Slot; 2],
    pub(crate) c: Vec<Slot>,
    /// Whether A and B are given by columns.
    pub(crate) columns: [bool; 2],
    /// Whether C and D consist of halves: four registers of two each, else eight of one float.
    pub(crate) c_halves: bool,
    pub(crate) d_halves: bool,
    /// A scalar of all ones: every lane takes part.
    pub(crate) members: Slot,
}

/// The registers of one `mma` of another shape, all vectors.
#[derive(Debug)]
pub(crate) struct ProductOperands {
    pub(crate) d: Vec<Slot>,
    pub(crate) a: Vec<Slot>,
    pub(crate) b: Vec<Slot>,
    pub(crate) c: Vec<Slot>,
    /// Rows of A, C and D by eights: 1 or 2.
    pub(crate) eights: usize,
    /// Whether C and D consist of halves, two in a register.
    pub(crate) halves: bool,
    /// Whether sums of integers stop at the ends of their range.
    pub(crate) saturates: bool,
    /// A scalar of all ones: every lane takes part.
    pub(crate) members: Slot,
}

/// The registers of one `wmma.mma`, all vectors.
#[derive(Debug)]
pub(crate) struct WmmaOperands {
    pub(crate) d: Vec<Slot>,
    pub(crate) a: Vec<Slot>,
    pub(crate) b: Vec<Slot>,
    pub(crate) c: Vec<Slot>,
    /// Columns of B, C and D. C has 256 elements.
    pub(crate) columns: usize,
    /// Whether C and D consist of halves, two in a register.
    pub(crate) c_halves: bool,
    pub(crate) d_halves: bool,
    /// A scalar of all ones: every lane takes part.
    pub(crate) members: Slot,
}

/// Computes the new value of an element from the old one and the two operands. The flag says that the memory
/// is the block's own.
pub(crate) type AtomicFn = Box<dyn Fn(u64, u64, u64, bool) -> u64 + Send + Sync>;

/// One `atom` or `red`. Its operands are vectors.
pub(crate) struct AtomicOperands {
    pub(crate) change: AtomicFn,
    pub(crate) space: Space,
    /// Size of the element in bytes: 2, 4 or 8.
    pub(crate) bytes: u32,
    /// Addresses of 64 bits.
    pub(crate) base: Slot,
    pub(crate) offset: i64,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) dst: Option<Slot>,
    /// Index of the window of device memory that the step uses.
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
