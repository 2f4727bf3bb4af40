//! The lock on a device of version 1, which admits one call at a time of the whole virtual machine.
//!
//! The lock is `flock` on the file that old guests lock too. It is opened for reading, which `flock` permits,
//! because old guests leave it writable for root alone. The file of owners beside it ([`crate::owners_file`])
//! records the last holder. A process that was the last holder finds the registers as it left them, unless an
//! old guest has made a call since: an old guest leaves its process id in `SCRATCH` and writes nothing to the
//! file of owners. So `SCRATCH` is always read first. The list of process ids that old guests keep is not
//! sufficient: other services cannot see it (systemd's `PrivateTmp`), and guests that open files by their own
//! `fopen` do not write it. A process that notices an old guest records it for all others until the machine
//! is rebooted ([`DeviceLockGuard::note_old_guest`]).

use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use vgpu_transport::parts::Descriptor;

use crate::lock_files::LockFiles;
use crate::owners_file::{LockRecord, OwnersFile, Registrant};
use crate::shared_file::{FilePurpose, shared};

/// The lock file and the file of owners, open.
#[derive(Debug)]
pub(crate) struct DeviceLock {
    files: LockFiles,
    /// The lock file, which is opened again if the program closes the descriptor.
    file: Mutex<Descriptor>,
    pub(crate) owners: OwnersFile,
}

/// The lock, held. No other process of this machine makes calls while the value lives.
#[derive(Debug)]
pub(crate) struct DeviceLockGuard<'a> {
    lock: &'a DeviceLock,
    number: RawFd,
    /// Whether this process was the last holder, as far as the file of owners states. Old guests do not write
    /// it.
    pub(crate) mine: bool,
    /// Whether old guests may be running.
    pub(crate) old_guests: bool,
    /// The process of a new guest that registered its pages as the window. An old guest may have replaced
    /// them.
    pub(crate) registered: Option<Registrant>,
}

impl DeviceLock {
    /// Opens the files.
    ///
    /// # Errors
    /// Returns the path of the file that cannot be opened, and why.
    pub(crate) fn open(files: LockFiles) -> Result<Self, (PathBuf, io::Error)> {
        let file = shared(&files.lock, FilePurpose::Locks).map_err(at(&files.lock))?;
        let file = Descriptor::adopt(file.into()).map_err(at(&files.lock))?;
        let owners = OwnersFile::open(files.owners.clone()).map_err(at(&files.owners))?;
        Ok(Self { files, file: Mutex::new(file), owners })
    }

    /// Waits for the lock, and records the token as the last holder's.
    pub(crate) fn acquire(&self, token: Option<u32>) -> io::Result<DeviceLockGuard<'_>> {
        let number = {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if !file.intact() {
                // The program closed the descriptor. Its number may name another file, so it is not closed
                // here.
                let again = Descriptor::adopt(shared(&self.files.lock, FilePurpose::Locks)?.into())?;
                core::mem::forget(core::mem::replace(&mut *file, again));
            }
            file.number()
        };
        flock(number, libc::LOCK_EX)?;
        // Dropping the guard releases the lock, also where an error follows.
        let mut guard =
            DeviceLockGuard { lock: self, number, mine: false, old_guests: false, registered: None };
        guard.old_guests =
            std::fs::metadata(&self.files.old_guest_pids).is_ok_and(|metadata| metadata.len() > 0);
        let LockRecord { mine, old_guests, registered } = self.owners.record_holder(token)?;
        guard.mine = mine;
        guard.old_guests |= old_guests;
        guard.registered = registered;
        Ok(guard)
    }
}

impl DeviceLockGuard<'_> {
    /// Records for all later holders that an old guest runs.
    pub(crate) fn note_old_guest(&mut self) -> io::Result<()> {
        if !self.old_guests {
            self.lock.owners.note_old_guest()?;
            self.old_guests = true;
        }
        Ok(())
    }

    /// Records the process whose pages are the window from now on; `None` means that they are no new guest's.
    pub(crate) fn set_registered(&mut self, registrant: Option<Registrant>) -> io::Result<()> {
        if self.registered != registrant {
            self.lock.owners.set_registered(registrant)?;
            self.registered = registrant;
        }
        Ok(())
    }

    /// Returns the registrant of the window if its process is dead or has released its token. `me` is the
    /// token of this process.
    pub(crate) fn abandoned_window(&self, me: Option<u32>) -> io::Result<Option<Registrant>> {
        let Some(registrant) = self.registered.filter(|registrant| registrant.token != me) else {
            return Ok(None);
        };
        // Whether a process without a token lives cannot be known, because it holds no record lock.
        let left = registrant.token.map_or(Ok(true), |token| self.lock.owners.is_free(token))?;
        Ok(left.then_some(registrant))
    }
}

