//! The lock on a device of version 1: one call at a time for the whole virtual machine, and what the
//! registers held when this process last had the lock.
//!
//! The lock is `flock` on the file that old guests lock too. It is opened for reading, which is all that
//! `flock` needs: old guests leave it writable for root alone. The file of owners beside it
//! ([`super::owners_file`]) says who had the lock last. A process that had it itself finds the registers as
//! it left them, unless an old guest was there, which leaves its process id in `SCRATCH` and writes nothing
//! to that file. So that register is always read first. The list of process ids that old guests keep is not
//! enough: it lies where no other service sees it (systemd's `PrivateTmp`), and guests that open files by
//! their own `fopen` do not make it. A process that meets an old guest tells the others, for as long as the
//! machine runs ([`DeviceLockGuard::meet`]).

use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::descriptor::Descriptor;

use super::lock_files::LockFiles;
use super::owners_file::{OwnersFile, Registrant, Seen};
use super::shared_file::{For, shared};

/// The files, open.
#[derive(Debug)]
pub(crate) struct DeviceLock {
    files: LockFiles,
    /// The file that is locked.
    file: Mutex<Descriptor>,
    pub(crate) owners: OwnersFile,
}

/// The lock, held: no other process of this machine makes calls while it lives.
#[derive(Debug)]
pub(crate) struct DeviceLockGuard<'a> {
    lock: &'a DeviceLock,
    number: RawFd,
    /// This process had the lock last, as far as new guests know.
    pub(crate) mine: bool,
    /// There may be old guests.
    pub(crate) company: bool,
    /// What a new guest has registered as the window, if it still is.
    pub(crate) registered: Option<Registrant>,
}

impl DeviceLock {
    /// Opens the files.
    ///
    /// # Errors
    /// Which one cannot be opened, and why.
    pub(crate) fn open(files: LockFiles) -> Result<Self, (PathBuf, io::Error)> {
        let file = shared(&files.lock, For::Locks).map_err(at(&files.lock))?;
        let file = Descriptor::adopt(file.into()).map_err(at(&files.lock))?;
        let owners = OwnersFile::open(files.owners.clone()).map_err(at(&files.owners))?;
        Ok(Self { files, file: Mutex::new(file), owners })
    }

    /// Waits for the lock, in the name of a token if the process has one.
    pub(crate) fn take(&self, token: Option<u32>) -> io::Result<DeviceLockGuard<'_>> {
        let number = {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            if !file.intact() {
                // The program closed it. The old number is not ours any more.
                let again = Descriptor::adopt(shared(&self.files.lock, For::Locks)?.into())?;
                core::mem::forget(core::mem::replace(&mut *file, again));
            }
            file.number()
        };
        flock(number, libc::LOCK_EX)?;
        // From here on dropping it releases the lock.
        let mut guard = DeviceLockGuard { lock: self, number, mine: false, company: false, registered: None };
        guard.company = std::fs::metadata(&self.files.old).is_ok_and(|metadata| metadata.len() > 0);
        let Seen { mine, company, registered } = self.owners.take_over(token)?;
        guard.mine = mine;
        guard.company |= company;
        guard.registered = registered;
        Ok(guard)
    }
}

impl DeviceLockGuard<'_> {
    /// An old guest has been here. All who take the lock later know it.
    pub(crate) fn meet(&mut self) -> io::Result<()> {
        if !self.company {
            self.lock.owners.meet()?;
            self.company = true;
        }
        Ok(())
    }

    /// This process's pages, or no pages, are the window from now on.
    pub(crate) fn set_registered(&mut self, registrant: Option<Registrant>) -> io::Result<()> {
        if self.registered != registrant {
            self.lock.owners.set_registered(registrant)?;
            self.registered = registrant;
        }
        Ok(())
    }

    /// Whether the window's pages are those of a process that is dead, or has returned its token. `me`: this
    /// process's token.
    pub(crate) fn left_behind(&self, me: Option<u32>) -> io::Result<Option<Registrant>> {
        let Some(registrant) = self.registered.filter(|registrant| registrant.token != me) else {
            return Ok(None);
        };
        // Nobody knows whether a process without a token lives.
        let left = registrant.token.map_or(Ok(true), |token| self.lock.owners.is_free(token))?;
        Ok(left.then_some(registrant))
    }
}

