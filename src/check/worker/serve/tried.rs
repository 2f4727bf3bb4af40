//! Tries whether a user may create directories and files, without creating any: rights are asked for, and
//! room is tried with a file that has no name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{AccessFlags, access};

use crate::check::messages::{RefusedValue, ValueTrouble};

/// Path that prevents an operation, with the error.
pub type Obstacle = (PathBuf, Errno);

/// Number of bytes by which room is tried: a block, which is more than a key takes.
const BLOCK: [u8; 4096] = [0; 4096];

/// Returns the report of a path that the server cannot use. `left` tells whether the server gets it all the
/// same.
pub fn refused(
    trouble: ValueTrouble,
    variable: &str,
    value: &Path,
    left: bool,
    (at, errno): Obstacle,
) -> RefusedValue {
    let (trouble, left) = match errno {
        // The server would create what it has room for.
        Errno::ENOSPC | Errno::EDQUOT => (ValueTrouble::NoRoom, false),
        _ => (trouble, left),
    };
    let value = value.display().to_string();
    RefusedValue { trouble, variable: variable.to_owned(), value, at, errno: Some(errno as i32), left }
}

/// Tries whether a directory exists or could be created with its parents, as Go's `os.MkdirAll` does. Returns
/// the directory itself or its nearest ancestor that exists.
pub fn creatable(path: &Path) -> Result<PathBuf, Obstacle> {
    let here = |errno| Err((path.to_owned(), errno));
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(path.to_owned()),
        Ok(_) => return here(Errno::ENOTDIR),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return here(errno(&error)),
    }
    if fs::symlink_metadata(path).is_ok() {
        // A link that leads nowhere.
        return here(Errno::EEXIST);
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return here(Errno::ENOENT),
    };
    let nearest = creatable(parent)?;
    if nearest == parent
        && let Err(errno) = writable(parent)
    {
        return Err((nearest, errno));
    }
    Ok(nearest)
}

/// Asks whether files may be created in a directory, by the real ids, which are this process's effective
/// ones. A question with flags is the call `faccessat2`, which older filters of system calls answer with
/// EPERM.
pub fn writable(folder: &Path) -> Result<(), Errno> {
    access(folder, AccessFlags::W_OK | AccessFlags::X_OK)
}

/// Tries whether there is room for a key in the directory's file system. Where the file system has no files
/// without a name, its own figures count.
pub fn room(folder: &Path) -> Result<(), Errno> {
    let unnamed = OpenOptions::new().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder);
    match unnamed.and_then(|mut file| file.write_all(&BLOCK)) {
        Ok(()) => Ok(()),
        Err(error) => match errno(&error) {
            errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EROFS) => Err(errno),
            _ => match File::open(folder).map(fstatvfs) {
                Ok(Ok(system)) if system.blocks() > 0 && system.blocks_available() == 0 => Err(Errno::ENOSPC),
                _ => Ok(()),
            },
        },
    }
}

/// Tries whether there is room for a directory. In tmpfs a directory takes none.
pub fn room_for_directory(folder: &Path) -> Result<(), Errno> {
    let kind = File::open(folder).map(|file| fstatfs(file).map(|system| system.filesystem_type()));
    if matches!(kind, Ok(Ok(kind)) if kind == TMPFS_MAGIC) { Ok(()) } else { room(folder) }
}

/// Returns the error number of an error of the system.
pub fn errno(error: &io::Error) -> Errno {
    crate::program::find::errno(error)
}