impl Drop for DeviceLockGuard<'_> {
    fn drop(&mut self) {
        // If the program closed the descriptor, the kernel has released the lock, and the number may name
        // another file.
        let file = self.lock.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.number() == self.number && file.intact() {
            let _ = flock(self.number, libc::LOCK_UN);
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> (PathBuf, io::Error) + '_ {
    move |error| (path.to_owned(), error)
}

/// Calls `flock` by a raw system call, because the C library's may be a cancellation point.
fn flock(number: RawFd, operation: libc::c_int) -> io::Result<()> {
    loop {
        // SAFETY: any number may be asked for; no memory is involved.
        if unsafe { libc::syscall(libc::SYS_flock, number, operation) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EINTR) => {}
            error => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::super::shared_file::share_with_all;
    use super::*;

    fn files(dir: &Path) -> LockFiles {
        let at = |name: &str| dir.join(name);
        LockFiles { lock: at("lock"), owners: at("owners"), old_guest_pids: at("pids"), memory: None }
    }

    #[test]
    fn who_had_the_last_turn_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let device_lock = DeviceLock::open(files(dir.path())).unwrap();
        assert!(!device_lock.acquire(Some(3)).unwrap().mine, "nobody had one");
        assert!(device_lock.acquire(Some(3)).unwrap().mine);
        assert!(!device_lock.acquire(None).unwrap().mine, "who only looks is nobody");
        assert!(!device_lock.acquire(None).unwrap().mine);
        assert!(!device_lock.acquire(Some(3)).unwrap().mine);
        assert!(!device_lock.acquire(Some(3)).unwrap().old_guests);
        std::fs::write(dir.path().join("pids"), "1234\n").unwrap();
        assert!(device_lock.acquire(Some(3)).unwrap().old_guests);
    }

    /// Tests a lock file that old guests created as root, which other users can only read.
    #[test]
    fn a_turn_file_that_cannot_be_written_is_locked_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
        let device_lock = DeviceLock::open(files(dir.path())).unwrap();
        let number = device_lock.file.lock().unwrap().number();
        // SAFETY: asks for flags.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
        assert_eq!(
            flags & libc::O_ACCMODE,
            libc::O_RDONLY,
            "root could write, and must not ask for it either"
        );
        let guard = device_lock.acquire(Some(1)).unwrap();
        let other = shared(&path, FilePurpose::Locks).unwrap();
        assert!(flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).is_err(), "it is locked");
        drop(guard);
    }

    /// Tests a lock file that an older guest created as root with a mode that admits only root (Q29).
    #[test]
    fn a_turn_file_that_an_old_guest_left_to_root_is_opened_to_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!share_with_all(&path).unwrap(), "there is none");
        std::fs::write(&path, "").unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o644);
        assert!(share_with_all(&path).unwrap());
        assert_eq!(mode(), 0o666);
        set(0o644);
        drop(DeviceLock::open(files(dir.path())).unwrap());
        assert_eq!(mode(), 0o666, "whoever opens it and may does so");
        // A mode that an administrator chose is kept.
        for chosen in [0o600, 0o640, 0o660, 0o444] {
            set(chosen);
            assert!(!share_with_all(&path).unwrap());
            drop(DeviceLock::open(files(dir.path())).unwrap());
            assert_eq!(mode(), chosen);
        }
    }

    #[test]
    fn what_was_put_in_the_place_of_a_file_is_refused() {
        for (name, purpose) in [("lock", FilePurpose::Locks), ("owners", FilePurpose::Marks)] {
            let dir = tempfile::tempdir().unwrap();
            let (path, victim) = (dir.path().join(name), dir.path().join("victim"));
            let refused = || {
                assert!(shared(&path, purpose).is_err());
                assert_eq!(DeviceLock::open(files(dir.path())).unwrap_err().0, path);
                std::fs::remove_file(&path).unwrap();
            };
            std::os::unix::fs::symlink(&victim, &path).unwrap();
            refused();
            assert!(!victim.exists(), "nothing is made behind a link");
            std::fs::write(&victim, "somebody's").unwrap();
            std::os::unix::fs::symlink(&victim, &path).unwrap();
            refused();
            std::fs::hard_link(&victim, &path).unwrap();
            refused();
            let fifo = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: the text is ended.
            assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
            refused();
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "somebody's");
        }
    }

    #[test]
    fn a_turn_is_had_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (
            DeviceLock::open(files(dir.path())).unwrap(),
            shared(&dir.path().join("lock"), FilePurpose::Locks).unwrap(),
        );
        let guard = one.acquire(Some(0)).unwrap();
        let busy = flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
        drop(guard);
        flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).unwrap();
    }

    #[test]
    fn whose_pages_are_the_window_is_known_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let device_lock = DeviceLock::open(files(dir.path())).unwrap();
        let registrant = Registrant { token: Some(63), address: 0x1_2345_6000 };
        let mut guard = device_lock.acquire(Some(63)).unwrap();
        assert_eq!(guard.registered, None);
        guard.set_registered(Some(registrant)).unwrap();
        drop(guard);
        let guard = device_lock.acquire(Some(5)).unwrap();
        assert_eq!(guard.registered, Some(registrant));
        assert_eq!(guard.abandoned_window(Some(63)).unwrap(), None, "one's own");
        assert_eq!(guard.abandoned_window(Some(5)).unwrap(), Some(registrant), "nobody has the token");
        let owners = vgpu_transport::parts::LockFile::open(&dir.path().join("owners")).unwrap();
        assert!(owners.try_lock(63).unwrap());
        assert_eq!(guard.abandoned_window(Some(5)).unwrap(), None, "somebody has it");
        drop(guard);
        let mut guard = device_lock.acquire(Some(63)).unwrap();
        guard.set_registered(None).unwrap();
        drop(guard);
        assert_eq!(device_lock.acquire(None).unwrap().registered, None);
    }
}
