//! The service manager's descriptor store (`FileDescriptorStoreMax=`): descriptors that it keeps for the next
//! process of this service, whatever becomes of this one. See sd_pid_notify_with_fds(3).
//!
//! Whether there is a store says the variable `FDSTORE`, with the number of descriptors. systemd sets it from
//! version 254 on. The unit sets it as well, for the 252 of Debian 12, which has the store and does not say so.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};

/// Variable that names the manager's socket.
const MANAGER: &str = "NOTIFY_SOCKET";
/// Variable with the number of descriptors that the manager keeps.
const KEPT: &str = "FDSTORE";
/// Maximum time for which a message waits for room in the manager's socket.
const ROOM_MOST: Duration = Duration::from_secs(5);
/// Maximum length of a name, by systemd's rules.
const NAME_MOST: usize = 255;

/// Reason for which nobody keeps descriptors for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoStore {
    /// No service manager has started this process.
    #[error("no service manager has started it")]
    NoManager,
    /// The manager says nothing of a store.
    #[error("its service manager keeps no descriptors (FileDescriptorStoreMax= and FDSTORE in its unit)")]
    None,
}

/// The store of the manager that has started this process.
#[derive(Debug)]
pub(crate) struct Store {
    socket: UnixDatagram,
    manager: SocketAddrUnix,
    most: usize,
}

impl Store {
    /// Finds the store.
    ///
    /// # Errors
    /// There is none, or the manager's socket has no address.
    pub(crate) fn of_manager() -> io::Result<Result<Self, NoStore>> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let Some(manager) = variable(MANAGER) else { return Ok(Err(NoStore::NoManager)) };
        let most = variable(KEPT).and_then(|most| most.to_str()?.parse().ok()).unwrap_or(0);
        if most == 0 {
            return Ok(Err(NoStore::None));
        }
        Self::at(&manager, most).map(Ok)
    }

    /// Returns the store of the manager at a socket, by its path, or by its abstract name written with a
    /// leading `@`.
    fn at(manager: &OsStr, most: usize) -> io::Result<Self> {
        let manager = match manager.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddrUnix::new_abstract_name(name)?,
            None => SocketAddrUnix::new(manager)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(ROOM_MOST))?;
        Ok(Self { socket, manager, most })
    }

    /// Returns the number of descriptors that the manager keeps.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// Has the manager keep a descriptor until it is removed or the service ends. The manager does not watch
    /// what it refers to: the next process judges that.
    pub(crate) fn keep(&self, name: &str, file: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&format!("FDSTORE=1\nFDNAME={}\nFDPOLL=0\n", checked(name)?), &[file])
    }

    /// Has the manager close all descriptors of a name.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={}\n", checked(name)?), &[])
    }

    fn send(&self, message: &str, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(files));
            }
            let bytes = [IoSlice::new(message.as_bytes())];
            let sent = sendmsg_addr(&self.socket, &self.manager, &bytes, &mut control, SendFlags::NOSIGNAL);
            match sent {
                Err(Errno::INTR) => {}
                sent => return sent.map(drop).map_err(Into::into),
            }
        }
    }
}

/// Checks a name by systemd's rules, by which other names are not kept, or would be other fields.
fn checked(name: &str) -> io::Result<&str> {
    let good = (1..=NAME_MOST).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    if good { Ok(name) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::SocketAddr;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

    use super::*;

    /// Receives a message as the manager does.
    fn heard(manager: &UnixDatagram) -> (String, Vec<OwnedFd>) {
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let read = recvmsg(manager, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::empty());
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        (String::from_utf8(bytes[..read.unwrap().bytes].to_vec()).unwrap(), files)
    }

    #[test]
    fn a_manager_is_given_descriptors_by_path_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("vgpu-store-{}", std::process::id());
        let file = tempfile::tempfile().unwrap();
        let inode = |file: BorrowedFd<'_>| rustix::fs::fstat(file).unwrap().st_ino;
        for (manager, socket) in [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                format!("@{name}").into(),
            ),
        ] {
            let store = Store::at(&socket, 7).unwrap();
            assert_eq!(store.most(), 7);
            store.keep("ram-1f-2a", file.as_fd()).unwrap();
            let (said, files) = heard(&manager);
            assert_eq!(said, "FDSTORE=1\nFDNAME=ram-1f-2a\nFDPOLL=0\n");
            assert_eq!(
                files.iter().map(|file| inode(file.as_fd())).collect::<Vec<_>>(),
                [inode(file.as_fd())]
            );
            store.remove("ram-1f-2a").unwrap();
            let (said, files) = heard(&manager);
            assert_eq!((said.as_str(), files.len()), ("FDSTOREREMOVE=1\nFDNAME=ram-1f-2a\n", 0));
            drop(manager);
            assert!(store.remove("ram-1f-2a").is_err());
        }
    }

    #[test]
    fn names_keep_systemds_rules() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let store = Store::at(path.as_os_str(), 1).unwrap();
        let long = "x".repeat(NAME_MOST + 1);
        for name in ["", "a:b", "a\nREADY=1", "a b", "ä", &long] {
            assert!(store.remove(name).is_err(), "{name:?}");
        }
        store.remove(&long[1..]).unwrap();
    }
}
