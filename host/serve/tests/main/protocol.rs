//! Tests with a VMM that breaks the vfio-user protocol. It loses its connection, the process says why, and
//! serves the next one.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::serve::Served;

/// Time limit for an end on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
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
fn a_vmm_that_breaks_the_protocol_loses_its_connection_and_the_next_one_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("device");
    let bus = format!("vfio-user:{}", socket.display());
    let served = Served::start(folder.path(), &["--bus", &bus, "--executor", "null"]);
    is_served(&socket);
    for (what, message) in [
        ("a text without an end", sized(b"{\"capabilities\":{}}")),
        ("a size of less than the header", version(4, b"")),
        ("a size of more memory than there is", version(u32::MAX, b"")),
    ] {
        let mut vmm = UnixStream::connect(&socket).unwrap();
        vmm.write_all(&message).unwrap();
        vmm.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // It ends without a reset, which would end QEMU.
        vmm.read_to_end(&mut rest).unwrap();
        // The first is answered by an error, because it ends where it says.
        assert!(rest.is_empty() || rest[8] == 0x21, "{what}: {rest:?}");
        is_served(&socket);
    }
    let (_, errors) = served.end_with_errors();
    for field in
        ["VERSION is refused because of its text", "VERSION with size 0x4", "VERSION with size 0xffffffff"]
    {
        assert_eq!(errors.matches(field).count(), 1, "{field}: {errors}");
    }
    assert!(!socket.exists(), "the file is left");
}
