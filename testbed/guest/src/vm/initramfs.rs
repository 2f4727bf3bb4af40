//! The root file system of a guest: a cpio archive (`newc`) that the kernel unpacks into memory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, trailer};

use super::libraries::{self, LibraryError};

/// Reasons why the archive cannot be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum InitramfsError {
    #[error("put {path} into the guest")]
    File { path: PathBuf, source: io::Error },
    #[error("put {0} into the guest: its path in the guest has to be absolute, without `..`")]
    Path(PathBuf),
    #[error(transparent)]
    Libraries(#[from] LibraryError),
    #[error("write the initramfs")]
    Write(#[source] io::Error),
}

/// An entry of the root file system, as it is written to the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Folder {
        mode: u32,
        owner: u32,
    },
    /// A copy of a file of the host, with its mode.
    Host(PathBuf, u32),
    Text(Vec<u8>, u32),
    Link(PathBuf),
}

/// A root file system under construction.
#[derive(Clone, Debug, Default)]
pub struct Initramfs {
    /// Entries by path without the leading slash, so that directories sort before their contents.
    entries: BTreeMap<PathBuf, Entry>,
}

impl Initramfs {
    /// Creates a root file system with no entry.
    pub fn new() -> Self {
        Self::default()
    }

    fn put(&mut self, path: &Path, entry: Entry) -> Result<(), InitramfsError> {
        let mut own = PathBuf::new();
        let mut components = path.components();
        if components.next() != Some(Component::RootDir) {
            return Err(InitramfsError::Path(path.to_owned()));
        }
        for component in components {
            let Component::Normal(name) = component else {
                return Err(InitramfsError::Path(path.to_owned()));
            };
            if !own.as_os_str().is_empty() {
                let folder = Entry::Folder { mode: 0o755, owner: 0 };
                self.entries.entry(own.clone()).or_insert(folder);
            }
            own.push(name);
        }
        self.entries.insert(own, entry);
        Ok(())
    }

    /// Adds a directory with a mode and an owner, who is also its group.
    pub fn folder(&mut self, path: impl AsRef<Path>, mode: u32, owner: u32) -> Result<(), InitramfsError> {
        self.put(path.as_ref(), Entry::Folder { mode, owner })
    }

