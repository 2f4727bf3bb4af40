//! Readiness for systemd by sd_notify(3): one datagram to the socket named by `NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::{Context as _, Result};

/// Tells the service manager that guests can connect. Does nothing if the process has none.
pub(crate) fn ready() -> Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) => send(&socket, b"READY=1").context("tell systemd that the device is ready"),
        None => Ok(()),
    }
}

/// Sends a datagram to a socket by its path, or by its abstract name written with a leading `@`.
fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_it_by_path_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("vgpu-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (manager, socket) in [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ] {
            send(&socket, b"READY=1").unwrap();
            let mut heard = [0; 16];
            let bytes = manager.recv(&mut heard).unwrap();
            assert_eq!(&heard[..bytes], b"READY=1");
        }
        assert!(send(OsStr::new("/does/not/exist"), b"").is_err());
    }
}
