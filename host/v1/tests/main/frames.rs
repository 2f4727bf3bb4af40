//! Recorded frames of the mediator's socket, and an end of it that is played by the test.
//!
//! The frames were written by hand from the worked examples of the protocol's description.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use vgpu_device_v1::{Client, Mediator, Properties, Server};
use vgpu_host_testing::guest::PATIENCE;

use crate::driver::{Guest, bare};

/// Returns the header of a frame: magic, kind, machine 10, request, pool A, priority 1, length.
pub(crate) fn head(kind: u8, request: u8, bytes: u32) -> Vec<u8> {
    let mut head = vec![0x55, 0x50, 0x47, 0x56, kind, 0, 0, 0, 10, 0, 0, 0, request, 0, 0, 0, b'A', 1, 0, 0];
    head.extend(bytes.to_le_bytes());
    head
}

/// Returns the headers of the frame and of a call of process 1234 of machine 10.
fn call(op: u8, seq: u8, args: &[u32], bytes: u32) -> Vec<u8> {
    let mut call = vec![0x55, 0x50, 0x47, 0x56, op, 0, 0, 0, seq, 0, 0, 0, 0xd2, 0x04, 0, 0x0a];
    call.extend((args.len() as u32).to_le_bytes());
    call.extend(bytes.to_le_bytes());
    call.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
    call.resize(88, 0);
    call
}

/// Returns the whole frame of a call.
pub(crate) fn frame(request: u8, op: u8, seq: u8, args: &[u32], data: &[u8]) -> Vec<u8> {
    let bytes = data.len() as u32;
    [&head(0x10, request, 88 + bytes)[..], &call(op, seq, args, bytes), data].concat()
}

/// Returns the whole frame of a result.
pub(crate) fn result(request: u8, seq: u8, status: u32, results: &[u64], data: &[u8]) -> Vec<u8> {
    let mut bytes = head(0x11, request, 88 + data.len() as u32);
    bytes.extend([0x55, 0x50, 0x47, 0x56, seq, 0, 0, 0]);
    bytes.extend(status.to_le_bytes());
    bytes.extend((results.len() as u32).to_le_bytes());
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(results.iter().flat_map(|result| result.to_le_bytes()));
    bytes.resize(24 + 88, 0);
    bytes.extend(data);
    bytes
}

pub(crate) fn folder() -> TempDir {
    TempDir::with_prefix_in("vgpu-v1-socket-", "/dev/shm").unwrap()
}

/// Starts a mediator's socket in a directory of its own.
pub(crate) fn listen(mediator: &Arc<Mediator>) -> (TempDir, PathBuf, Server) {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let server = Server::start(&path, mediator).unwrap();
    (dir, path, server)
}

/// Makes a socket at which the test listens, in a directory of its own.
pub(crate) fn socket() -> (TempDir, PathBuf, UnixListener) {
    let dir = folder();
    let path = dir.path().join("m.sock");
    let listener = UnixListener::bind(&path).unwrap();
    (dir, path, listener)
}

/// Makes a device whose mediator listens at `path`.
pub(crate) fn device(path: &Path) -> Guest {
    let guest = bare(Properties { vm_id: 10, ..Properties::default() });
    guest.device.attach(Box::new(Client::connect(path, guest.device.inlet())));
    guest
}

/// An end of the socket that the test plays.
pub(crate) struct Recorded(pub(crate) UnixStream);

impl Recorded {
    pub(crate) fn accept(listener: &UnixListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Checks that the other end sends these bytes.
    #[track_caller]
    pub(crate) fn expects(&mut self, bytes: &[u8]) {
        let mut found = vec![0; bytes.len()];
        self.0.read_exact(&mut found).unwrap();
        assert!(
            found == bytes,
            "{:02x?}\n{:02x?}",
            &found[..found.len().min(130)],
            &bytes[..bytes.len().min(130)]
        );
    }

    pub(crate) fn says(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }
}
