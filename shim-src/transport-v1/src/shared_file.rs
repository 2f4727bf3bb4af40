//! Files that all users of a machine share, in directories where every user can create files.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use vgpu_paths::Access;

/// Purpose for which a shared file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePurpose {
    /// The file is locked by `flock`, which needs only read access.
    Locks,
    /// The file is read, written, and locked by record locks.
    Marks,
}

/// Opens a file that all users of the machine share, and creates it if it does not exist.
///
/// # Errors
/// Fails if the file cannot be opened. A link, a file that is not regular, and a file with a second name are
/// rejected: another user may have put it there.
pub(super) fn shared(path: &Path, purpose: FilePurpose) -> io::Result<File> {
    let access = match purpose {
        FilePurpose::Locks => Access::Read,
        FilePurpose::Marks => Access::ReadWrite,
    };
    let file = vgpu_paths::shared(path, access)?;
    if purpose == FilePurpose::Locks {
        share_if_left(&file)?;
    }
    Ok(file)
}

/// Mode in which an old guest of root leaves the device's lock file. Old guests of other users fail to open
/// it for writing and then work without the lock (Q29).
const LEFT_MODE: u32 = 0o644;
/// Mode in which every user can lock the file.
const SHARED_MODE: u32 = 0o666;

/// Lets every user lock a file that an old guest of this user has left. A file with a mode that an
/// administrator chose keeps it. Returns whether the mode was changed.
fn share_if_left(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    // SAFETY: takes no arguments and always succeeds.
    let user = unsafe { libc::geteuid() };
    let was_left = metadata.mode() & 0o7777 == LEFT_MODE && metadata.uid() == user;
    if was_left {
        file.set_permissions(PermissionsExt::from_mode(SHARED_MODE))?;
    }
    Ok(was_left)
}

/// Lets every user lock the file at `path`, if an old guest of this user has left it. Returns whether the
/// mode was changed; false if there is no file.
///
/// # Errors
/// Fails if the file cannot be opened, or is not a regular file with one name.
pub(super) fn share_with_all(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => share_if_left(&vgpu_paths::shared(path, Access::Read)?),
    }
}

/// Rejects a file that is not regular or has a second name: it could be any file of this user.
pub(super) fn require_own_file(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.nlink() == 1 {
        return Ok(());
    }
    Err(io::Error::other("something else was put in the place of this file"))
}
