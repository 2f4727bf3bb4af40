//! What a worker is told when it starts, in the first packet of its socket.

use serde::{Deserialize, Serialize};
use vgpu_device::Limits;

/// The longest setup.
pub(crate) const SETUP_MAX: usize = 0x8000;

/// Memory in a file that comes with the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The user whose rights a worker has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// All groups of the user: device files may be a group's.
    pub(crate) groups: Vec<u32>,
}

/// The setup. With it come, in this order, the files of the board, the ring, the window, and the return area
/// if that is in guest pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) session: u32,
    pub(crate) channel: u32,
    pub(crate) process: u32,
    pub(crate) wakes: bool,
    /// The window, all of it.
    pub(crate) window: Place,
    /// The channel's area in the window.
    pub(crate) area: Place,
    /// The return area, if it is in guest pages.
    pub(crate) returns: Option<Place>,
    /// The device's clock, nanoseconds.
    pub(crate) now: u64,
    pub(crate) limits: Limits,
    /// What the worker is to become; `None`: it stays who it is.
    pub(crate) identity: Option<Identity>,
    /// It may connect to UNIX sockets.
    pub(crate) connects: bool,
    /// What is logged, as `tracing` has it.
    pub(crate) log: String,
    /// What the program makes the executor of.
    pub(crate) executor: serde_json::Value,
}
