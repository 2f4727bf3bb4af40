//! Ownership of channels: a process owns a channel by a record lock on byte *i* of the function's `resource2`
//! file.
//!
//! The guest's kernel drops a process's locks when it dies, however it dies. Of the three kinds of locks only
//! POSIX record locks (`F_SETLK`) fit: `flock` and open-file-description locks belong to the open file, which
//! a forked child shares and keeps alive after its parent's death; record locks belong to the process. Their
//! price: a process loses all its locks on a file when it closes *any* descriptor of it. So each process
//! opens the file once: the table below holds one descriptor for each file, which is closed when no lock is
//! held through it. A process never conflicts with itself, so the table also records which channels this
//! process owns.
//!
//! A program that closes descriptors that are not its own drops the locks, and the number may name another
//! file by the next use. So each use of the descriptor first reopens the file if it has to, and takes the
//! locks again; [`LockFile::renew`], part of every examination of the device, is one. Until then the owner's
//! description in the channel's area keeps the channel ([`crate::owner`]).
//!
//! The kernel tells watchers of the file when it was closed for writing. A forked child keeps descriptors and
//! mappings open that it inherits, so that the death of its parent would go unseen. Therefore a process opens
//! the file once more for a mapping that children do not inherit and that programs cannot close: it ends with
//! the process's memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_wire::area;

use crate::descriptor::{Descriptor, Identity};
use crate::fork;
use crate::mapping::{Mapping, MemoryType};
use crate::owner::Owner;

/// Size of a page in bytes.
const PAGE: usize = 4096;

/// Lock file of a function. All handles in a process share one descriptor.
#[derive(Debug)]
pub struct LockFile {
    identity: Identity,
}

/// Operations on the locks of channels by which dead processes are found.
pub(crate) trait ChannelLocks {
    /// Returns whether a living process owns a channel, and true if that cannot be determined. `area` is the
    /// offset of the channel's area in the window, if its owner describes itself there.
    fn has_owner(&self, channel: u32, area: Option<u64>) -> bool;

    /// Tries to lock a channel. Returns false if another process has locked it.
    fn try_lock(&self, channel: u32) -> io::Result<bool>;

    /// Unlocks a channel.
    fn unlock(&self, channel: u32);
}

impl ChannelLocks for LockFile {
    fn has_owner(&self, channel: u32, area: Option<u64>) -> bool {
        let owner = self.with_open(|entry| {
            let own = entry.held & (1 << channel) != 0;
            Ok(own || has_owner(&entry.path, entry.descriptor.number(), channel, area)?)
        });
        owner.unwrap_or(true)
    }

    fn try_lock(&self, channel: u32) -> io::Result<bool> {
        self.try_lock(channel)
    }

    fn unlock(&self, channel: u32) {
        self.unlock(channel);
    }
}

struct OpenLockFile {
    path: PathBuf,
    descriptor: Descriptor,
    /// Mapping whose end tells watchers of the file that this process has died. `None` if there is none.
    _presence: Option<Mapping>,
    /// Channels that this process has locked, one bit each.
    held: u64,
    handles: usize,
    /// Whether the file was reopened since a channel was last renewed.
    reopened: bool,
}

impl OpenLockFile {
    /// Reopens the file if the program has closed the descriptor, and takes the locks again. Whether another
    /// process was faster is left to [`LockFile::renew`].
    ///
    /// # Errors
    /// Fails if the path names no file, or another one.
    fn reopen(&mut self) -> io::Result<()> {
        if self.descriptor.intact() {
            return Ok(());
        }
        let descriptor = open(&self.path)?;
        if descriptor.identity() != self.descriptor.identity() {
            return Err(closed());
        }
        // The old number is not ours any more. The new one may be the same number, and it is the same file:
        // to drop the old descriptor would close the new one.
        core::mem::forget(core::mem::replace(&mut self.descriptor, descriptor));
        self.reopened = true;
        for channel in (0..u64::BITS).filter(|channel| self.held & (1 << channel) != 0) {
            set(self.descriptor.number(), channel, libc::F_WRLCK)?;
        }
        Ok(())
    }
}

