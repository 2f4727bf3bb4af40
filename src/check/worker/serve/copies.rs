//! Copies of the files of a home directory, which a server and the script that starts it may read and write
//! while the originals stay as they are. A link would not do: what is written through it is written for real.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of files and directories.
const ENTRIES: usize = 512;
/// Maximum size of a file.
const FILE: u64 = 1 << 20;
/// Maximum number of bytes of all files.
const ALL: u64 = 16 << 20;
/// Time limit for all files. Tests have more, because their machine may be loaded.
const LIMIT: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 2 });
/// Directories of secrets, which stay empty: no start of a server needs them.
const SECRETS: [&str; 2] = [".ssh", ".gnupg"];

/// Copies a home directory's files into the directory `to`, in which the directory `own` exists: first the
/// files of the home's own one of this name, then, with `whole`, all others, with the nearest directories
/// first. What cannot be copied is not seen, as if it were not there; a file system that does not answer is
/// waited for until a time limit.
pub fn show(from: PathBuf, to: PathBuf, own: &'static str, whole: bool) {
    let (send, done) = mpsc::channel();
    let mut copies = Copies { entries: ENTRIES, bytes: ALL, until: Instant::now() + LIMIT };
    let copy = move || {
        copies.folder(&from.join(own), &to.join(own), &mut |_, _| ());
        if whole {
            copies.tree(from, to);
        }
        // Nobody may wait any more.
        let _ = send.send(());
    };
    // A thread that is held goes with the process. Without one nothing is copied.
    if thread::Builder::new().spawn(copy).is_ok() {
        let _ = done.recv_timeout(LIMIT);
    }
}

/// What may still be copied.
struct Copies {
    entries: usize,
    bytes: u64,
    until: Instant,
}

impl Copies {
    /// Copies the files of a directory and of the directories below it that do not exist yet.
    fn tree(&mut self, from: PathBuf, to: PathBuf) {
        let mut folders = VecDeque::from([(from, to)]);
        while let Some((from, to)) = folders.pop_front() {
            self.folder(&from, &to, &mut |from: PathBuf, to: PathBuf| {
                let secret = from.file_name().is_some_and(|name| SECRETS.iter().any(|one| name == *one));
                if fs::create_dir(&to).is_ok() && !secret {
                    folders.push_back((from, to));
                }
            });
        }
    }

    /// Copies the files of a directory, and calls `below` with each directory in it and its place.
    fn folder(&mut self, from: &Path, to: &Path, below: &mut dyn FnMut(PathBuf, PathBuf)) {
        for entry in fs::read_dir(from).into_iter().flatten().flatten() {
            // Other starts of vgpu-run keep their files here.
            if entry.file_name().as_bytes().starts_with(b"vgpu-run.") {
                continue;
            }
            match self.entries.checked_sub(1).filter(|_| Instant::now() < self.until) {
                Some(fewer) => self.entries = fewer,
                None => return,
            }
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() {
                below(from, to);
            } else {
                // See `show`.
                let _ = self.file(&from, &to);
            }
        }
    }

    fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let metadata = fs::metadata(from)?;
        let (content, mode) = if metadata.len() <= FILE {
            (vgpu_paths::read(from, FILE.min(self.bytes))?, metadata.mode() & 0o777)
        } else if metadata.is_file() && metadata.mode() & 0o111 != 0 && !is_library(from) {
            (stand_in(&std::path::absolute(from)?), 0o700)
        } else {
            return Ok(());
        };
        self.bytes = self.bytes.saturating_sub(content.len() as u64);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(to)?;
        file.write_all(&content)
    }
}

/// Returns whether a file is named like a library. The loader passes over a library that is missing, but
/// fails at a file that is not a library.
fn is_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| memchr::memmem::find(name.as_bytes(), b".so").is_some())
}

/// Returns a script that starts a program, in place of one that is too large to be copied.
fn stand_in(program: &Path) -> Vec<u8> {
    let quoted: Vec<&[u8]> = program.as_os_str().as_bytes().split(|byte| *byte == b'\'').collect();
    let quoted = quoted.join(&b"'\\''"[..]);
    [&b"#!/bin/sh\nexec '"[..], &quoted, b"' \"$@\"\n"].concat()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::scratch::Scratch;

    /// Copies a home whose own directory is `own` and returns the copy.
    fn shown(home: &Scratch) -> Scratch {
        let copy = Scratch::new();
        fs::create_dir(copy.join("own")).unwrap();
        show(home.path().to_owned(), copy.path().to_owned(), "own", true);
        copy
    }

    #[test]
    fn what_is_written_into_a_copy_leaves_the_original() {
        let home = Scratch::new();
        let names = [".profile", "ollama.log", "own/key", "logs/day/x", "linked"];
        for folder in ["own/models", "logs/day", ".ssh"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        for name in &names[..4] {
            fs::write(home.join(name), "original").unwrap();
        }
        for hidden in ["own/models/blob", ".ssh/id"] {
            fs::write(home.join(hidden), "").unwrap();
        }
        symlink(home.join(".profile"), home.join("linked")).unwrap();
        symlink(home.path(), home.join("self")).unwrap();
        let copy = shown(&home);
        for name in names {
            assert_eq!(fs::read(copy.join(name)).unwrap(), b"original", "{name}");
            fs::write(copy.join(name), "changed").unwrap();
            assert_eq!(fs::read(home.join(name)).unwrap(), b"original", "{name}");
        }
        fs::write(copy.join("logs/new"), "").unwrap();
        assert!(!home.join("logs/new").exists());
        assert!(!copy.join("own/models").exists(), "the server writes there");
        assert!(copy.join(".ssh").is_dir() && !copy.join(".ssh/id").exists());
    }

    #[test]
    fn large_files_are_left_out_and_large_programs_have_a_stand_in() {
        let home = Scratch::new();
        for (name, mode) in [("data", 0o600), ("it's", 0o700), ("lib.so.1", 0o700)] {
            let file = fs::File::create(home.join(name)).unwrap();
            file.set_len(FILE + 1).unwrap();
            file.set_permissions(fs::Permissions::from_mode(mode)).unwrap();
        }
        let copy = shown(&home);
        assert!(!copy.join("data").exists() && !copy.join("lib.so.1").exists());
        let program = home.path().display().to_string();
        let text = fs::read_to_string(copy.join("it's")).unwrap();
        assert_eq!(text, format!("#!/bin/sh\nexec '{program}/it'\\''s' \"$@\"\n"));
        assert_eq!(fs::metadata(copy.join("it's")).unwrap().mode() & 0o777, 0o700);
        fs::write(copy.join("it's"), "").unwrap();
        assert_eq!(fs::metadata(home.join("it's")).unwrap().len(), FILE + 1);
    }
}
