//! Kernels: basic blocks, and how they end.

use std::ops::Range;

use super::op::Inst;
use super::operand::{Class, Guard};

/// How a block ends.
#[allow(missing_docs, reason = "the variants say what the fields are")]
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// Goes to another block.
    Goto(BlockId),
    /// Goes to `then` where the guard holds, else to `otherwise`. `uniform`: the text says `.uni`.
    Branch { guard: Guard, uniform: bool, then: BlockId, otherwise: BlockId },
    /// The lane returns from the kernel: `ret` or `exit`.
    Return,
    /// `trap`: the launch fails.
    Trap,
    /// A call has found no room on the stack: the launch fails.
    StackOverflow,
    /// A call goes to an address at which no function is that it could call: the launch fails.
    BadCall,
}

/// An index into [`Kernel::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// A basic block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The instructions, as a range of [`Kernel::code`].
    pub code: Range<u32>,
    /// How the block ends.
    pub end: Terminator,
    /// Line of the terminator.
    pub line: u32,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Offset in the parameter buffer.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// A kernel. The first block is the entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The kernel's mangled name.
    pub name: String,
    /// Parameters, in the order of the text.
    pub params: Vec<Param>,
    /// Bytes of the parameter buffer.
    pub param_bytes: u32,
    /// Width of each register.
    pub registers: Vec<Class>,
    /// Instructions of all blocks.
    pub code: Vec<Inst>,
    /// Basic blocks, in the order of the text.
    pub blocks: Vec<Block>,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Where dynamic shared memory starts: `shared_bytes`, aligned.
    pub dynamic_shared_offset: u32,
    /// Bytes of a thread's local memory.
    pub local_bytes: u32,
    /// Whether there are calls that need a stack, which is behind the other local memory.
    pub calls: bool,
    /// `.maxntid`: the largest number of threads of a block, as a product; 1024 where the text does not say.
    pub max_threads: u32,
    /// `.reqntid`: the only shape that a block may have, if the text gives one.
    pub required_threads: Option<[u32; 3]>,
}