static FILES: Mutex<Vec<OpenLockFile>> = Mutex::new(Vec::new());

fn files() -> MutexGuard<'static, Vec<OpenLockFile>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn open_file(path: &Path) -> io::Result<File> {
    // The directory may be one in which others can replace the file by a link, or by a FIFO, at which opening
    // would block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
}

fn open(path: &Path) -> io::Result<Descriptor> {
    Descriptor::adopt(open_file(path)?.into())
}

/// Maps a page of the file for as long as this process has its memory. The mapping alone keeps the open file,
/// and no child inherits it.
fn presence(path: &Path, offset: u64, memory: MemoryType) -> io::Result<Mapping> {
    let mapping = Mapping::of_part(open_file(path)?.as_raw_fd(), offset, PAGE, memory)?;
    mapping.keep_from_children()?;
    Ok(mapping)
}

/// Returns whether a living process owns a channel: another one that has locked it, or the one that describes
/// itself in the channel's area at `area`. `file` is a descriptor of the lock file at `path`.
pub(crate) fn has_owner(path: &Path, file: RawFd, channel: u32, area: Option<u64>) -> io::Result<bool> {
    if is_locked(file, channel)? {
        return Ok(true);
    }
    let Some(area) = area else { return Ok(false) };
    // Of the device's two files for the window this is the one through which owners map the page. On the
    // simulated bus the two are one, of which a second descriptor must not be closed.
    let combined = path.with_file_name("resource2_wc");
    let own = Identity::from_number(file)?;
    let page = |number| Mapping::of_page_to_read(number, area + area::SUBMIT);
    let page = match Identity::from_path(&combined) {
        Ok(identity) if identity != own => page(File::open(&combined)?.as_raw_fd())?,
        _ => page(file)?,
    };
    let process = page.load32(area::SUBMIT_PROCESS, Ordering::Acquire);
    let owner = Owner {
        process,
        namespace: page.load32(area::SUBMIT_NAMESPACE, Ordering::Relaxed),
        started: page.load64(area::SUBMIT_STARTED, Ordering::Relaxed),
        program: page.load64(area::SUBMIT_PROGRAM, Ordering::Relaxed),
    };
    Ok(process != 0 && owner.is_alive())
}

