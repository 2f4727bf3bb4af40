//! The tree of another system: an image that is mounted, or a directory that becomes one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::ResolveFlags;
use rustix::io::Errno;

use crate::dir::Dir;
use crate::kernel::{Kernel, directory};
use crate::walk::{Links, walk};

/// The directory tree of another system. Paths and links are resolved as by a process whose root directory is
/// the tree, so nothing leads out of it.
#[derive(Debug)]
pub struct Tree {
    top: Dir,
    kernel: Kernel,
}

impl Tree {
    /// Opens the tree at `path`, which is resolved as by [`Dir::open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { top: Dir::open(path)?, kernel: Kernel::New })
    }

    #[cfg(test)]
    pub(crate) fn open_by(kernel: Kernel, path: &Path) -> io::Result<Self> {
        Ok(Self { top: Dir::open(path)?, kernel })
    }

    /// Opens a directory of the tree.
    pub fn dir(&self, path: &Path) -> io::Result<Dir> {
        let path = if path.as_os_str().is_empty() { Path::new("/") } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match directory(self.kernel, self.top.as_fd(), path, resolve) {
            None => {
                walk(self.top.as_fd().try_clone_to_owned()?, path, Links::Inside).map(Dir::from_descriptor)
            }
            Some(opened) => Ok(Dir::from_descriptor(opened?)),
        }
    }

    /// Opens the parent directory of `path`. Returns it with the last name of the path.
    pub fn parent<'a>(&self, path: &'a Path) -> io::Result<(Dir, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::ISDIR)?;
        Ok((self.dir(path.parent().unwrap_or(Path::new("/")))?, name))
    }

    /// Creates the missing parents of `path`, with mode 0755 less the umask. Returns those that were created,
    /// the deepest last.
    pub fn make_parents(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        let directories: Vec<_> = path.ancestors().skip(1).collect();
        for directory in directories.into_iter().rev() {
            match self.dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let (parent, name) = self.parent(directory)?;
                    parent.make_dir(name)?;
                    made.push(directory.to_owned());
                }
                opened => drop(opened?),
            }
        }
        Ok(made)
    }

    /// Returns the names of the entries of a directory, in no particular order.
    pub fn entries(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.dir(path)?.entries()
    }

    /// Returns whether `path` exists. A dangling link counts.
    pub fn contains(&self, path: &Path) -> bool {
        self.parent(path).is_ok_and(|(dir, name)| dir.contains(name))
    }
}
