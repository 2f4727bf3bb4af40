//! Kernels: a control-flow graph of basic blocks.

use std::ops::Range;

use super::op::Inst;
use super::operand::{Class, Guard};

/// Terminator of a block: how its lanes continue.
#[allow(missing_docs, reason = "the variants say what the fields are")]
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// The lanes continue at another block.
    Goto(BlockId),
    /// Lanes for which the guard holds continue at `then`, others at `otherwise`. `uniform` is set if the
    /// text says `.uni`.
    Branch { guard: Guard, uniform: bool, then: BlockId, otherwise: BlockId },
    /// The lane returns from the kernel: `ret` or `exit`.
    Return,
    /// The lanes reach a `trap`, and the launch fails with a fault.
    Trap,
    /// A call exceeds the thread's local memory, and the launch fails with a fault.
    StackOverflow,
    /// A call goes to an address without a function that it could call, and the launch fails with a fault.
    BadCall,
}

/// Number of a block, as an index into [`Kernel::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Basic block: instructions without a branch, and a terminator.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Instructions, as a range of [`Kernel::code`].
    pub code: Range<u32>,
    /// Terminator of the block.
    pub end: Terminator,
    /// Line of the terminator in the module's text, from 1.
    pub line: u32,
}

/// Parameter of a kernel (`.param`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Offset in the parameter buffer, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// Parsed kernel. Its first block is the entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernel {
    /// Name of the kernel in the text, which is mangled for C++.
    pub name: String,
    /// Parameters, in the order of the text.
    pub params: Vec<Param>,
    /// Size of the parameter buffer in bytes.
    pub param_bytes: u32,
    /// Width of each register. A [`Reg`](super::Reg) is an index into it.
    pub registers: Vec<Class>,
    /// Instructions of all blocks. Each block has a range of them.
    pub code: Vec<Inst>,
    /// Basic blocks, in the order of the text. Lanes start at the first.
    pub blocks: Vec<Block>,
    /// Size of static shared memory in bytes.
    pub shared_bytes: u32,
    /// Offset of dynamic shared memory in bytes: `shared_bytes`, rounded up to the alignment of its
    /// declarations.
    pub dynamic_shared_offset: u32,
    /// Size of a thread's local memory in bytes.
    pub local_bytes: u32,
    /// Whether there are calls that need a stack, which follows the other local memory.
    pub calls: bool,
    /// Largest number of threads of a block: the product of `.maxntid`, or 1024 if the text does not have it.
    pub max_threads: u32,
    /// Whether lanes of a warp must make progress while others of it wait for them in a loop. CUDA promises
    /// this to code for compute capability 7.0 and later. Older code may rely on lanes that stay together.
    pub independent_lanes: bool,
    /// The only shape that a block may have, from `.reqntid`, if the text gives one.
    pub required_threads: Option<[u32; 3]>,
}
