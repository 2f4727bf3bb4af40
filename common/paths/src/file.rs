//! Opens files that a user names: logs, reports, and files that all users of a machine share.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::dir::{Dir, clear_nonblocking, is_link, require_one_name, require_own};
use crate::kernel::Kernel;
use crate::open::{Access, regular};
use crate::refusal::Refusal;
use crate::walk::{LINKS, magic};

/// Number of attempts to open a file that other processes remove or create meanwhile.
const TRIES: usize = 16;

/// Opens a file to append to it, and creates it with mode 0644 less the umask. A terminal or `/dev/null` is
/// accepted too.
///
/// # Errors
/// Returns the error of the kernel, or a [`Refusal`]: in a shared directory the file must belong to this
/// user.
pub fn append(path: &Path) -> io::Result<File> {
    named(Kernel::New, path, Access::Append, 0o644)
}

/// Opens a file and truncates it, and creates it with mode 0600. An existing file keeps its mode.
///
/// # Errors
/// Fails as [`append`] does.
pub fn overwrite(path: &Path) -> io::Result<File> {
    let file = named(Kernel::New, path, Access::Write, 0o600)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file that all users of the machine share, and creates it with mode 0666 whatever the umask. Its
/// directory is writable for all of them, such as `/var/tmp`, and the user who creates it owns it.
///
/// # Errors
/// Returns the error of the kernel, or a [`Refusal`]: the file must be regular, with one name, and not a
/// link.
pub fn shared(path: &Path, access: Access) -> io::Result<File> {
    let (dir, name) = open_parent(Kernel::New, path)?;
    for _ in 0..TRIES {
        match dir.existing(name, access) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_link(&error) => return Err(Refusal::Link(path.to_owned()).into()),
            opened => {
                let (file, status) = opened?;
                regular(&status, || path.to_owned())?;
                require_one_name(&status, || path.to_owned())?;
                return clear_nonblocking(file);
            }
        }
        match dir.create(name, access, 0o666) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => {
                let file = created?;
                // Processes of other users open it too, whatever the umask of this one.
                file.set_permissions(Permissions::from_mode(0o666))?;
                return Ok(file);
            }
        }
    }
    Err(Errno::AGAIN.into())
}

/// Opens the parent directory of a file. Returns it with the name of the file.
fn open_parent(kernel: Kernel, path: &Path) -> io::Result<(Dir, &OsStr)> {
    let name = path.file_name().ok_or(Errno::ISDIR)?;
    Ok((Dir::open_by(kernel, path.parent().unwrap_or(Path::new(".")))?, name))
}

/// Opens or creates the file at `path`.
pub(crate) fn named(kernel: Kernel, path: &Path, access: Access, mode: u32) -> io::Result<File> {
    let mut path: PathBuf = path.to_owned();
    let mut links = 0;
    for _ in 0..TRIES + LINKS {
        let (dir, name) = open_parent(kernel, &path)?;
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
                    require_own(&status, located)?;
                } else if FileType::from_raw_mode(status.st_mode) != FileType::CharacterDevice {
                    regular(&status, located)?;
                }
                return clear_nonblocking(file);
            }
        }
    }
    Err(Errno::AGAIN.into())
}