impl LockFile {
    /// Opens the file, or shares the descriptor of those who have it open. It must not be called in a forked
    /// child.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, |_| None)
    }

    /// Opens the file as [`LockFile::open`] does. Watchers of the file are told when this process dies,
    /// whatever its children keep open. The page at `offset`, which nobody maps in another way than `memory`,
    /// is mapped for that.
    pub(crate) fn open_watched(path: &Path, offset: u64, memory: MemoryType) -> io::Result<Self> {
        Self::open_with(path, |path| presence(path, offset, memory).ok())
    }

    fn open_with(path: &Path, presence: impl FnOnce(&Path) -> Option<Mapping>) -> io::Result<Self> {
        let mut files = files();
        // The identity is that of the path: opening the file to identify it would be a second descriptor.
        let identity = Identity::from_path(path)?;
        if let Some(entry) = files.iter_mut().find(|entry| entry.descriptor.identity() == identity) {
            entry.handles += 1;
            return Ok(Self { identity });
        }
        // This is done before the descriptor is opened, because it opens and closes the file, which drops
        // locks.
        let presence = presence(path);
        let descriptor = open(path)?;
        let identity = descriptor.identity();
        let path = path.to_owned();
        files.push(OpenLockFile {
            path,
            descriptor,
            _presence: presence,
            held: 0,
            handles: 1,
            reopened: false,
        });
        Ok(Self { identity })
    }

    /// Calls `what` with the file's descriptor, for mapping.
    pub fn with_number<T>(&self, what: impl FnOnce(RawFd) -> io::Result<T>) -> io::Result<T> {
        self.with_open(|entry| what(entry.descriptor.number()))
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        self.with_open(|entry| entry.descriptor.bytes())
    }

    fn with_open<T>(&self, what: impl FnOnce(&mut OpenLockFile) -> io::Result<T>) -> io::Result<T> {
        self.with(|entry| {
            entry.reopen()?;
            what(entry)
        })
    }

    fn with<T>(&self, what: impl FnOnce(&mut OpenLockFile) -> io::Result<T>) -> io::Result<T> {
        let mut files = files();
        let entry = files.iter_mut().find(|entry| entry.descriptor.identity() == self.identity);
        what(entry.ok_or_else(closed)?)
    }

    /// Tries to lock a channel. Returns false if a living process owns it, this one included.
    pub fn try_lock(&self, channel: u32) -> io::Result<bool> {
        self.with_open(|entry| {
            if entry.held & (1 << channel) != 0 || !set(entry.descriptor.number(), channel, libc::F_WRLCK)? {
                return Ok(false);
            }
            entry.held |= 1 << channel;
            Ok(true)
        })
    }

    /// Unlocks a channel.
    pub fn unlock(&self, channel: u32) {
        // Nothing can be done about a failure: the kernel drops the lock at the latest when the process ends.
        let _ = self.with(|entry| {
            entry.held &= !(1 << channel);
            if entry.descriptor.intact() {
                set(entry.descriptor.number(), channel, libc::F_UNLCK)
            } else {
                Ok(true)
            }
        });
    }

    /// Ensures that a channel which this process locked is still locked by it.
    pub(crate) fn renew(&self, channel: u32) -> io::Result<Renewal> {
        self.with(|entry| {
            // Another thread may just have closed the session.
            if entry.held & (1 << channel) == 0 {
                return Ok(Renewal::Lost);
            }
            entry.reopen()?;
            let reopened = core::mem::take(&mut entry.reopened);
            // To lock again what is locked does nothing; to lock what somebody else has by now fails.
            if !set(entry.descriptor.number(), channel, libc::F_WRLCK)? {
                return Ok(Renewal::Lost);
            }
            Ok(if reopened { Renewal::Reopened } else { Renewal::Kept })
        })
    }
}

/// Outcome of [`LockFile::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The lock was still held.
    Kept,
    /// The descriptor had been closed; the file was reopened and the channel locked again.
    Reopened,
    /// Another process owns the channel.
    Lost,
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Another thread may have held the table's mutex at the fork, and never releases it in this process.
        if fork::forked() {
            return;
        }
        let mut files = files();
        if let Some(at) = files.iter().position(|entry| entry.descriptor.identity() == self.identity) {
            files[at].handles -= 1;
            if files[at].handles == 0 {
                files.swap_remove(at);
            }
        }
    }
}

/// Describes a lock of a kind on a byte.
fn lock_of(byte: u32, kind: libc::c_int) -> libc::flock {
    // SAFETY: a structure of integers, for which zeros are values.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = libc::off_t::from(byte);
    lock.l_len = 1;
    lock
}

