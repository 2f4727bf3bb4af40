//! One function behind a vfio-user socket, served to virtual machines until the process is told to stop.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result};
use vgpu_vfio_user::{Function, FunctionSocket, SharedRam};

use crate::lifetime::{Status, when_asked};

/// Where a function is served, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Path of the vfio-user socket.
    pub(crate) path: &'a Path,
    /// Group whose users may connect, besides this process's user.
    pub(crate) group: Option<u32>,
    /// Whether the end of stdin stops the function.
    pub(crate) watch_stdin: bool,
}

/// Serves the function until the process is told to stop. Calls `announce` when machines can connect, and
/// `end` when none is served any more. `status` returns what the function has done so far.
pub(crate) fn serve_machine<T>(
    place: Place<'_>,
    function: Arc<dyn Function>,
    ram: SharedRam,
    status: Status,
    announce: impl FnOnce(Status) -> Result<T>,
    end: impl FnOnce(),
) -> Result<()> {
    let path = place.path;
    let mut socket = FunctionSocket::bind(path, place.group, function, ram)?;
    let (told, stop) = mpsc::channel();
    let asked = told.clone();
    // The watching threads live as long as this process, so a failed send has no reader to tell.
    when_asked(place.watch_stdin, move || drop(asked.send(Ok(()))), Arc::clone(&status))?;
    thread::spawn(move || told.send(socket.serve()));
    let announced = announce(status)?;
    let ended = stop.recv().context("wait for the end")?;
    drop(announced);
    end();
    // The thread above still waits on the socket and cannot remove its file.
    std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    Ok(ended?)
}