impl Drop for DeviceLockGuard<'_> {
    fn drop(&mut self) {
        // If the program closed the descriptor, the kernel has unlocked the file. A number that names another
        // file by now is left alone.
        let file = self.lock.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.number() == self.number && file.intact() {
            let _ = flock(self.number, libc::LOCK_UN);
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> (PathBuf, io::Error) + '_ {
    move |error| (path.to_owned(), error)
}

/// `flock` by a raw system call, because that of the C library may be a cancellation point.
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

    use super::super::shared_file::mend;
    use super::*;

    fn files(dir: &Path) -> LockFiles {
        let at = |name: &str| dir.join(name);
        LockFiles { lock: at("lock"), owners: at("owners"), old: at("pids"), memory: None }
    }

    #[test]
    fn who_had_the_last_turn_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let device_lock = DeviceLock::open(files(dir.path())).unwrap();
        assert!(!device_lock.take(Some(3)).unwrap().mine, "nobody had one");
        assert!(device_lock.take(Some(3)).unwrap().mine);
        assert!(!device_lock.take(None).unwrap().mine, "who only looks is nobody");
        assert!(!device_lock.take(None).unwrap().mine);
        assert!(!device_lock.take(Some(3)).unwrap().mine);
        assert!(!device_lock.take(Some(3)).unwrap().company);
        std::fs::write(dir.path().join("pids"), "1234\n").unwrap();
        assert!(device_lock.take(Some(3)).unwrap().company);
    }

    /// Old guests make it so as root, and then users come.
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
        let guard = device_lock.take(Some(1)).unwrap();
        let other = shared(&path, For::Locks).unwrap();
        assert!(flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).is_err(), "it is locked");
        drop(guard);
    }

    /// Q29: an older guest that ran as root leaves a lock file that only root may open.
    #[test]
    fn a_turn_file_that_an_old_guest_left_to_root_is_opened_to_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!mend(&path).unwrap(), "there is none");
        std::fs::write(&path, "").unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
        let set = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        set(0o644);
        assert!(mend(&path).unwrap());
        assert_eq!(mode(), 0o666);
        set(0o644);
        drop(DeviceLock::open(files(dir.path())).unwrap());
        assert_eq!(mode(), 0o666, "whoever opens it and may does so");
        // An administrator's own.
        for chosen in [0o600, 0o640, 0o660, 0o444] {
            set(chosen);
            assert!(!mend(&path).unwrap());
            drop(DeviceLock::open(files(dir.path())).unwrap());
            assert_eq!(mode(), chosen);
        }
    }

    #[test]
    fn what_was_put_in_the_place_of_a_file_is_refused() {
        for (name, purpose) in [("lock", For::Locks), ("owners", For::Marks)] {
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
            shared(&dir.path().join("lock"), For::Locks).unwrap(),
        );
        let guard = one.take(Some(0)).unwrap();
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
        let mut guard = device_lock.take(Some(63)).unwrap();
        assert_eq!(guard.registered, None);
        guard.set_registered(Some(registrant)).unwrap();
        drop(guard);
        let guard = device_lock.take(Some(5)).unwrap();
        assert_eq!(guard.registered, Some(registrant));
        assert_eq!(guard.left_behind(Some(63)).unwrap(), None, "one's own");
        assert_eq!(guard.left_behind(Some(5)).unwrap(), Some(registrant), "nobody has the token");
        let owners = crate::lock::LockFile::open(&dir.path().join("owners")).unwrap();
        assert!(owners.try_lock(63).unwrap());
        assert_eq!(guard.left_behind(Some(5)).unwrap(), None, "somebody has it");
        drop(guard);
        let mut guard = device_lock.take(Some(63)).unwrap();
        guard.set_registered(None).unwrap();
        drop(guard);
        assert_eq!(device_lock.take(None).unwrap().registered, None);
    }
}
