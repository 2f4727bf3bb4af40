//! Whose turn it is: one call at a time for the whole virtual machine, and what the registers held when this process last had
//! its turn.
//!
//! The lock is `flock` on the file that old guests lock too. It is opened for reading, which is all that `flock` needs: old guests leave it
//! writable for root alone. Beside it lies a file of this contract's own guests: byte *i* is
//! locked, by POSIX record lock, by the process with token *i* for as long as it lives ([`crate::lock`]); byte 64 + *i* is 1
//! while the host may hold something for that token; byte 128 names who had the last turn, bytes 129 to 137 whose pages are
//! registered as the window, and where they lie. Who had it itself finds the registers as it left
//! them, unless an old guest was there, which leaves its process id in `SCRATCH` and writes nothing to that file. So that register is
//! read first, always: the list of process ids that old guests keep is where no other service sees it (systemd's `PrivateTmp`), and is
//! not made at all by those that open files by their own `fopen`. Whoever finds one there tells the others, in bytes 138 to 145, for as long as
//! the machine runs ([`Turn::company`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use vgpu_paths::Access;

use crate::descriptor::Descriptor;
use crate::lock::LockFile;

use super::Places;

/// Where the marks of tokens that are in use begin.
const MARKS: u64 = 64;
/// Where the last turn's owner is.
const LAST: u64 = 128;
/// Who had its pages registered as the window, as at [`LAST`] but 0 for nobody; and their guest-physical address.
const WINDOW: u64 = 129;
const WINDOW_ADDRESS: u64 = 130;
/// In which boot of the machine an old guest was met, as [`this_boot`] says it.
const COMPANY: u64 = 138;
/// Bytes of the file.
const BYTES: usize = 146;
/// [`LAST`]: a process without a token, which only looked.
const NOBODY: u8 = u8::MAX;

/// The files, open.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Places,
    turn: Mutex<Descriptor>,
    owners: LockFile,
    boot: [u8; 8],
}

/// A turn: nobody else of this machine makes calls while it lives.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: RawFd,
    /// This process had the last turn, as far as new guests say.
    pub(crate) mine: bool,
    /// Old guests may be about.
    pub(crate) company: bool,
    /// What a process of this contract's own has registered as the window, if it is that still.
    pub(crate) registered: Option<Registrant>,
}

/// Whose pages are the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    /// Its token; `None`: it had none.
    pub(crate) token: Option<u32>,
    /// Guest-physical address of the pages.
    pub(crate) address: u64,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// `flock`.
    Locks,
    /// Record locks and marks.
    Marks,
}

/// Opens a file for all users of the machine, making it where it is not there. It lies where anybody can put something in its place: what is
/// no file, a link, or a file that has another name elsewhere, is refused. One that is there is opened without asking for it to be
/// made, which kernels refuse in `/tmp` and its like when it is another user's (`fs.protected_regular`).
fn shared(path: &Path, purpose: For) -> io::Result<File> {
    let access = match purpose {
        For::Locks => Access::Read,
        For::Marks => Access::ReadWrite,
    };
    let file = vgpu_paths::shared(path, access)?;
    if purpose == For::Locks {
        open_to_all(&file)?;
    }
    Ok(file)
}

/// The mode in which old guests of root leave the file of turns: its users cannot open it for writing, as those guests do, and go on without
/// a turn (Q29).
const LEFT: u32 = 0o644;
/// In which everybody can.
const SHARED: u32 = 0o666;

/// Has every user be able to lock a file that an old guest of this user has left. One that an administrator gave another mode keeps it.
/// Whether it was changed.
fn open_to_all(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let left = metadata.mode() & 0o7777 == LEFT && metadata.uid() == user;
    if left {
        file.set_permissions(PermissionsExt::from_mode(SHARED))?;
    }
    Ok(left)
}

/// Has every user be able to lock the file of turns, where there is one that this user left to itself. Whether it was changed.
///
/// # Errors
/// It cannot be opened, or something else was put in its place.
pub(crate) fn mend(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => open_to_all(&vgpu_paths::shared(path, Access::Read)?),
    }
}

/// Refuses what is no regular file, and one that has a second name: it may be any file of whoever opens it.
fn own(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.nlink() == 1 {
        return Ok(());
    }
    Err(io::Error::other("something else was put in the place of this file"))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> (PathBuf, io::Error) + '_ {
    move |error| (path.to_owned(), error)
}

impl Turns {
    /// Opens the files.
    ///
    /// # Errors
    /// Which one cannot be opened, and why.
    pub(crate) fn open(places: Places) -> Result<Self, (PathBuf, io::Error)> {
        let turn = shared(&places.turn, For::Locks).map_err(at(&places.turn))?;
        let turn = Descriptor::adopt(turn.into()).map_err(at(&places.turn))?;
        // Only to make it: who has it open once more and closes that loses its locks.
        if !places.owners.exists() {
            shared(&places.owners, For::Marks).map_err(at(&places.owners))?;
        }
        let owners = LockFile::open(&places.owners).map_err(at(&places.owners))?;
        let turns = Self { places, turn: Mutex::new(turn), owners, boot: this_boot() };
        if let Err(error) = turns.with(own) {
            return Err((turns.places.owners.clone(), error));
        }
        Ok(turns)
    }

