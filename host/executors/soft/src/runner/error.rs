//! Errors of tasks, and how they are reported to the program.

use vgpu_arena::{ArenaError, Illegal};
use vgpu_device::OutOfMemory;
use vgpu_ptx::Halt;
use vgpu_simt::Fault;

use super::copy::CopyError;
use crate::gemm::GemmError;
use crate::memory::VirtualError;
use crate::status;

/// Reason for which a task was not carried out completely.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// A copy or a fill failed.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A matrix product or a solve failed.
    #[error(transparent)]
    Gemm(#[from] GemmError),
    /// A call of virtual memory management failed.
    #[error(transparent)]
    VirtualMemory(#[from] VirtualError),
    /// A kernel failed with a fault.
    #[error("kernel {name}: {fault}")]
    Kernel {
        /// Mangled name of the kernel.
        name: String,
        /// The fault and its position.
        fault: Fault,
    },
    /// There is no memory for the session's own needs.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

impl TaskError {
    /// Returns the mangled name of the kernel that failed; empty if it was no kernel.
    pub(super) fn kernel(&self) -> &str {
        if let Self::Kernel { name, .. } = self { name } else { "" }
    }

    /// Returns the reason, without the kernel's name.
    pub(super) fn reason(&self) -> String {
        if let Self::Kernel { fault, .. } = self { fault.to_string() } else { self.to_string() }
    }

    /// Returns the device address of an illegal access, if that is the reason.
    pub(super) fn address(&self) -> Option<u64> {
        match self {
            Self::Kernel { fault: Fault::Illegal { address, .. }, .. }
            | Self::Copy(CopyError::Illegal(Illegal { address, .. }))
            | Self::Gemm(GemmError::Illegal { address, .. }) => Some(*address),
            _ => None,
        }
    }

    /// Returns the `CUresult` and whether it is sticky, or `None` if the session is ending and the program
    /// made no error.
    pub(super) fn code(&self) -> Option<(u32, bool)> {
        Some(match self {
            Self::Copy(CopyError::Illegal(_)) => (status::ILLEGAL_ADDRESS, true),
            Self::Copy(CopyError::Halted(Halt::TimedOut)) => (status::LAUNCH_TIMEOUT, true),
            Self::Copy(CopyError::Shape) | Self::VirtualMemory(VirtualError::Invalid(_)) => {
                (status::INVALID_VALUE, false)
            }
            Self::VirtualMemory(VirtualError::Arena(error)) => match error {
                ArenaError::Map { .. } => (status::OUT_OF_MEMORY, false),
                _ => (status::INVALID_VALUE, false),
            },
            Self::OutOfMemory(_)
            | Self::VirtualMemory(
                VirtualError::OutOfMemory(_) | VirtualError::NoAddresses(_) | VirtualError::TooMany(_),
            ) => (status::OUT_OF_MEMORY, false),
            Self::Gemm(error) => (error.code()?, error.sticky()),
            Self::Copy(CopyError::Halted(Halt::Stopped)) | Self::Kernel { fault: Fault::Stopped, .. } => {
                return None;
            }
            Self::Kernel {
                fault: fault @ (Fault::BadLaunch(_) | Fault::OutOfMemory { begun: false }),
                ..
            } => (fault.code(), false),
            Self::Kernel { fault, .. } => (fault.code(), true),
        })
    }
}
