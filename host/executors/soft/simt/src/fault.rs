//! Why a kernel could not be lowered, and why a launch ended early.

use std::fmt;

use vgpu_ptx::{Halt, Spent};

/// What the engine cannot run, found when a kernel is lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: `{instruction}`")]
pub struct EngineError {
    /// Line of the module's text.
    pub line: u32,
    /// What is wrong or missing.
    pub what: String,
    /// The instruction, in the notation of the intermediate form.
    pub instruction: String,
}

/// Why there is no program of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The engine cannot run it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Lowering it was given up.
    #[error(transparent)]
    Spent(#[from] Spent),
}

/// Where a fault happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Line of the module's text.
    pub line: u32,
    /// `%ctaid`
    pub block: [u32; 3],
    /// `%tid` of the first thread concerned.
    pub thread: [u32; 3],
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "line {}, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})", self.line)
    }
}

/// Why a launch ended early. The first fault of any block is the launch's; the other blocks stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An address that no allocation of device memory holds, or a write to read-only memory.
    #[error("illegal {} at {address:#x}: {site}", access(*.write))]
    Illegal {
        /// The device address.
        address: u64,
        /// A store or a read-modify-write.
        write: bool,
        /// The instruction and thread of the access.
        site: Site,
    },
    /// An address that is not a multiple of the access's size.
    #[error("misaligned address {address:#x}: {site}")]
    Misaligned {
        /// The address, in its own space.
        address: u64,
        /// The instruction and thread of the access.
        site: Site,
    },
    /// Beyond the block's shared memory.
    #[error("shared memory address {address:#x} out of bounds: {site}")]
    SharedOutOfBounds {
        /// The address, from the start of shared memory.
        address: u64,
        /// The instruction and thread of the access.
        site: Site,
    },
    /// Beyond the thread's local memory.
    #[error("local memory address {address:#x} out of bounds: {site}")]
    LocalOutOfBounds {
        /// The address, from the start of local memory.
        address: u64,
        /// The instruction and thread of the access.
        site: Site,
    },
    /// Beyond the launch's parameters, or a write to them.
    #[error("parameter address {address:#x} out of bounds: {site}")]
    ParamOutOfBounds {
        /// The address, from the start of the parameters.
        address: u64,
        /// The instruction and thread of the access.
        site: Site,
    },
    /// The kernel executed `trap`.
    #[error("trap: {site}")]
    Trap {
        /// The instruction and thread.
        site: Site,
    },
    /// Calls that are nested deeper than the stack has room for.
    #[error("the stack of calls has no room: {site}")]
    StackOverflow {
        /// The function that was called, and the first thread concerned.
        site: Site,
    },
    /// A call of an address at which there is no function with its parameters.
    #[error("a call of an address without a function: {site}")]
    BadCall {
        /// The call and the first thread concerned.
        site: Site,
    },
    /// `free` of an address that `malloc` has not given, or that has been freed.
    #[error("free of {address:#x}, where nothing is allocated: {site}")]
    BadFree {
        /// The address.
        address: u64,
        /// The call and the thread.
        site: Site,
    },
    /// A condition that the kernel asserts does not hold.
    #[error("an assertion failed: {site}")]
    Assert {
        /// The call of `__assertfail` and the thread.
        site: Site,
    },
    /// All threads wait at barriers that nobody can complete any more.
    #[error("no thread can go on, all wait at barriers: {site}")]
    BarrierDeadlock {
        /// Where the first of them waits.
        site: Site,
    },
    /// A barrier number above 15, or a count of threads that no barrier takes.
    #[error("bad barrier operand {value}: {site}")]
    BadBarrier {
        /// Value of the operand.
        value: u32,
        /// The instruction and thread.
        site: Site,
    },
    /// The launch took longer than it may.
    #[error("the launch took too long: {site}")]
    Timeout {
        /// Where it was found.
        site: Site,
    },
    /// [`crate::Control::stop`] was called.
    #[error("the launch was stopped")]
    Stopped,
    /// There is no memory for what the kernel needs of the host. `begun`: some of it has been carried out.
    #[error("no memory for the registers, local and shared memory of its blocks")]
    OutOfMemory {
        /// Whether some of the kernel has been carried out.
        begun: bool,
    },
    /// The launch does not fit the kernel.
    #[error("bad launch: {0}")]
    BadLaunch(&'static str),
}

const fn access(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

impl Fault {
    /// What a launch ends with that is told to halt.
    pub(crate) const fn halted(halt: Halt, site: Site) -> Self {
        match halt {
            Halt::Stopped => Self::Stopped,
            Halt::TimedOut => Self::Timeout { site },
        }
    }

    /// The `CUresult` that a GPU's driver would report.
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
            // CUDA_ERROR_LAUNCH_TIMEOUT: a barrier that is never met hangs until the watchdog comes
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
