//! UNIX sockets by path: who listens at one, and who connects. A path may be longer than a socket address can
//! hold.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

/// Connections that may wait to be accepted. A guest that finds no room is told that nobody is there.
const BACKLOG: i32 = 256;

/// `act` on a socket address for `path`, which may be longer than one can hold.
fn with_address<T>(path: &Path, act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok(act(&SocketAddrUnix::new(short.as_path())?)?)
}

/// A socket that listens at `path`, for this user alone.
pub(crate) fn listen_at(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    // The name in the file system gets the socket's mode: there is no moment in which others could connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    with_address(path, |address| bind(&socket, address))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A stream socket connected to who listens at `path`, which does not block yet: who listens but takes nobody
/// is not waited for.
pub(crate) fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    with_address(path, |address| connect(&socket, address))?;
    Ok(socket)
}

/// Connects to the socket of a BAR, such as `resource0` in the folder of its function, as a guest process
/// does.
///
/// # Errors
/// The system's: nobody listens at `path`.
pub fn connect_bar(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    with_address(path, |address| connect(&socket, address))?;
    Ok(socket)
}
