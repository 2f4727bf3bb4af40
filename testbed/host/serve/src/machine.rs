//! One function behind a vfio-user socket, served to machines until told to stop.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result};
use vgpu_vfio_user::{Function, FunctionSocket, SharedRam};

use crate::lifetime::{Status, when_asked};

/// Where a function is served, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Path of the socket.
    pub(crate) path: &'a Path,
    /// A group whose users may connect, too.
    pub(crate) group: Option<u32>,
    /// Whether the end of stdin ends it.
    pub(crate) watch_stdin: bool,
}

/// Serves the function, calls `announce` when machines can come, and `end` when that is over. `status`
/// answers what the function has done so far.
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
    // The other end goes when this process does.
    when_asked(place.watch_stdin, move || drop(asked.send(Ok(()))), Arc::clone(&status))?;
    thread::spawn(move || told.send(socket.serve()));
    let announced = announce(status)?;
    let ended = stop.recv().context("wait for the end")?;
    drop(announced);
    end();
    // The thread above is still in the socket, which it would have removed.
    std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    Ok(ended?)
}
