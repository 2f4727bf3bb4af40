//! Files that a user names: logs, reports, and files that all users of a machine share.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::dir::{Dir, is_link, one_name, own, settled};
use crate::kernel::Kernel;
use crate::open::{Access, regular};
use crate::refusal::Refusal;
use crate::walk::{LINKS, magic};

/// So often a file that was removed, or made by somebody else, between two calls is tried again.
const TRIES: usize = 16;

/// Opens a file to write at its end, creating it with mode 0644 less what the umask takes away. A terminal or
/// `/dev/null` serves too.
///
/// # Errors
/// The kernel's, or a [`Refusal`]: in a directory where others can write, a file must be this user's own.
pub fn append(path: &Path) -> io::Result<File> {
    named(Kernel::New, path, Access::Append, 0o644)
}

/// Opens a file to write it anew, creating it with mode 0600. What was in it is gone; its mode stays.
///
/// # Errors
/// As [`append`].
pub fn overwrite(path: &Path) -> io::Result<File> {
    let file = named(Kernel::New, path, Access::Write, 0o600)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file that all users of the machine share, creating it with mode 0666 whatever the umask. It lies
/// in a directory where all of them write, such as `/var/tmp`, and belongs to whoever was first.
///
/// # Errors
/// The kernel's, or a [`Refusal`]: it must be a regular file with one name, and no link.
pub fn shared(path: &Path, access: Access) -> io::Result<File> {
    let (dir, name) = place(Kernel::New, path)?;
    for _ in 0..TRIES {
        match dir.existing(name, access) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_link(&error) => return Err(Refusal::Link(path.to_owned()).into()),
            opened => {
                let (file, status) = opened?;
                regular(&status, || path.to_owned())?;
                one_name(&status, || path.to_owned())?;
                return settled(file);
            }
        }
        match dir.create(name, access, 0o666) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => {
                let file = created?;
                // Other users' processes need it, whatever this one's umask.
                file.set_permissions(Permissions::from_mode(0o666))?;
                return Ok(file);
            }
        }
    }
    Err(Errno::AGAIN.into())
}

/// The directory of a file, open, and the file's name in it.
fn place(kernel: Kernel, path: &Path) -> io::Result<(Dir, &OsStr)> {
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    Ok((Dir::open_by(kernel, path.parent().unwrap_or(Path::new(".")))?, name))
}

/// Opens or creates the file at `path`.
pub(crate) fn named(kernel: Kernel, path: &Path, access: Access, mode: u32) -> io::Result<File> {
    let mut path: PathBuf = path.to_owned();
    let mut links = 0;
    for _ in 0..TRIES + LINKS {
        let (dir, name) = place(kernel, &path)?;
        let shared = dir.is_shared()?;
        let located = || dir.path().join(name);
        match dir.existing(name, access) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.create(name, access, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                created => return created,
            },
            Err(error) if is_link(&error) => {
                if shared {
                    return Err(Refusal::Link(located()).into());
                }
                links += 1;
                if links > LINKS {
                    return Err(error);
                }
                if magic(dir.as_fd()) {
                    // A descriptor of this process: `/dev/stdout`.
                    let flags = access.flags() | OFlags::NOCTTY | OFlags::CLOEXEC;
                    return Ok(openat(&dir, name, flags, Mode::empty())?.into());
                }
                let target = dir.link(name)?.ok_or(error)?;
                path = dir.path().join(target);
            }
            Err(error) => return Err(error),
            Ok((file, status)) => {
                if shared {
                    own(&status, located)?;
                } else if FileType::from_raw_mode(status.st_mode) != FileType::CharacterDevice {
                    regular(&status, located)?;
                }
                return settled(file);
            }
        }
    }
    Err(Errno::AGAIN.into())
}
