//! Intermediate representation of a kernel: the parser makes it, and every engine reads it.
//!
//! A kernel is a list of basic blocks in the order of the text. Only terminators branch: an instruction that
//! is guarded by a predicate (`@p add ...`) has become a block of its own, so that engines know one kind of
//! divergence. Names are resolved: registers are numbers, and variables are offsets or indices into the
//! module's list of globals. Types are those of the PTX ISA. Sizes are in bytes.

mod kernel;
pub mod mbarrier;
mod modifier;
mod op;
mod operand;

pub use kernel::{Block, BlockId, Kernel, Param, Terminator};
pub use modifier::{
    Atomic, Binary, Combine, Compare, Eighth, Float, Half, Mma, Permute, Reduce, Round, Shuffle, Unary, Vote,
};
pub use op::{Inst, Op};
pub use operand::{Base, Class, Guard, Mem, Operand, Order, Reg, Space, Special, Ty, window};
