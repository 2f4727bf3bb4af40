//! Tests with a VMM that breaks the vfio-user protocol, so that the crate that implements it panics. The
//! process ends with an error and leaves nothing that keeps the next from its sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::serve::Served;

/// Time limit for an end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Size in bytes of a message's header, and of the versions after it.
const HEADER: u32 = 16;
const VERSIONS: u32 = 4;

/// Returns a request for the protocol's version whose header states `size`, and whose text is `text`.
fn version(size: u32, text: &[u8]) -> Vec<u8> {
    const VERSION: u16 = 1;
    let mut message = Vec::new();
    for half in [0u16, VERSION] {
        message.extend(half.to_le_bytes());
    }
    for word in [size, 0, 0] {
        message.extend(word.to_le_bytes());
    }
    message.extend([0; VERSIONS as usize]);
    message.extend(text);
    message
}

/// Returns a request whose header states the right size.
fn sized(text: &[u8]) -> Vec<u8> {
    version(HEADER + VERSIONS + text.len() as u32, text)
}

/// Connects as a VMM does, and waits for the answer.
fn is_served(socket: &Path) {
    let mut vmm = UnixStream::connect(socket).unwrap();
    vmm.set_read_timeout(Some(PATIENCE)).unwrap();
    vmm.write_all(&sized(b"{\"capabilities\":{}}\0")).unwrap();
    let mut header = [0; HEADER as usize];
    vmm.read_exact(&mut header).unwrap();
    // The command, and the flag of a reply without the one of an error.
    assert_eq!((&header[2..4], header[8]), (&[1, 0][..], 1), "{header:?}");
}

#[test]
fn a_vmm_that_breaks_the_protocol_ends_the_process_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, control) = (folder.path().join("device"), folder.path().join("vm1/control"));
    let bus = format!("vfio-user:{}", socket.display());
    let start = || Served::start(folder.path(), &["--bus", &bus, "--executor", "null"]);
    for (what, message) in [
        ("a text without an end", sized(b"{\"capabilities\":{}}")),
        ("a size of less than the header", version(4, b"")),
    ] {
        let served = start();
        is_served(&socket);
        let mut vmm = UnixStream::connect(&socket).unwrap();
        vmm.write_all(&message).unwrap();
        let begun = Instant::now();
        let (status, errors) = served.ended(PATIENCE);
        assert_eq!(status.code(), Some(1), "{what}: {status} {errors}");
        let said = "vgpu-device: the thread `vfio-user` panicked: ";
        assert_eq!(errors.matches(said).count(), 1, "{what}: {errors}");
        assert!(errors.lines().last().unwrap().starts_with(said), "{what}: {errors}");
        println!("{what}: ended after {:?}", begun.elapsed());
        // The VMM notices the end, too.
        vmm.set_read_timeout(Some(PATIENCE)).unwrap();
        match vmm.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("{what}: {other:?}"),
        }
        assert!(!socket.exists() && !control.exists(), "{what}: files are left");
    }
    // The manager restarts the process, and the next VMM is served.
    let served = start();
    is_served(&socket);
    assert_eq!(served.end(), "");
}