/// Returns whether another process has locked a byte.
fn is_locked(file: RawFd, byte: u32) -> io::Result<bool> {
    let mut lock = lock_of(byte, libc::F_WRLCK);
    // SAFETY: the kernel reads and writes one `flock`; any number may be passed.
    if unsafe { libc::fcntl(file, libc::F_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

/// Sets or drops the lock on a byte. Returns false if another process holds it.
pub(crate) fn set(file: RawFd, byte: u32, kind: libc::c_int) -> io::Result<bool> {
    let lock = lock_of(byte, kind);
    loop {
        // SAFETY: the kernel reads one `flock`; any number may be passed.
        if unsafe { libc::fcntl(file, libc::F_SETLK, &raw const lock) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether another process can lock the byte.
    fn elsewhere(path: &Path, byte: u32) -> bool {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let got = set(number, byte, libc::F_WRLCK).is_ok_and(|got| got);
            // SAFETY: ends the child without running anything of the test harness.
            unsafe { libc::_exit(i32::from(got)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        // The parent must not close the file: it would drop the locks under test.
        core::mem::forget(file);
        libc::WEXITSTATUS(status) == 1
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resource2");
        std::fs::write(&path, b"").unwrap();
        (dir, path)
    }

    #[test]
    fn a_channel_has_one_owner_also_within_a_process() {
        let (_dir, path) = file();
        let first = LockFile::open(&path).unwrap();
        let second = LockFile::open(&path).unwrap();
        assert!(first.try_lock(5).unwrap());
        assert!(!second.try_lock(5).unwrap());
        assert!(second.try_lock(6).unwrap());
        drop(second);
        assert!(!elsewhere(&path, 5));
        assert!(elsewhere(&path, 7));
        first.unlock(5);
        assert!(elsewhere(&path, 5));
        assert_eq!(first.renew(5).unwrap(), Renewal::Lost);
        assert!(elsewhere(&path, 5), "renewed what was given up");
        assert!(!elsewhere(&path, 6));
    }

    #[test]
    fn a_lock_that_the_program_took_away_is_taken_again() {
        let (_dir, path) = file();
        let lock = LockFile::open(&path).unwrap();
        assert!(lock.try_lock(0).unwrap());
        assert_eq!(lock.renew(0).unwrap(), Renewal::Kept);
        let number = lock.with_number(Ok).unwrap();
        // SAFETY: what a program does that closes everything.
        unsafe { libc::close(number) };
        assert!(elsewhere(&path, 0));
        assert_eq!(lock.renew(0).unwrap(), Renewal::Reopened);
        assert!(!elsewhere(&path, 0));
    }

    /// The number of a descriptor that the program has closed may be another file's by the next use.
    #[test]
    fn a_number_that_names_another_file_is_not_used() {
        let (_dir, path) = file();
        std::fs::write(&path, [0; PAGE]).unwrap();
        let lock = LockFile::open(&path).unwrap();
        assert!(lock.try_lock(0).unwrap());
        let number = lock.with_number(Ok).unwrap();
        let other = tempfile::tempfile().unwrap();
        // SAFETY: what a program does that takes a number without asking.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        let next = LockFile::open(&path).unwrap();
        assert_eq!(next.bytes().unwrap(), PAGE as u64);
        assert!(next.try_lock(1).unwrap());
        assert!(next.has_owner(0, None));
        assert!(!elsewhere(&path, 0) && !elsewhere(&path, 1));
        assert_eq!(lock.renew(0).unwrap(), Renewal::Reopened, "it is told all the same");
        assert_eq!(lock.renew(0).unwrap(), Renewal::Kept);
        // SAFETY: closes what `dup2` made above, which the lock file has left alone.
        assert_eq!(unsafe { libc::close(number) }, 0);
    }

    #[test]
    fn a_lock_that_another_process_took_is_lost() {
        let (_dir, path) = file();
        let lock = LockFile::open(&path).unwrap();
        assert!(lock.try_lock(0).unwrap());
        let number = lock.with_number(Ok).unwrap();
        // SAFETY: what a program does that closes everything.
        unsafe { libc::close(number) };
        let mut pipe = [0; 2];
        // SAFETY: the kernel writes two numbers.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let got = set(std::os::fd::AsRawFd::as_raw_fd(&file), 0, libc::F_WRLCK).is_ok_and(|got| got);
            // SAFETY: tells the parent by one byte.
            unsafe { libc::write(pipe[1], (&raw const got).cast(), 1) };
            loop {
                // SAFETY: waits for the signal that ends it.
                unsafe { libc::pause() };
            }
        }
        let mut got = 0u8;
        // SAFETY: one byte is there.
        assert_eq!(unsafe { libc::read(pipe[0], (&raw mut got).cast(), 1) }, 1);
        assert_eq!(got, 1);
        assert_eq!(lock.renew(0).unwrap(), Renewal::Lost);
        // SAFETY: ends the child made above.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: waits for it.
        unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
        for number in pipe {
            // SAFETY: closes the pipe made above.
            unsafe { libc::close(number) };
        }
        // To close the file would drop the lock under test.
        core::mem::forget(file);
        assert_eq!(lock.renew(0).unwrap(), Renewal::Kept);
    }
}
