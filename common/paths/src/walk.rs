//! Resolves a path one directory at a time, and checks each link before it is followed.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::kernel::DIRECTORY;
use crate::refusal::Refusal;

/// Maximum number of links on one path, the same as the kernel's.
pub(crate) const LINKS: usize = 40;

/// The id that the kernel shows for an owner without a mapping in the user namespace. Otherwise the id of
/// `nobody`.
const OVERFLOW: u32 = 65534;

/// Which links a walk follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Links in directories that are not shared. An absolute path starts at the root directory of the
    /// process.
    Trusted,
    /// All links. An absolute path starts where the walk starts, and nothing leads above that.
    Inside,
}

/// Opens the directory `path`, seen from `start`.
pub(crate) fn walk(start: OwnedFd, path: &Path, links: Links) -> io::Result<OwnedFd> {
    // The directories from the start to the current one. `Trusted` keeps only the current one.
    let mut way = vec![start];
    let mut rest: Vec<OsString> = Vec::new();
    push(&mut rest, path);
    let mut followed = 0;
    while let Some(name) = rest.pop() {
        let here = way.last().map(AsFd::as_fd).ok_or(Errno::NOENT)?;
        match (name.as_encoded_bytes(), links) {
            (b"/", Links::Inside) => {
                way.truncate(1);
                continue;
            }
            (b"/", Links::Trusted) => {
                way = vec![openat(CWD, "/", DIRECTORY, Mode::empty())?];
                continue;
            }
            (b"..", Links::Inside) => {
                // `..` is not opened, because the directory may have been moved out of the tree meanwhile.
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            (b"..", Links::Trusted) => {
                way = vec![openat(here, "..", DIRECTORY, Mode::empty())?];
                continue;
            }
            _ => {}
        }
        let next = match openat(here, &name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(next) => next,
            // The error for a link depends on the kernel's version.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let target = match readlinkat(here, &name, Vec::new()) {
                    Ok(target) => target,
                    Err(Errno::INVAL) => return Err(Errno::NOTDIR.into()),
                    Err(error) => return Err(error.into()),
                };
                followed += 1;
                if followed > LINKS {
                    return Err(Errno::LOOP.into());
                }
                if links == Links::Trusted && is_shared(here)? {
                    return Err(Refusal::Link(located(here).join(name)).into());
                }
                if links == Links::Inside || !magic(here) {
                    push(&mut rest, Path::new(&OsString::from_vec(target.into_bytes())));
                    continue;
                }
                // Only the kernel can resolve a magic link.
                openat(here, &name, DIRECTORY, Mode::empty())?
            }
            Err(error) => return Err(error.into()),
        };
        if links == Links::Trusted {
            way.clear();
        }
        way.push(next);
    }
    way.pop().ok_or_else(|| Errno::NOENT.into())
}

/// Pushes the components of `path` onto the stack of components to be resolved, the first one last.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    rest.extend(parts.rev().map(|part| part.as_os_str().to_owned()));
}

/// Returns the status of an open file or directory. Works for `O_PATH` descriptors.
pub(crate) fn status(file: BorrowedFd<'_>) -> io::Result<Stat> {
    Ok(statat(file, "", AtFlags::EMPTY_PATH)?)
}

/// Returns whether `uid` is root or this user.
pub(crate) fn trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Returns whether `uid` stands for owners without a mapping in this process's user namespace, and for no
/// real user.
pub(crate) fn unmapped(uid: u32) -> bool {
    uid == OVERFLOW && std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !covers(&map, uid))
}

/// Returns whether a map in the format of `/proc/self/uid_map` (first id, first id outside, count) contains
/// an id.
pub(crate) fn covers(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first + count).contains(&u64::from(uid)))
    })
}

/// Returns whether users other than root and this one can create entries in the directory.
pub(crate) fn is_shared(directory: BorrowedFd<'_>) -> io::Result<bool> {
    let status = status(directory)?;
    Ok(!trusted(status.st_uid) || status.st_mode & 0o022 != 0)
}

/// Returns whether the links in the directory are magic links of procfs, such as `/proc/self/fd`, whose
/// targets are not paths.
pub(crate) fn magic(directory: BorrowedFd<'_>) -> bool {
    fstatfs(directory).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC)
}

/// Returns the current path of an open directory, for messages.
pub(crate) fn located(directory: BorrowedFd<'_>) -> PathBuf {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap_or_default()
}