    /// Adds a file with this content, owned and writable by root only.
    pub fn text(
        &mut self,
        path: impl AsRef<Path>,
        content: impl Into<Vec<u8>>,
    ) -> Result<(), InitramfsError> {
        self.put(path.as_ref(), Entry::Text(content.into(), 0o644))
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> Result<(), InitramfsError> {
        self.put(path.as_ref(), Entry::Link(target.into()))
    }

    /// Adds a copy of a file of the host.
    pub fn file(&mut self, path: impl AsRef<Path>, from: &Path) -> Result<(), InitramfsError> {
        self.put(path.as_ref(), Entry::Host(from.to_owned(), 0o644))
    }

    /// Adds a program of the host and the libraries that it needs, which keep the host's paths.
    pub fn program(&mut self, path: impl AsRef<Path>, from: &Path) -> Result<(), InitramfsError> {
        self.put(path.as_ref(), Entry::Host(from.to_owned(), 0o755))?;
        self.libraries_of(from, None)
    }

    /// Adds the libraries that a program or library of the host needs, at the host's paths. Those below
    /// `except` are skipped, because the guest sees that directory anyway.
    pub fn libraries_of(&mut self, of: &Path, except: Option<&Path>) -> Result<(), InitramfsError> {
        for library in libraries::needed_by(of)? {
            if !except.is_some_and(|folder| library.starts_with(folder)) {
                self.put(&library, Entry::Host(library.clone(), 0o755))?;
            }
        }
        Ok(())
    }

    /// Writes the cpio archive to a stream.
    pub fn write(&self, to: impl Write) -> Result<(), InitramfsError> {
        let mut to = to;
        for (number, (path, entry)) in self.entries.iter().enumerate() {
            let builder = Builder::new(&path.to_string_lossy()).ino(number as u32 + 1);
            let link;
            let host;
            let (builder, content): (_, &[u8]) = match entry {
                Entry::Folder { mode, owner } => {
                    let folder = builder.mode(*mode).uid(*owner).gid(*owner).nlink(2);
                    (folder.set_mode_file_type(ModeFileType::Directory), &[])
                }
                Entry::Host(from, mode) => {
                    let error = |source| InitramfsError::File { path: from.clone(), source };
                    host = fs::read(from).map_err(error)?;
                    (builder.mode(*mode).set_mode_file_type(ModeFileType::Regular), &host)
                }
                Entry::Text(content, mode) => {
                    (builder.mode(*mode).set_mode_file_type(ModeFileType::Regular), content)
                }
                Entry::Link(target) => {
                    link = target.to_string_lossy().into_owned();
                    (builder.mode(0o777).set_mode_file_type(ModeFileType::Symlink), link.as_bytes())
                }
            };
            let bytes = u32::try_from(content.len())
                .map_err(|_| InitramfsError::Write(io::ErrorKind::FileTooLarge.into()))?;
            let mut writer = builder.write(to, bytes);
            writer.write_all(content).map_err(InitramfsError::Write)?;
            to = writer.finish().map_err(InitramfsError::Write)?;
        }
        let mut to = trailer(to).map_err(InitramfsError::Write)?;
        to.flush().map_err(InitramfsError::Write)
    }

    /// Writes the cpio archive to a new file.
    pub fn write_to(&self, path: &Path) -> Result<(), InitramfsError> {
        let file = File::create(path).map_err(InitramfsError::Write)?;
        self.write(io::BufWriter::with_capacity(1 << 20, file))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use cpio::newc::Reader;

    use super::*;

    type Listed = (String, u32, u32, Vec<u8>);

    /// Returns name, mode, owner and content of every entry of an archive.
    fn list(mut archive: &[u8]) -> Vec<Listed> {
        let mut found = Vec::new();
        loop {
            let mut reader = Reader::new(archive).unwrap();
            if reader.entry().is_trailer() {
                return found;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let owner = reader.entry().uid();
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            found.push((name, mode, owner, content));
            archive = reader.finish().unwrap();
        }
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, b"#!/bin/sh\n").unwrap();
        let mut root = Initramfs::new();
        root.text("/etc/deep/passwd", "root\n").unwrap();
        root.folder("/home/guest", 0o700, 1000).unwrap();
        root.link("/bin/sh", "busybox").unwrap();
        root.put(Path::new("/init"), Entry::Host(program, 0o755)).unwrap();
        let mut archive = Vec::new();
        root.write(&mut archive).unwrap();
        let listed = list(&archive);
        let plain =
            |name: &str, mode, owner, content: &[u8]| (name.to_owned(), mode, owner, content.to_vec());
        let wanted = [
            plain("bin", 0o040_755, 0, b""),
            plain("bin/sh", 0o120_777, 0, b"busybox"),
            plain("etc", 0o040_755, 0, b""),
            plain("etc/deep", 0o040_755, 0, b""),
            plain("etc/deep/passwd", 0o100_644, 0, b"root\n"),
            plain("home", 0o040_755, 0, b""),
            plain("home/guest", 0o040_700, 1000, b""),
            plain("init", 0o100_755, 0, b"#!/bin/sh\n"),
        ];
        assert_eq!(listed, wanted);
    }

    #[test]
    fn paths_outside_are_refused() {
        let mut root = Initramfs::new();
        for path in ["etc", "/etc/../..", "../x"] {
            assert!(matches!(root.text(path, ""), Err(InitramfsError::Path(_))), "{path}");
        }
        root.file("/x", Path::new("/does/not/exist")).unwrap();
        assert!(matches!(root.write(&mut Vec::new()), Err(InitramfsError::File { .. })));
    }
}