    /// The file of owners, for locks of tokens.
    pub(crate) fn owners(&self) -> &Path {
        &self.places.owners
    }

    /// Waits for a turn.
    pub(crate) fn take(&self, token: Option<u32>) -> io::Result<Turn<'_>> {
        let number = {
            let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            if !turn.intact() {
                // The program closed it. The old number is not ours any more.
                let again = Descriptor::adopt(shared(&self.places.turn, For::Locks)?.into())?;
                core::mem::forget(core::mem::replace(&mut *turn, again));
            }
            turn.number()
        };
        flock(number, libc::LOCK_EX)?;
        // From here on dropping it gives the turn back.
        let mut turn = Turn { turns: self, number, mine: false, company: false, registered: None };
        turn.company = std::fs::metadata(&self.places.old).is_ok_and(|metadata| metadata.len() > 0);
        let me = token.map_or(NOBODY, |token| token as u8 + 1);
        let bytes = self.bytes()?;
        turn.company |= bytes[COMPANY as usize..] == self.boot;
        turn.mine = me != NOBODY && bytes[LAST as usize] == me;
        turn.registered = registrant(&bytes);
        if !turn.mine {
            self.write(LAST, me)?;
        }
        Ok(turn)
    }

    /// Tokens for which the host may hold something, a bit each.
    pub(crate) fn marks(&self) -> io::Result<u64> {
        let bytes = self.bytes()?;
        let marks = bytes[MARKS as usize..LAST as usize].iter().enumerate();
        Ok(marks.filter(|&(_, &mark)| mark != 0).fold(0, |bits, (token, _)| bits | 1 << token))
    }

    /// Says whether the host may hold something for a token that this process has locked.
    pub(crate) fn mark(&self, token: u32, used: bool) -> io::Result<()> {
        self.write(MARKS + u64::from(token), u8::from(used))
    }

    /// Whether a process that had a token is dead, or has given it back.
    pub(crate) fn is_free(&self, token: u32) -> io::Result<bool> {
        let free = self.owners.try_lock(token)?;
        if free {
            self.owners.unlock(token);
        }
        Ok(free)
    }

    /// Says whose pages are the window from now on; `None`: nobody's of this contract's own.
    fn set_registered(&self, registrant: Option<Registrant>) -> io::Result<()> {
        let (token, address) = registrant.map_or((0, 0), |registrant| {
            (registrant.token.map_or(NOBODY, |token| token as u8 + 1), registrant.address)
        });
        let mut record = [token; 9];
        record[1..].copy_from_slice(&u64::to_le_bytes(address));
        const { assert!(WINDOW_ADDRESS == WINDOW + 1 && WINDOW_ADDRESS + 8 == COMPANY) };
        self.with(|file| file.write_all_at(&record, WINDOW))
    }

    fn bytes(&self) -> io::Result<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        self.with(|file| {
            // A file that was just made is shorter: the rest is zero.
            file.read_at(&mut bytes, 0)
        })?;
        Ok(bytes)
    }

    fn write(&self, offset: u64, value: u8) -> io::Result<()> {
        self.with(|file| file.write_all_at(&[value], offset))
    }

    /// Calls `what` with the file of owners, which stays open.
    fn with<T>(&self, what: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        self.owners.with_number(|number| {
            use std::os::fd::FromRawFd;
            // SAFETY: the number is the lock file's descriptor, which lives as long as `owners`; it is not closed here.
            let file = core::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(number) });
            debug_assert_eq!(file.as_raw_fd(), number);
            what(&file)
        })
    }
}

/// What the file says of the window.
fn registrant(bytes: &[u8; BYTES]) -> Option<Registrant> {
    let token = match bytes[WINDOW as usize] {
        0 => return None,
        NOBODY => None,
        token => Some(u32::from(token) - 1),
    };
    let address = bytes[WINDOW_ADDRESS as usize..COMPANY as usize].try_into().map_or(0, u64::from_le_bytes);
    Some(Registrant { token, address })
}

/// What tells this boot of the machine from others; where the kernel does not say it, all are one. Never zeros.
fn this_boot() -> [u8; 8] {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.first_chunk().copied().unwrap_or([1; 8])
}

