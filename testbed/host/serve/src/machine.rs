//! One function behind a vfio-user socket, served to machines until told to stop.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;
use vgpu_vfio_user::{Function, FunctionSocket, SharedRam};

use crate::lifetime::{ready, when_asked};

/// Serves the function at `path`, and calls `end` when that is over. `status` answers what the function has
/// done so far.
pub(crate) fn serve_machine(
    path: &Path,
    function: Arc<dyn Function>,
    ram: SharedRam,
    watch_stdin: bool,
    status: impl Fn() -> Value + Send + 'static,
    end: impl FnOnce(),
) -> Result<()> {
    let mut socket = FunctionSocket::bind(path, function, ram)?;
    let (told, stop) = mpsc::channel();
    let asked = told.clone();
    // The other end goes when this process does.
    when_asked(watch_stdin, move || drop(asked.send(Ok(()))), status)?;
    thread::spawn(move || told.send(socket.serve()));
    ready()?;
    let ended = stop.recv().context("wait for the end")?;
    end();
    // The thread above is still in the socket, which it would have removed.
    std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    Ok(ended?)
}
