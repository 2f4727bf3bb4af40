//! The system that is set up: this one, or a directory tree of another (`--root`). All files are reached
//! through it, and nothing leads out of it: links in the tree are followed as its own processes will see
//! them.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use vgpu_paths::Tree;

/// Bytes of a file that is read whole: unit files, receipts.
const MOST: u64 = 4 << 20;
/// Maximum number of links followed from one file, as in the kernel.
const LINKS: usize = 40;

/// A system's tree. Paths are those that the system itself sees: absolute.
#[derive(Clone, Debug)]
pub struct SystemRoot {
    path: PathBuf,
    tree: Arc<Tree>,
}

impl SystemRoot {
    /// The tree at `path`; `/` is this system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let tree = Tree::open(&path)?;
        Ok(Self { path, tree: tree.into() })
    }

    /// Whether it is this system, which has to take notice of what changes.
    pub fn is_this(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Path on the running system, for messages. A link may make it another file.
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
        self.tree.contains(path.as_ref())
    }

    /// The names in a directory; none where it cannot be read.
    pub fn entries(&self, path: &Path) -> Vec<OsString> {
        self.tree.entries(path).unwrap_or_default()
    }

    /// Makes the directories that `path` lies in. Those that were made, the deepest last.
    pub fn make_folders(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.tree.make_parents(path)
    }

    /// Replaces a file atomically. A link of that name is replaced and not followed.
    pub fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let (dir, name) = self.tree.parent(path)?;
        dir.replace(name, text.as_bytes())
    }

    /// Removes a file, or a link itself.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.tree.parent(path)?;
        dir.remove(name)
    }

    /// Removes a directory that is empty.
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

    /// A user becomes root, or writes where they should not: nothing is read, written, made or removed
    /// outside of the tree.
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

    /// Opening it for reading would wait for a writer for ever.
    #[test]
    fn a_fifo_in_the_tree_is_no_file() {
        let scratch = Scratch::new();
        let root = SystemRoot::open(scratch.path()).unwrap();
        nix::unistd::mkfifo(&scratch.join("unit"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = root.read(Path::new("/unit")).unwrap_err();
        assert!(error.to_string().ends_with("unit is a FIFO, not a regular file"), "{error}");
    }
}