impl Turn<'_> {
    /// An old guest has been here: all who come later know it.
    pub(crate) fn meet(&mut self) -> io::Result<()> {
        if !self.company {
            self.turns.with(|file| file.write_all_at(&self.turns.boot, COMPANY))?;
            self.company = true;
        }
        Ok(())
    }

    /// This process's pages, or no pages, are the window from now on.
    pub(crate) fn set_registered(&mut self, registrant: Option<Registrant>) -> io::Result<()> {
        if self.registered != registrant {
            self.turns.set_registered(registrant)?;
            self.registered = registrant;
        }
        Ok(())
    }

    /// Whether the window's pages are those of a process that is dead, or has given its token back. `me`: this process's token.
    pub(crate) fn left_behind(&self, me: Option<u32>) -> io::Result<Option<Registrant>> {
        let Some(registrant) = self.registered.filter(|registrant| registrant.token != me) else {
            return Ok(None);
        };
        // Who had no token cannot be asked after.
        let left = registrant.token.map_or(Ok(true), |token| self.turns.is_free(token))?;
        Ok(left.then_some(registrant))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // If the program closed the descriptor, the kernel has unlocked the file; a number that is somebody else's by now is left alone.
        let turn = self.turns.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.number() == self.number && turn.intact() {
            let _ = flock(self.number, libc::LOCK_UN);
        }
    }
}

/// A raw call, since the C library's may be a cancellation point.
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn places(dir: &Path) -> Places {
        let at = |name: &str| dir.join(name);
        Places { turn: at("lock"), owners: at("owners"), old: at("pids"), memory: None }
    }

    #[test]
    fn who_had_the_last_turn_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let turns = Turns::open(places(dir.path())).unwrap();
        assert!(!turns.take(Some(3)).unwrap().mine, "nobody had one");
        assert!(turns.take(Some(3)).unwrap().mine);
        assert!(!turns.take(None).unwrap().mine, "who only looks is nobody");
        assert!(!turns.take(None).unwrap().mine);
        assert!(!turns.take(Some(3)).unwrap().mine);
        assert!(!turns.take(Some(3)).unwrap().company);
        std::fs::write(dir.path().join("pids"), "1234\n").unwrap();
        assert!(turns.take(Some(3)).unwrap().company);
    }

    /// Old guests make it so as root, and then users come.
    #[test]
    fn a_turn_file_that_cannot_be_written_is_locked_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
        let turns = Turns::open(places(dir.path())).unwrap();
        let number = turns.turn.lock().unwrap().number();
        // SAFETY: asks for flags.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
        assert_eq!(
            flags & libc::O_ACCMODE,
            libc::O_RDONLY,
            "root could write, and must not ask for it either"
        );
        let turn = turns.take(Some(1)).unwrap();
        let other = shared(&path, For::Locks).unwrap();
        assert!(flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).is_err(), "it is locked");
        drop(turn);
    }

    /// Q29.
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
        drop(Turns::open(places(dir.path())).unwrap());
        assert_eq!(mode(), 0o666, "whoever opens it and may does so");
        // An administrator's own.
        for chosen in [0o600, 0o640, 0o660, 0o444] {
            set(chosen);
            assert!(!mend(&path).unwrap());
            drop(Turns::open(places(dir.path())).unwrap());
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
                assert_eq!(Turns::open(places(dir.path())).unwrap_err().0, path);
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
        let (one, other) =
            (Turns::open(places(dir.path())).unwrap(), shared(&dir.path().join("lock"), For::Locks).unwrap());
        let turn = one.take(Some(0)).unwrap();
        let busy = flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
        drop(turn);
        flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB).unwrap();
    }

    #[test]
    fn whose_pages_are_the_window_is_known_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let turns = Turns::open(places(dir.path())).unwrap();
        let registrant = Registrant { token: Some(63), address: 0x1_2345_6000 };
        let mut turn = turns.take(Some(63)).unwrap();
        assert_eq!(turn.registered, None);
        turn.set_registered(Some(registrant)).unwrap();
        drop(turn);
        let turn = turns.take(Some(5)).unwrap();
        assert_eq!(turn.registered, Some(registrant));
        assert_eq!(turn.left_behind(Some(63)).unwrap(), None, "one's own");
        assert_eq!(turn.left_behind(Some(5)).unwrap(), Some(registrant), "nobody has the token");
        assert!(turns.owners.try_lock(63).unwrap());
        assert_eq!(turn.left_behind(Some(5)).unwrap(), None, "somebody has it");
        drop(turn);
        let mut turn = turns.take(Some(63)).unwrap();
        turn.set_registered(None).unwrap();
        drop(turn);
        assert_eq!(turns.take(None).unwrap().registered, None);
    }

    #[test]
    fn marks_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let turns = Turns::open(places(dir.path())).unwrap();
        assert_eq!(turns.marks().unwrap(), 0);
        turns.mark(63, true).unwrap();
        turns.mark(5, true).unwrap();
        turns.mark(6, false).unwrap();
        assert_eq!(turns.marks().unwrap(), 1 << 63 | 1 << 5);
    }
}
