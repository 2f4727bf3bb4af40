//! The setup: the first packet that a worker receives.

use serde::{Deserialize, Serialize};
use vgpu_device::Limits;

/// Size of the longest setup in bytes.
pub(crate) const SETUP_MAX: usize = 0x8000;

/// A range of a file that is sent with the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRange {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The user whose rights a worker has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerUser {
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// All groups of the user. Device files may belong to any of them.
    pub(crate) groups: Vec<u32>,
}

/// The part of a setup that every protocol has.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Numbered {
    /// Number of the protocol that the device's process speaks.
    #[serde(default)]
    pub(crate) protocol: u32,
}

/// The setup of a worker. It is sent with the files of the status page, the ring, the window, of the return
/// area if it lies in guest pages, and of the lock if there is one, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// Number of the protocol that the device's process speaks.
    #[serde(default)]
    pub(crate) protocol: u32,
    pub(crate) session: u32,
    pub(crate) channel: u32,
    pub(crate) process: u32,
    pub(crate) wakes: bool,
    /// Range of the whole window.
    pub(crate) window: FileRange,
    /// Range of the channel's area in the window.
    pub(crate) area: FileRange,
    /// Range of the return area, if it lies in guest pages.
    pub(crate) returns: Option<FileRange>,
    /// Whether there is a lock for the worker to keep.
    pub(crate) lock: bool,
    /// Time on the device's clock, in nanoseconds.
    pub(crate) now: u64,
    pub(crate) limits: Limits,
    /// User that the worker becomes, or `None` to keep the user of the device's process.
    pub(crate) identity: Option<WorkerUser>,
    /// Whether the worker may connect to UNIX sockets.
    pub(crate) connects: bool,
    /// Whether the worker names refused system calls on standard error.
    pub(crate) explains: bool,
    /// Log level in the form of `tracing`.
    pub(crate) log: String,
    /// Description from which the program makes the executor.
    pub(crate) executor: serde_json::Value,
}
