//! Why a function cannot be opened.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::registers::RegisterError;
use crate::session_error::GoneReason;
use crate::sysfs::PciFunction;

/// Why a function cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A file of the function cannot be opened. `source.kind()` is `PermissionDenied` if the user lacks
    /// permission, `ConnectionRefused` or `NotFound` if the simulated bus has no device process.
    #[error("failed to open {}", path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Error of `open` or `connect`.
        #[source]
        source: io::Error,
    },
    /// A file of the function cannot be mapped.
    #[error("failed to map {}", path.display())]
    Map {
        /// Path of the file.
        path: PathBuf,
        /// Error of `mmap`.
        #[source]
        source: io::Error,
    },
    /// Memory decoding is off (`enable` reads 0). The launcher, as root, turns it on.
    #[error("memory decoding of {function} is off")]
    Disabled {
        /// PCI address of the function.
        function: String,
    },
    /// The registers read all ones, so the function is gone.
    #[error("failed to read the registers of {function}: the device is gone")]
    Gone {
        /// PCI address of the function.
        function: String,
    },
    /// A file by which the processes of this machine share a device of version 1 cannot be opened.
    #[error("failed to open {}, by which processes take turns at the device", path.display())]
    Turn {
        /// Path of the file.
        path: PathBuf,
        /// Error of `open`.
        #[source]
        source: io::Error,
    },
    /// The device answers, but the mediator behind it does not, or rejects this machine.
    #[error("{function} has nothing behind it: {reason}")]
    NoHost {
        /// PCI address of the function.
        function: String,
        /// Evidence that the mediator cannot be used.
        reason: GoneReason,
    },
    /// The registers state version 1 of the contract, but the BARs have the sizes of version 2.
    #[error(
        "{function} says version 1 of the VGPU-STUB contract (capabilities {capabilities:#x}), and has BARs of version 2"
    )]
    Version1 {
        /// PCI address of the function.
        function: String,
        /// Capability bits of the function.
        capabilities: u32,
    },
    /// The registers are not those of a VGPU-STUB device, or contradict each other.
    #[error("{function} is no usable VGPU-STUB device: {what}")]
    Strange {
        /// PCI address of the function.
        function: String,
        /// Description of the contradiction.
        what: String,
    },
    /// The window's file is shorter than the window that the registers announce.
    #[error("{} holds {holds} bytes of a window of {announced}", path.display())]
    ShortWindow {
        /// Path of the window's file.
        path: PathBuf,
        /// Size of the file in bytes.
        holds: u64,
        /// Size of the window in bytes, as the registers announce it.
        announced: u64,
    },
    /// The device's facts have no memory, or no driver version.
    #[error("the facts of {function} are empty")]
    NoFacts {
        /// PCI address of the function.
        function: String,
    },
    /// This process is a forked child of one that opened a device.
    #[error("a forked child cannot open {function} after its parent did")]
    Forked {
        /// PCI address of the function.
        function: String,
    },
}

impl OpenError {
    /// Returns the error for a failed register read of a function.
    pub fn from_read(function: &PciFunction, error: &RegisterError) -> Self {
        let function = function.address.to_string();
        match error {
            RegisterError::Forked => Self::Forked { function },
            RegisterError::Refused(status) => {
                Self::Strange { function, what: format!("a register read failed with {status}") }
            }
            RegisterError::Closed(_) | RegisterError::TimedOut | RegisterError::Lost(_) => {
                Self::Gone { function }
            }
        }
    }
}
