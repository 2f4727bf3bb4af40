//! One function behind a vfio-user socket, served to virtual machines until the process is told to stop.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use vgpu_vfio_user::{Function, FunctionSocket, SharedRam};

use crate::lifetime::{Lifetime, Served};

/// The socket at which a function is served, and the conditions for its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionSocketOptions<'a> {
    /// Path of the vfio-user socket.
    pub(crate) path: &'a Path,
    /// Group whose users may connect, besides this process's user.
    pub(crate) group: Option<u32>,
    /// Whether the end of stdin stops the function.
    pub(crate) watch_stdin: bool,
}

/// Serves the function until `lifetime` ends. Calls `announce` when machines can connect, and `end` when none
/// is served any more. `served` is what can be asked of it.
pub(crate) fn serve_machine<T>(
    lifetime: &Lifetime,
    place: FunctionSocketOptions<'_>,
    function: Arc<dyn Function>,
    ram: SharedRam,
    served: Served,
    announce: impl FnOnce(Served) -> Result<T>,
    end: impl FnOnce(),
) -> Result<()> {
    let path = place.path;
    lifetime.watch(place.watch_stdin, Arc::clone(&served.status))?;
    let mut socket = FunctionSocket::bind(path, place.group, function, ram)?;
    lifetime.serve("vfio-user", move || socket.serve())?;
    // What is announced stays until the end, such as the control socket.
    let ended = announce(served).and_then(|_announced| lifetime.wait());
    end();
    // Unless it has ended, the thread still waits on the socket and cannot remove its file.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            ended.and(Err(error).with_context(|| format!("remove {}", path.display())))
        }
        _ => ended,
    }
}
