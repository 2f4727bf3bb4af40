//! UNIX sockets by path: servers that listen, and clients that connect. A path may be longer than a socket
//! address can hold.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chownat, fchmod, fstat, open};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::Gid;

/// Maximum number of connections that wait to be accepted. Beyond it a guest's connection is refused.
const BACKLOG: i32 = 256;

/// Calls `act` with a socket address for `path`, which may be longer than an address can hold.
fn with_address<T>(path: &Path, act: impl FnOnce(&SocketAddrUnix) -> rustix::io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok(act(&SocketAddrUnix::new(short.as_path())?)?)
}

/// Makes a socket that listens at `path`, for this user alone.
pub(crate) fn listen_at(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    // The name in the file system gets the socket's mode, so there is no moment in which others could
    // connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    with_address(path, |address| bind(&socket, address))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Reason for which a service cannot listen at a path.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens there.
    #[error("listen at {path}: another process does")]
    Served {
        /// Path of the socket.
        path: PathBuf,
    },
    /// Something else is there, which is not removed.
    #[error("listen at {path}: a file that is no socket is there; remove it, or name another path")]
    NoSocket {
        /// Path of the file.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("{what} {path}")]
    File {
        /// Operation that failed, such as "remove".
        what: &'static str,
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
}

/// Listens at `path` for stream connections of this user and, with `group`, of that group's users, because
/// hypervisors often run as users of their own. A socket that a dead process left there is removed first.
///
/// # Errors
/// The error says whether another process listens there, whether something else is there, or which operation
/// failed.
pub fn listen_for(path: &Path, group: Option<u32>) -> Result<OwnedFd, ListenError> {
    let failed = |what| move |source| ListenError::File { what, path: path.to_owned(), source };
    if let Ok(data) = std::fs::symlink_metadata(path) {
        if !data.file_type().is_socket() {
            return Err(ListenError::NoSocket { path: path.to_owned() });
        }
        match connect_to(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed("remove"))?;
            }
            // The connection was accepted, or waits to be.
            _ => return Err(ListenError::Served { path: path.to_owned() }),
        }
    }
    let listener = listen_at(path, SocketType::STREAM).map_err(failed("listen at"))?;
    if let Some(group) = group {
        open_to(path, group).map_err(|error| {
            // Nobody serves it. It may be gone already.
            let _ = std::fs::remove_file(path);
            failed("give a group")(error)
        })?;
    }
    Ok(listener)
}

/// Lets a group's users connect to a socket of this process. A file that has replaced the socket meanwhile is
/// left alone.
fn open_to(path: &Path, group: u32) -> io::Result<()> {
    let socket = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let about = fstat(&socket)?;
    let is_socket = rustix::fs::FileType::from_raw_mode(about.st_mode) == rustix::fs::FileType::Socket;
    if !is_socket || about.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is not the socket that was made there"));
    }
    // A descriptor of this kind has no other name by which its mode could be set.
    let name = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
    chownat(CWD, &name, None, Some(Gid::from_raw(group)), AtFlags::empty())?;
    std::fs::set_permissions(&name, PermissionsExt::from_mode(0o660))
}

/// Connects a stream socket to `path`. The socket does not block, so that a listener that accepts no
/// connection is not waited for.
pub fn connect_to(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    with_address(path, |address| connect(&socket, address))?;
    Ok(socket)
}

/// Connects to the socket of a BAR, such as `resource0` in the directory of its function, as a guest process
/// does.
///
/// # Errors
/// The system reports the error, such as that nobody listens at `path`.
pub fn connect_bar(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    with_address(path, |address| connect(&socket, address))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_listener_makes_room_and_a_living_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(listen_for(&path, None).unwrap());
        let own = rustix::process::getegid().as_raw();
        let living = listen_for(&path, Some(own)).expect("nobody listens any more");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(matches!(listen_for(&path, None), Err(ListenError::Served { .. })));
        drop(living);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "not a socket").unwrap();
        assert!(matches!(listen_for(&path, None), Err(ListenError::NoSocket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"not a socket");
    }
}
