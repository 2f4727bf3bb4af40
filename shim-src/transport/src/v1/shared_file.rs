//! Files that all users of a machine share, in directories where anybody can put something in their place.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use vgpu_paths::Access;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// `flock`, which needs no more than reading.
    Locks,
    /// Record locks and marks.
    Marks,
}

/// Opens a file for all users of the machine, and creates it where it does not exist. It lies where anybody
/// can put something in its place: a link, anything that is not a regular file, and a file with a second name
/// are refused. An existing file is opened without `O_CREAT`, which kernels refuse in `/tmp` when it is
/// another user's (`fs.protected_regular`).
pub(super) fn shared(path: &Path, purpose: For) -> io::Result<File> {
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

/// The mode in which old guests of root leave the device's lock file: other users cannot open it for writing,
/// as those guests do, and go on without the lock (Q29).
const LEFT: u32 = 0o644;
/// The mode in which everybody can.
const SHARED: u32 = 0o666;

/// Lets every user lock a file that an old guest of this user has left. A file to which an administrator gave
/// another mode keeps it. Returns whether the mode was changed.
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

/// Lets every user lock the device's lock file, if there is one that an old guest has left to this user
/// alone. Returns whether the mode was changed.
///
/// # Errors
/// It cannot be opened, or something else was put in its place.
pub(super) fn mend(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        _ => open_to_all(&vgpu_paths::shared(path, Access::Read)?),
    }
}

/// Refuses a file that is not regular or has a second name: it may be any file of the user who opens it.
pub(super) fn own(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.nlink() == 1 {
        return Ok(());
    }
    Err(io::Error::other("something else was put in the place of this file"))
}
