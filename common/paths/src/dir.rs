//! A directory that is open: what is done with its entries is done in it, whatever its path means by then.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, fchown, fcntl_setfl, mkdirat, openat,
    readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::kernel::{DIRECTORY, Kernel, directory};
use crate::open::{self, Access, regular};
use crate::refusal::Refusal;
use crate::walk::{Links, is_shared, located, status, trusted, unmapped, walk};

/// An open directory. Names are of its entries: one with a slash in it is an error.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens the directory `path`. Links on the way are followed where only root and this user could have put
    /// them.
    ///
    /// # Errors
    /// The kernel's, or [`Refusal::Link`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_by(Kernel::New, path)
    }

    pub(crate) fn open_by(kernel: Kernel, path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match directory(kernel, CWD, path, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS) {
            // There is a link: the walk tells whose.
            None | Some(Err(Errno::LOOP)) => {
                let start = openat(CWD, ".", DIRECTORY, Mode::empty())?;
                walk(start, path, Links::Trusted).map(Self)
            }
            Some(opened) => Ok(Self(opened?)),
        }
    }

    pub(crate) fn of(directory: OwnedFd) -> Self {
        Self(directory)
    }

    /// Opens the directory `path`, making it, and those above it, where they are not there. Made with mode
    /// 0755, less what the umask takes away. The second value tells whether the last one was made.
    ///
    /// # Errors
    /// As [`Dir::open`].
    pub fn make(path: &Path) -> io::Result<(Self, bool)> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(error) };
                let parent = Self::make(parent)?.0;
                parent.make_dir(name)?;
                Ok((parent.enter(name)?, true))
            }
            opened => Ok((opened?, false)),
        }
    }

    /// Opens a directory in it. A link is not followed.
    pub fn enter(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        Ok(Self(openat(&self.0, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?))
    }

    /// Makes a directory in it, with mode 0755 less what the umask takes away.
    pub fn make_dir(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(mkdirat(&self.0, single(name.as_ref())?, Mode::from_raw_mode(0o755))?)
    }

    /// Whether users other than root and this one can put entries into it.
    pub fn is_shared(&self) -> io::Result<bool> {
        is_shared(self.0.as_fd())
    }

    /// Its owner's id.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(status(self.0.as_fd())?.st_uid)
    }

    /// Its permission bits.
    pub fn mode(&self) -> io::Result<u32> {
        Ok(status(self.0.as_fd())?.st_mode & 0o7777)
    }

    /// Makes it the property of a user; its group stays.
    pub fn give(&self, uid: u32) -> io::Result<()> {
        Ok(fchown(self.readable()?, Some(Uid::from_raw(uid)), None::<Gid>)?)
    }

    /// Another descriptor of it, by which it can be listed and changed itself.
    fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0, ".", flags, Mode::empty())?)
    }

    /// Where it is now: an absolute path without links, for messages and for other programs.
    pub fn path(&self) -> PathBuf {
        located(self.0.as_fd())
    }

    /// The names of its entries, in no order.
    pub fn entries(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(self.readable()?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The text of a link in it; `None`: it is no link.
    pub fn link(&self, name: impl AsRef<OsStr>) -> io::Result<Option<PathBuf>> {
        match readlinkat(&self.0, single(name.as_ref())?, Vec::new()) {
            Ok(target) => Ok(Some(OsStr::from_bytes(target.to_bytes()).into())),
            Err(Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it has an entry of that name, be it a link that leads nowhere.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        single(name.as_ref()).is_ok_and(|name| statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Creates a file. One that is there already is an error, and so is a link, wherever it leads.
    pub fn create(&self, name: impl AsRef<OsStr>, access: Access, mode: u32) -> io::Result<File> {
        let flags = access.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, single(name.as_ref())?, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens a regular file, whoever owns it. Anything else is refused without being opened.
    ///
    /// # Errors
    /// The kernel's, or [`Refusal::Kind`].
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let path = || self.path().join(name.as_ref());
        let (found, status) = self.found(name.as_ref())?;
        regular(&status, path)?;
        self.reopen(&found, name.as_ref(), &status, Access::Read)
    }

    /// Opens a regular file that is this user's, has no other name, and that no other user may open.
    ///
    /// # Errors
    /// The kernel's, or a [`Refusal`].
    pub fn private(&self, name: impl AsRef<OsStr>, access: Access) -> io::Result<File> {
        let path = || self.path().join(name.as_ref());
        let (found, status) = self.found(name.as_ref())?;
        own(&status, path)?;
        if status.st_mode & 0o077 != 0 {
            return Err(Refusal::Open(path()).into());
        }
        self.reopen(&found, name.as_ref(), &status, access)
    }

    /// Finds what is there without opening it. Of a link that is the link itself.
    fn found(&self, name: &OsStr) -> io::Result<(OwnedFd, Stat)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&self.0, single(name)?, flags, Mode::empty())?;
        let status = status(found.as_fd())?;
        Ok((found, status))
    }

    fn reopen(&self, found: &OwnedFd, name: &OsStr, status: &Stat, access: Access) -> io::Result<File> {
        open::reopen(found.as_fd(), status, access, |flags| {
            openat(&self.0, name, flags | OFlags::NOFOLLOW, Mode::empty())
        })
    }

    /// Opens what is there, without following, blocking, or taking a terminal for this process's own.
    pub(crate) fn existing(&self, name: &OsStr, access: Access) -> io::Result<(File, Stat)> {
        let flags = access.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: File = match openat(&self.0, single(name)?, flags, Mode::empty()) {
            // What a FIFO that nobody reads and a socket answer.
            Err(Errno::NXIO) => {
                regular(&statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?, || self.path().join(name))?;
                return Err(Errno::NXIO.into());
            }
            opened => opened?.into(),
        };
        let status = status(file.as_fd())?;
        Ok((file, status))
    }

    /// Puts a file in place: nobody ever sees a part of it. Its mode is 0644, less what the umask takes away.
    pub fn replace(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        use std::io::Write as _;
        let name = name.as_ref();
        let mut new = name.to_owned();
        new.push(".new");
        // Left by a process that was killed, or put there: a link is removed, not followed.
        match self.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = self.create(&new, Access::Write, 0o644)?;
        let written = file.write_all(content).and_then(|()| self.rename(&new, name));
        if written.is_err() {
            // The first failure is the one to report.
            let _ = self.remove(&new);
        }
        written
    }

    /// Renames an entry within it. What had the new name is gone.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.0, single(from.as_ref())?, &self.0, single(to.as_ref())?)?)
    }

    /// Removes a file, or a link itself.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.0, single(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.0, single(name.as_ref())?, AtFlags::REMOVEDIR)?)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The first directory on the path to `path`, itself included, in which users other than root and this one
/// can replace an entry that is root's or this user's. `None`: what is put there stays there. Links are
/// resolved first.
pub fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    const STICKY: u32 = 0o1000;
    let real = std::fs::canonicalize(path)?;
    let mut all: Vec<&Path> = real.ancestors().collect();
    all.reverse();
    for directory in all {
        let metadata = std::fs::symlink_metadata(directory)?;
        let others_write = metadata.mode() & 0o022 != 0 && metadata.mode() & STICKY == 0;
        // In a container without root's rights the directories of its host's root show no owner that is known
        // there.
        let owned = trusted(metadata.uid()) || unmapped(metadata.uid());
        if !owned || others_write {
            return Ok(Some(directory.to_owned()));
        }
    }
    Ok(None)
}

/// Refuses a directory in which, or on the path to which, other users can replace an entry that is root's or
/// this user's ([`replaceable`]). Where this succeeds, what this process makes there can be reached by its
/// path.
///
/// # Errors
/// The kernel's, or [`Refusal::Replaceable`].
pub fn settle(path: &Path) -> io::Result<()> {
    match replaceable(path)? {
        Some(place) => Err(Refusal::Replaceable(place).into()),
        None => Ok(()),
    }
}

/// A name of one entry.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b".." || bytes.contains(&b'/') {
        Err(Errno::INVAL.into())
    } else {
        Ok(name)
    }
}

/// Whether opening failed because the name is a link's.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Refuses a file that another user may have put there.
pub(crate) fn own(status: &Stat, path: impl Fn() -> PathBuf) -> io::Result<()> {
    regular(status, &path)?;
    if status.st_uid != geteuid().as_raw() {
        return Err(Refusal::Owner { path: path(), uid: status.st_uid }.into());
    }
    one_name(status, path)
}

/// Refuses a file that has another name elsewhere.
pub(crate) fn one_name(status: &Stat, path: impl Fn() -> PathBuf) -> io::Result<()> {
    if status.st_nlink > 1 { Err(Refusal::Names(path()).into()) } else { Ok(()) }
}

/// A file that has been looked at, for ordinary use: reads and writes may block again.
pub(crate) fn settled(file: File) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
