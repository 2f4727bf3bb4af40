//! Simulates a VMM that violates the vfio-user protocol.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Request for the protocol's version whose text lacks the terminating NUL: message id, command 1, size, no
/// flags, no error, version 0.0, the text.
const MESSAGE: &[u8] = b"\0\0\x01\0\x16\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0{}";

/// Sends the request to the socket at `path` and waits until the connection ends.
pub fn break_protocol(path: &Path) -> Result<ExitCode> {
    let mut socket = UnixStream::connect(path).with_context(|| format!("connect to {}", path.display()))?;
    socket.write_all(MESSAGE).context("send the request")?;
    match socket.read_to_end(&mut Vec::new()) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error).context("wait for the end"),
        _ => Ok(ExitCode::SUCCESS),
    }
}
