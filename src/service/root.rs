//! The system that is set up: this one, or a folder tree of another (`--root`). All files are reached through it.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A system's tree. Paths are those that the system itself sees: absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The tree at `path`; `/` is this system.
    pub fn new(path: &Path) -> Self {
        Self(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    /// Whether it is this system, which has to take notice of what changes.
    pub fn is_this(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where a path of the system is. Nothing leads out of the tree: `..` stays where it is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let mut real = self.0.clone();
        for part in path.as_ref().components() {
            match part {
                Component::Normal(name) => real.push(name),
                Component::ParentDir if real != self.0 => drop(real.pop()),
                _ => {}
            }
        }
        real
    }

    /// What the system calls a path in its tree.
    pub fn name(&self, real: &Path) -> PathBuf {
        Path::new("/").join(real.strip_prefix(&self.0).unwrap_or(real))
    }

    /// Reads a file. Links are followed as the system would, and end at `/dev/null` as an empty file.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut path = path.to_owned();
        for _ in 0..16 {
            if path == Path::new("/dev/null") {
                return Ok(Vec::new());
            }
            let real = self.path(&path);
            match fs::read_link(&real) {
                Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
                Err(_) => return fs::read(real),
            }
        }
        Err(io::Error::other("too many links"))
    }

    /// Reads a file, if there is one.
    pub fn read_if_there(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match self.read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether something is there.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// Makes the folders that `path` lies in. Those that were made, the deepest last.
    pub fn make_folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut made = Vec::new();
        let folders: Vec<_> = path.ancestors().skip(1).collect();
        for folder in folders.into_iter().rev() {
            let real = self.path(folder);
            if !real.is_dir() {
                fs::create_dir(&real)?;
                made.push(folder.to_owned());
            }
        }
        Ok(made)
    }

    /// Puts a file in place: nobody ever sees a part of it.
    pub fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let real = self.path(path);
        let mut new = real.clone().into_os_string();
        new.push(".new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &real));
        if written.is_err() {
            // The first failure is the one to report.
            let _ = fs::remove_file(&new);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn nothing_leads_out_of_the_tree() {
        let root = Root::new(Path::new("/srv/tree"));
        assert_eq!(root.path("/etc/x"), Path::new("/srv/tree/etc/x"));
        assert_eq!(root.path("/../../etc"), Path::new("/srv/tree/etc"));
        assert_eq!(root.path("/a/../b"), Path::new("/srv/tree/b"));
        assert_eq!(root.name(Path::new("/srv/tree/etc/x")), Path::new("/etc/x"));
        assert!(!root.is_this() && Root::new(Path::new("/")).is_this());
    }

    #[test]
    fn links_are_the_trees() {
        let scratch = Scratch::new();
        let root = Root::new(scratch.path());
        let made = root.make_folders(Path::new("/etc/deep/file")).unwrap();
        assert_eq!(made, [Path::new("/etc"), Path::new("/etc/deep")]);
        assert!(root.make_folders(Path::new("/etc/deep/file")).unwrap().is_empty());
        root.write(Path::new("/etc/deep/file"), "text").unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.path(name)).unwrap();
        link("/etc/deep/file", "/etc/absolute");
        link("deep/file", "/etc/relative");
        link("/dev/null", "/etc/masked");
        link("loop", "/etc/loop");
        for name in ["/etc/absolute", "/etc/relative"] {
            assert_eq!(root.read(Path::new(name)).unwrap(), b"text");
        }
        assert_eq!(root.read(Path::new("/etc/masked")).unwrap(), b"");
        assert!(root.read(Path::new("/etc/loop")).is_err());
        assert_eq!(root.read_if_there(Path::new("/etc/none")).unwrap(), None);
        assert!(root.has("/etc/masked") && !root.has("/etc/none"));
    }
}
