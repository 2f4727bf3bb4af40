//! Errors of lowering, and the faults that end a launch.

use std::fmt;

use vgpu_ptx::{Halt, Spent};

/// An instruction or kernel that the engine does not support, detected when the kernel is lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: `{instruction}`")]
pub struct EngineError {
    /// Line in the module's text.
    pub line: u32,
    /// Description of the problem or of the missing feature.
    pub what: String,
    /// The instruction, in the notation of the intermediate representation.
    pub instruction: String,
}

/// Reason why a kernel has no program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The engine does not support an instruction of the kernel.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Lowering was stopped, or exceeded its limit of work or memory.
    #[error(transparent)]
    Spent(#[from] Spent),
}

/// The instruction and thread at which a fault happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Line of the instruction in the module's text, from 1.
    pub line: u32,
    /// Index of the block in the grid (`%ctaid`).
    pub block: [u32; 3],
    /// Index of the first faulting thread in its block (`%tid`).
    pub thread: [u32; 3],
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "line {}, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})", self.line)
    }
}

/// Reason why a launch ended early. The first fault of any block is reported, and the other blocks stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An access to an address outside of all allocations of device memory, or a write to read-only memory.
    #[error("illegal {} at {address:#x}: {site}", access(*.write))]
    Illegal {
        /// The device address that the first faulting lane accessed.
        address: u64,
        /// True for a store or a read-modify-write, false for a load.
        write: bool,
        /// The instruction and the thread that made the access.
        site: Site,
    },
    /// An access whose address is not a multiple of its size.
    #[error("misaligned address {address:#x}: {site}")]
    Misaligned {
        /// The address in the state space of the access.
        address: u64,
        /// The instruction and the thread that made the access.
        site: Site,
    },
    /// An access beyond the shared memory of the block.
    #[error("shared memory address {address:#x} out of bounds: {site}")]
    SharedOutOfBounds {
        /// The address, counted from the start of shared memory.
        address: u64,
        /// The instruction and the thread that made the access.
        site: Site,
    },
    /// An access beyond the local memory of the thread.
    #[error("local memory address {address:#x} out of bounds: {site}")]
    LocalOutOfBounds {
        /// The address, counted from the start of local memory.
        address: u64,
        /// The instruction and the thread that made the access.
        site: Site,
    },
    /// A read beyond the parameters of the launch, or a write to them.
    #[error("parameter address {address:#x} out of bounds: {site}")]
    ParamOutOfBounds {
        /// The address, counted from the start of the parameters.
        address: u64,
        /// The instruction and the thread that made the access.
        site: Site,
    },
    /// The kernel executed `trap`.
    #[error("trap: {site}")]
    Trap {
        /// The instruction, and the first thread that executed it.
        site: Site,
    },
    /// Nested calls need more stack than a thread has.
    #[error("the stack of calls has no room: {site}")]
    StackOverflow {
        /// The function that was called, and the first thread that called it.
        site: Site,
    },
    /// An indirect call of an address at which there is no function with the call's parameters.
    #[error("a call of an address without a function: {site}")]
    BadCall {
        /// The call, and the first thread that made it.
        site: Site,
    },
    /// `free` of an address that `malloc` did not return, or that is free already.
    #[error("free of {address:#x}, where nothing is allocated: {site}")]
    BadFree {
        /// The address passed to `free`.
        address: u64,
        /// The call, and the thread that made it.
        site: Site,
    },
    /// The kernel called `__assertfail`: a condition that it asserts does not hold.
    #[error("an assertion failed: {site}")]
    Assert {
        /// The call, and the thread that made it.
        site: Site,
    },
    /// All threads of a block wait at barriers that can never be completed.
    #[error("no thread can go on, all wait at barriers: {site}")]
    BarrierDeadlock {
        /// The barrier instruction at which the first of them waits.
        site: Site,
    },
    /// A barrier number above 15, or a number of threads that is not a multiple of 32.
    #[error("bad barrier operand {value}: {site}")]
    BadBarrier {
        /// The value of the wrong operand.
        value: u32,
        /// The instruction, and the first thread that executed it.
        site: Site,
    },
    /// The launch exceeded its deadline or its budget of instructions.
    #[error("the launch took too long: {site}")]
    Timeout {
        /// The instruction at which the limit was noticed.
        site: Site,
    },
    /// The launch was stopped, for instance by [`crate::Control::stop`].
    #[error("the launch was stopped")]
    Stopped,
    /// The host has no memory for the registers, local memory or shared memory of the kernel's blocks.
    #[error("no memory for the registers, local and shared memory of its blocks")]
    OutOfMemory {
        /// Whether some blocks had already run, so that memory may have changed.
        begun: bool,
    },
    /// The launch does not fit the kernel: its shape, its parameters, or the memory that it asks for.
    #[error("bad launch: {0}")]
    BadLaunch(&'static str),
}

const fn access(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

impl Fault {
    /// Returns the fault of a launch that its control has stopped.
    pub(crate) const fn halted(halt: Halt, site: Site) -> Self {
        match halt {
            Halt::Stopped => Self::Stopped,
            Halt::TimedOut => Self::Timeout { site },
        }
    }

    /// Returns the `CUresult` that CUDA's driver reports for this fault.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            // CUDA_ERROR_INVALID_VALUE
            Self::BadLaunch(_) => 1,
            // CUDA_ERROR_OUT_OF_MEMORY
            Self::OutOfMemory { .. } => 2,
            // CUDA_ERROR_ILLEGAL_ADDRESS
            Self::Illegal { .. }
            | Self::SharedOutOfBounds { .. }
            | Self::LocalOutOfBounds { .. }
            | Self::ParamOutOfBounds { .. } => 700,
            // CUDA_ERROR_LAUNCH_TIMEOUT: on a GPU, a barrier that is never completed hangs until the watchdog
            // ends it.
            Self::Timeout { .. } | Self::BarrierDeadlock { .. } => 702,
            // CUDA_ERROR_ASSERT
            Self::Assert { .. } => 710,
            // CUDA_ERROR_HARDWARE_STACK_ERROR
            Self::StackOverflow { .. } => 714,
            // CUDA_ERROR_INVALID_PC
            Self::BadCall { .. } => 718,
            // CUDA_ERROR_ILLEGAL_INSTRUCTION
            Self::BadBarrier { .. } => 715,
            // CUDA_ERROR_MISALIGNED_ADDRESS
            Self::Misaligned { .. } => 716,
            // CUDA_ERROR_LAUNCH_FAILED
            Self::Trap { .. } | Self::BadFree { .. } | Self::Stopped => 719,
        }
    }
}
