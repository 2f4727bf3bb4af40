//! Finds the file of a program name, as execvp(3) does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, access, faccessat};

use crate::waits;

/// Search path of execvp(3) if PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Maximum number of links on the way to a file, as the kernel has one.
const LINKS: usize = 40;

/// Reason why no program was found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotFound {
    /// No file of this name or path exists.
    #[error("failed to find {}", .0.display())]
    Missing(OsString),
    /// The file exists and may not be executed.
    #[error("failed to execute {}", path.display())]
    Denied {
        /// Path of the first file that may not be executed.
        path: PathBuf,
        /// Error that the system reported for the file.
        #[source]
        errno: Errno,
    },
}

/// Finds the file that `name` means: a path if it contains a slash, otherwise the first executable file of
/// that name in the directories of `path`. A directory or file without permission is skipped, and reported if
/// nothing else is found.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, NotFound> {
    if name.is_empty() {
        return Err(NotFound::Missing(name.into()));
    }
    let mut denied = None;
    for candidate in candidates(name, path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // The candidate's directory may be on a file system that does not answer.
        let _waits = waits::on(candidate.display().to_string());
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG) => {}
            Err(errno) => {
                denied.get_or_insert(NotFound::Denied { path: candidate, errno });
            }
        }
    }
    Err(denied.unwrap_or_else(|| NotFound::Missing(name.into())))
}

fn candidates(name: &OsStr, path: &OsStr) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(name)];
    }
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|folder| match folder {
            // An empty element is the current folder. "./" keeps what is run a path.
            [] => Path::new(".").join(name),
            folder => Path::new(OsStr::from_bytes(folder)).join(name),
        })
        .collect()
}

/// Checks that this process may execute the file with its effective ids. Returns EACCES for anything but a
/// regular file, as execve does.
fn executable(path: &Path) -> Result<(), Errno> {
    let metadata = std::fs::metadata(path).map_err(|error| errno(&error))?;
    if !metadata.is_file() {
        return Err(Errno::EACCES);
    }
    may(path, AccessFlags::X_OK)
}

/// Checks what this process may do with a path by its effective ids and capabilities. Older filters of system
/// calls refuse that question (`faccessat2`), and know the one about the real ids. These are the same here,
/// as vgpu-run is not set-user-ID.
pub fn may(path: &Path, mode: AccessFlags) -> Result<(), Errno> {
    match faccessat(AT_FDCWD, path, mode, AtFlags::AT_EACCESS) {
        Err(Errno::EPERM | Errno::ENOSYS) => access(path, mode),
        answer => answer,
    }
}

/// Returns the first directory on the path that does not let this process through, or the file itself if
/// there is none. Links are followed: what one leads to may lie in a closed directory.
pub fn refusing(path: &Path) -> PathBuf {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        let mut folders: Vec<&Path> = at.ancestors().skip(1).filter(|folder| folder.is_absolute()).collect();
        folders.reverse();
        let closed = folders.into_iter().find(|folder| may(folder, AccessFlags::X_OK) == Err(Errno::EACCES));
        // A closed directory may be reached by a link, too.
        let link = closed.unwrap_or(&at).to_owned();
        match std::fs::read_link(&link) {
            Ok(target) => at = led_to(&link, &target),
            Err(_) => return link,
        }
    }
    at
}

/// Returns the path that the target of a link means, without `..`.
pub fn led_to(link: &Path, target: &Path) -> PathBuf {
    let folder = link.parent().unwrap_or(Path::new("/"));
    let mut path = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    for part in target.components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            // An absolute path begins anew.
            part => path.push(part),
        }
    }
    path
}

/// Returns the errno of an error of the system, or EIO for an error that has none.
pub fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::scratch::Scratch;

    fn file(path: &Path, mode: u32) {
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_executable_file_on_the_path_is_taken() {
        let scratch = Scratch::new();
        for folder in ["a", "b", "c", "d"] {
            fs::create_dir(scratch.join(folder)).unwrap();
        }
        fs::create_dir(scratch.join("a/tool")).unwrap(); // a folder of that name
        file(&scratch.join("b/tool"), 0o644); // not executable
        file(&scratch.join("c/tool"), 0o755);
        file(&scratch.join("d/tool"), 0o755);
        let path: Vec<_> = ["missing", "a", "b", "c", "d"].iter().map(|f| scratch.join(f)).collect();
        let path = std::env::join_paths(path).unwrap();
        assert_eq!(find(OsStr::new("tool"), Some(&path)), Ok(scratch.join("c/tool")));
    }

    #[test]
    fn what_may_not_be_executed_is_named_when_nothing_else_is_there() {
        let scratch = Scratch::new();
        let path = scratch.join("tool");
        file(&path, 0o644);
        let denied = NotFound::Denied { path: path.clone(), errno: Errno::EACCES };
        assert_eq!(find(OsStr::new("tool"), Some(scratch.path().as_os_str())), Err(denied));
        let denied = NotFound::Denied { path: path.clone(), errno: Errno::EACCES };
        assert_eq!(find(path.as_os_str(), None), Err(denied));
    }

    #[test]
    fn a_name_with_a_slash_is_not_looked_for() {
        let missing = OsStr::new("./no-such-program");
        assert_eq!(find(missing, Some(OsStr::new("/bin"))), Err(NotFound::Missing(missing.into())));
        let beneath_a_file = OsStr::new("/proc/self/exe/tool");
        assert_eq!(find(beneath_a_file, None), Err(NotFound::Missing(beneath_a_file.into())));
    }

    #[test]
    fn no_path_means_the_systems_folders() {
        assert!(find(OsStr::new("sh"), None).unwrap().ends_with("bin/sh"));
        assert_eq!(find(OsStr::new(""), None), Err(NotFound::Missing("".into())));
    }

    #[test]
    fn an_empty_element_is_the_current_folder() {
        let found = candidates(OsStr::new("x"), OsStr::new("/a::/b:"));
        assert_eq!(found, [Path::new("/a/x"), Path::new("./x"), Path::new("/b/x"), Path::new("./x")]);
    }
}
