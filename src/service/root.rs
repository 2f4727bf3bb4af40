//! The system that is set up: this one, or the directory tree of another one (`--root`). All files are
//! accessed through it and access never leaves the tree: links are followed as the processes of that system
//! will see them.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use vgpu_paths::Tree;

/// Maximum size in bytes of a file that is read whole, such as a unit file or a receipt.
const MOST: u64 = 4 << 20;
/// Maximum number of links followed from one file, as in the kernel.
const LINKS: usize = 40;

/// The file system of the system that is set up. Paths are absolute, as the system itself sees them.
#[derive(Clone, Debug)]
pub struct SystemRoot {
    path: PathBuf,
    tree: Arc<Tree>,
}

impl SystemRoot {
    /// Opens the tree at `path`; `/` is the running system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let tree = Tree::open(&path)?;
        Ok(Self { path, tree: tree.into() })
    }

    /// Returns whether this is the running system, on which changes must also be activated.
    pub fn is_this(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Returns the path on the running system, for messages. Links in the tree are not resolved.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let mut real = self.path.clone();
        for part in path.as_ref().components() {
            match part {
                Component::Normal(name) => real.push(name),
                Component::ParentDir if real != self.path => drop(real.pop()),
                _ => {}
            }
        }
        real
    }

    /// Reads a regular file. Links are followed as the system would, and end at `/dev/null` as an empty file.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            if path == Path::new("/dev/null") {
                return Ok(Vec::new());
            }
            let (dir, name) = self.tree.parent(&path)?;
            let Some(target) = dir.link(name)? else {
                let mut bytes = Vec::new();
                dir.read(name)?.take(MOST + 1).read_to_end(&mut bytes)?;
                if bytes.len() as u64 > MOST {
                    return Err(io::Error::other(format!("it has more than {MOST} bytes")));
                }
                return Ok(bytes);
            };
            path = path.parent().unwrap_or(Path::new("/")).join(target);
        }
        Err(io::Error::other("too many links"))
    }

    /// Reads a file. Returns `None` if it does not exist.
    pub fn read_if_there(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match self.read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a file of any kind exists at `path`.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.tree.contains(path.as_ref())
    }

    /// Returns the names in a directory, or nothing if it cannot be read.
    pub fn entries(&self, path: &Path) -> Vec<OsString> {
        self.tree.entries(path).unwrap_or_default()
    }

    /// Creates the parent directories of `path` and returns those that did not exist, the deepest last.
    pub fn make_folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.tree.make_parents(path)
    }

    /// Replaces a file atomically. A link of the same name is replaced rather than followed.
    pub fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let (dir, name) = self.tree.parent(path)?;
        dir.replace(name, text.as_bytes())
    }

    /// Removes a file. A link is removed itself.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.tree.parent(path)?;
        dir.remove(name)
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.tree.parent(path)?;
        dir.remove_dir(name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn names_for_messages_are_in_the_tree() {
        let scratch = Scratch::new();
        let root = SystemRoot::open(scratch.path()).unwrap();
        assert_eq!(root.path("/etc/x"), scratch.join("etc/x"));
        assert_eq!(root.path("/../../etc"), scratch.join("etc"));
        assert_eq!(root.path("/a/../b"), scratch.join("b"));
        assert!(!root.is_this() && SystemRoot::open(Path::new("/")).unwrap().is_this());
        assert!(SystemRoot::open(&scratch.join("none")).is_err());
    }

    #[test]
    fn links_are_the_trees() {
        let scratch = Scratch::new();
        let root = SystemRoot::open(scratch.path()).unwrap();
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

    /// Guards against privilege escalation: no operation reads, writes, creates or removes anything outside
    /// of the tree.
    #[test]
    fn nothing_leads_out_of_the_tree() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.join("tree/etc")).unwrap();
        fs::create_dir(scratch.join("outside")).unwrap();
        fs::write(scratch.join("outside/secret"), "secret").unwrap();
        let root = SystemRoot::open(&scratch.join("tree")).unwrap();
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.path(name)).unwrap();
        link(scratch.join("outside").to_str().unwrap(), "/etc/absolute");
        link("../../outside", "/etc/relative");
        link("../../outside/secret", "/etc/file");
        link("../../outside/secret", "/etc/file.new");
        for folder in ["/etc/absolute", "/etc/relative"] {
            let (there, new) = (Path::new(folder).join("secret"), Path::new(folder).join("new/file"));
            assert!(root.read(&there).is_err() && !root.has(&there), "{folder}");
            assert!(root.write(&there, "x").is_err() && root.remove(&there).is_err(), "{folder}");
            assert!(root.make_folders(&new).is_err(), "{folder}");
            assert!(root.remove_folder(Path::new(folder)).is_err(), "{folder}");
            assert!(root.entries(Path::new(folder)).is_empty(), "{folder}");
        }
        assert!(root.read(Path::new("/etc/file")).is_err());
        root.write(Path::new("/etc/file"), "ours").unwrap();
        assert_eq!(root.read(Path::new("/etc/file")).unwrap(), b"ours");
        assert_eq!(fs::read_to_string(scratch.join("outside/secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(scratch.join("outside")).unwrap().count(), 1);
    }

    /// Reading a FIFO fails. Opening it for reading would block until a writer opens it.
    #[test]
    fn a_fifo_in_the_tree_is_no_file() {
        let scratch = Scratch::new();
        let root = SystemRoot::open(scratch.path()).unwrap();
        nix::unistd::mkfifo(&scratch.join("unit"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = root.read(Path::new("/unit")).unwrap_err();
        assert!(error.to_string().ends_with("unit is a FIFO, not a regular file"), "{error}");
    }
}
