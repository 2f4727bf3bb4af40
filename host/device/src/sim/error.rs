//! Errors of serving a directory.

use std::path::{Path, PathBuf};

use vgpu_wire::pci::PciAddress;

use crate::device::DeviceError;
use crate::memory::window::WindowError;
use crate::unix_socket::ListenError;

/// Reason for which a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The list has no device, or two devices with the same address.
    #[error("serve {folder}: {reason}")]
    Devices {
        /// Path of the bus's directory.
        folder: PathBuf,
        /// Description of the error in the list of devices.
        reason: &'static str,
    },
    /// Another process serves the directory.
    #[error("serve {folder}: another process does")]
    Served {
        /// Path of the bus's directory.
        folder: PathBuf,
    },
    /// A file or socket cannot be made.
    #[error("{what} {path}")]
    File {
        /// Operation that failed, such as "create".
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The control socket cannot be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A window cannot be made.
    #[error("give {address} its window: {source}")]
    Window {
        /// The device's address.
        address: PciAddress,
        /// The error of the file or mapping.
        #[source]
        source: WindowError,
    },
    /// A device cannot be made.
    #[error("put a device at {address}: {source}")]
    Device {
        /// The device's address.
        address: PciAddress,
        /// Error of the device model.
        #[source]
        source: DeviceError,
    },
}

impl SimError {
    /// Returns the error that `what` failed with for the file at `path`.
    pub fn file(what: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::File { what, path: path.to_owned(), source: source.into() }
    }
}
