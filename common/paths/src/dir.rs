//! An open directory. Operations on its entries go through its descriptor, so renaming or replacing the
//! directory meanwhile does not redirect them.

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

/// An open directory. Its methods take the name of an entry; a name that contains a slash is an error.
#[derive(Debug)]
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens the directory `path`. A link is followed only where no user but root and this one can have
    /// created it.
    ///
    /// # Errors
    /// Returns the error of the kernel, or [`Refusal::Link`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_by(Kernel::New, path)
    }

    pub(crate) fn open_by(kernel: Kernel, path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match directory(kernel, CWD, path, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS) {
            // The path contains a link. The walk checks the directory that holds it.
            None | Some(Err(Errno::LOOP)) => {
                let start = openat(CWD, ".", DIRECTORY, Mode::empty())?;
                walk(start, path, Links::Trusted).map(Self)
            }
            Some(opened) => Ok(Self(opened?)),
        }
    }

    pub(crate) fn from_descriptor(directory: OwnedFd) -> Self {
        Self(directory)
    }

    /// Opens the directory `path`, and creates it and its parents where they do not exist, with mode 0755
    /// less the umask. The second value tells whether the last directory was created.
    ///
    /// # Errors
    /// Fails as [`Dir::open`] does.
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

    /// Opens a subdirectory. A link is not followed.
    pub fn enter(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        Ok(Self(openat(&self.0, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?))
    }

    /// Creates a subdirectory with mode 0755 less the umask.
    pub fn make_dir(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(mkdirat(&self.0, single(name.as_ref())?, Mode::from_raw_mode(0o755))?)
    }

    /// Returns whether users other than root and this one can create entries in the directory.
    pub fn is_shared(&self) -> io::Result<bool> {
        is_shared(self.0.as_fd())
    }

    /// Returns the id of the owner.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(status(self.0.as_fd())?.st_uid)
    }

    /// Returns the permission bits of the directory.
    pub fn mode(&self) -> io::Result<u32> {
        Ok(status(self.0.as_fd())?.st_mode & 0o7777)
    }

    /// Changes the owner. The group stays.
    pub fn set_owner(&self, uid: u32) -> io::Result<()> {
        Ok(fchown(self.readable()?, Some(Uid::from_raw(uid)), None::<Gid>)?)
    }

    /// Opens another descriptor, which allows to list the directory and to change its attributes.
    fn readable(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(&self.0, ".", flags, Mode::empty())?)
    }

    /// Returns the current absolute path without links, for messages and for other programs.
    pub fn path(&self) -> PathBuf {
        located(self.0.as_fd())
    }

    /// Returns the names of the entries, in no particular order.
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

    /// Returns the target of a symbolic link, or `None` if the entry is not a link.
    pub fn link(&self, name: impl AsRef<OsStr>) -> io::Result<Option<PathBuf>> {
        match readlinkat(&self.0, single(name.as_ref())?, Vec::new()) {
            Ok(target) => Ok(Some(OsStr::from_bytes(target.to_bytes()).into())),
            Err(Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an entry of that name exists. A dangling link counts.
    pub fn contains(&self, name: impl AsRef<OsStr>) -> bool {
        single(name.as_ref()).is_ok_and(|name| statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Creates a file. An existing entry is an error, and so is a link, whatever its target.
    pub fn create(&self, name: impl AsRef<OsStr>, access: Access, mode: u32) -> io::Result<File> {
        let flags = access.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, single(name.as_ref())?, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Opens a regular file of any owner. Anything else is rejected without being opened.
    ///
    /// # Errors
    /// Returns the kernel's error, or [`Refusal::Kind`].
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let path = || self.path().join(name.as_ref());
        let (found, status) = self.found(name.as_ref())?;
        regular(&status, path)?;
        self.reopen(&found, name.as_ref(), &status, Access::Read)
    }

    /// Opens a regular file that belongs to this user, has one name, and that no other user may open.
    ///
    /// # Errors
    /// Returns the kernel's error, or a [`Refusal`].
    pub fn private(&self, name: impl AsRef<OsStr>, access: Access) -> io::Result<File> {
        let path = || self.path().join(name.as_ref());
        let (found, status) = self.found(name.as_ref())?;
        require_own(&status, path)?;
        if status.st_mode & 0o077 != 0 {
            return Err(Refusal::Open(path()).into());
        }
        self.reopen(&found, name.as_ref(), &status, access)
    }

    /// Opens an entry by `O_PATH`, which has no side effects. A link is not followed.
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

    /// Opens an existing entry without following links, blocking, or acquiring a controlling terminal.
    pub(crate) fn existing(&self, name: &OsStr, access: Access) -> io::Result<(File, Stat)> {
        let flags = access.flags() | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: File = match openat(&self.0, single(name)?, flags, Mode::empty()) {
            // The error for a socket, and for a FIFO without a reader.
            Err(Errno::NXIO) => {
                regular(&statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?, || self.path().join(name))?;
                return Err(Errno::NXIO.into());
            }
            opened => opened?.into(),
        };
        let status = status(file.as_fd())?;
        Ok((file, status))
    }

    /// Replaces a file atomically, with mode 0644 less the umask.
    pub fn replace(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        use std::io::Write as _;
        let name = name.as_ref();
        let mut new = name.to_owned();
        new.push(".new");
        // A killed process may have left it, or another user created it. A link is removed, not followed.
        match self.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = self.create(&new, Access::Write, 0o644)?;
        let written = file.write_all(content).and_then(|()| self.rename(&new, name));
        if written.is_err() {
            // The first error is reported.
            let _ = self.remove(&new);
        }
        written
    }

    /// Renames an entry within the directory. An entry with the new name is replaced.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.0, single(from.as_ref())?, &self.0, single(to.as_ref())?)?)
    }

    /// Removes a file or a link.
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

/// Returns the first directory on the path to `path`, itself included, in which users other than root and
/// this one can replace an entry of root or of this user, or `None` if there is no such directory. Links are
/// resolved first.
pub fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    const STICKY: u32 = 0o1000;
    let real = std::fs::canonicalize(path)?;
    let mut all: Vec<&Path> = real.ancestors().collect();
    all.reverse();
    for directory in all {
        let metadata = std::fs::symlink_metadata(directory)?;
        let others_write = metadata.mode() & 0o022 != 0 && metadata.mode() & STICKY == 0;
        // In a rootless container, directories of the host's root have an owner that the container does not
        // know.
        let owned = trusted(metadata.uid()) || unmapped(metadata.uid());
        if !owned || others_write {
            return Ok(Some(directory.to_owned()));
        }
    }
    Ok(None)
}

/// Opens a directory in which this user's processes find each other, and makes it and its parents if they do
/// not exist. Only root and this user may be able to change its content or to replace it. Another process may
/// make it at the same time.
///
/// # Errors
/// Returns the kernel's error, [`Refusal::Replaceable`], or `PermissionDenied` if others can create entries.
pub fn make_private(path: &Path) -> io::Result<Dir> {
    let mut parts = path.components().count();
    let dir = loop {
        match Dir::make(path) {
            // Each turn that ends here has found that another process has made one more part of the path.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && parts > 0 => parts -= 1,
            made => break made?.0,
        }
    };
    require_private(path, &dir)?;
    Ok(dir)
}

/// Rejects a directory, open and by its path, if users other than root and this one can change its content or
/// replace it.
///
/// # Errors
/// Returns the kernel's error, [`Refusal::Replaceable`], or `PermissionDenied` if others can create entries.
pub fn require_private(path: &Path, dir: &Dir) -> io::Result<()> {
    reject_replaceable(path)?;
    if dir.is_shared()? { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

/// Returns where processes of this user may have such a directory, the best place first: /run, which root's
/// processes have or an administrator has given to others, then `XDG_RUNTIME_DIR`, /run/user, and a directory
/// for temporary files of the name `prefix` with the user's number.
pub fn private_places(prefix: &str) -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    let given = std::env::var_os("XDG_RUNTIME_DIR").filter(|given| !given.is_empty()).map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let shared = [Some("/run".into()), given, usual.is_dir().then_some(usual)].into_iter().flatten();
    let own = std::env::temp_dir().join(format!("{prefix}-{user}"));
    shared.map(|place: PathBuf| place.join(prefix)).chain([own]).collect()
}

/// Rejects a path on which other users can replace an entry of root or of this user ([`replaceable`]). If
/// this succeeds, a file that this process creates there can safely be opened by its path.
///
/// # Errors
/// Returns the kernel's error, or [`Refusal::Replaceable`].
pub fn reject_replaceable(path: &Path) -> io::Result<()> {
    match replaceable(path)? {
        Some(place) => Err(Refusal::Replaceable(place).into()),
        None => Ok(()),
    }
}

/// Checks that a name denotes one entry.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b".." || bytes.contains(&b'/') {
        Err(Errno::INVAL.into())
    } else {
        Ok(name)
    }
}

/// Returns whether an open failed because the entry is a link.
pub(crate) fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Rejects a file that another user may have created.
pub(crate) fn require_own(status: &Stat, path: impl Fn() -> PathBuf) -> io::Result<()> {
    regular(status, &path)?;
    if status.st_uid != geteuid().as_raw() {
        return Err(Refusal::Owner { path: path(), uid: status.st_uid }.into());
    }
    require_one_name(status, path)
}

/// Rejects a file with more than one name.
pub(crate) fn require_one_name(status: &Stat, path: impl Fn() -> PathBuf) -> io::Result<()> {
    if status.st_nlink > 1 { Err(Refusal::Names(path()).into()) } else { Ok(()) }
}

/// Clears `O_NONBLOCK` after a file has been checked, so that reads and writes block.
pub(crate) fn clear_nonblocking(file: File) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
