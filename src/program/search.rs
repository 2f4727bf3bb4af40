//! Determines where the loader looks for a library, as a pure function of its inputs and the existing files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::cache;

/// Default directories of glibc and of distributions on x86-64.
const DEFAULT: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Rule by which the loader found a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A directory of LD_LIBRARY_PATH.
    LibraryPath,
    /// A directory that the needing library names in RUNPATH.
    RunPath,
    /// The system's cache of libraries.
    Cache,
    /// A default directory of the system.
    Default,
}

impl Reason {
    /// Describes the rule for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::LibraryPath => "in a folder of LD_LIBRARY_PATH",
            Self::RunPath => "beside the backend",
            Self::Cache => "in the loader's cache",
            Self::Default => "in a folder of the system",
        }
    }
}

/// Search order of the loader for the libraries that a library needs.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Directories of `LD_LIBRARY_PATH`, in order.
    pub folders: Vec<PathBuf>,
    /// Directories in the RUNPATH of the library whose needs are resolved.
    pub run_path: Vec<PathBuf>,
    /// Content of `/etc/ld.so.cache`.
    pub cache: Vec<u8>,
}

impl Search {
    /// Creates a search with these directories in LD_LIBRARY_PATH and with this system's cache.
    pub fn new(folders: Option<&OsStr>, run_path: Vec<PathBuf>) -> Self {
        let folders = folders.map(split).unwrap_or_default();
        Self { folders, run_path, cache: cache::content() }
    }

    /// Returns the first file for `soname` that cannot be opened, which the loader skips, and the error.
    pub fn refused(&self, soname: &str) -> Option<(PathBuf, std::io::Error)> {
        let folders = self.folders.iter().chain(&self.run_path).map(|folder| folder.join(soname));
        let cached = cache::paths(&self.cache, soname).into_iter().map(PathBuf::from);
        let mut all = folders.chain(cached).chain(DEFAULT.map(|folder| Path::new(folder).join(soname)));
        all.find_map(|path| {
            let error = vgpu_paths::open_regular(&path).err()?;
            (error.kind() == std::io::ErrorKind::PermissionDenied).then_some((path, error))
        })
    }

    /// Returns all files that the loader could use for `soname`, in its order. Files are not read, so those
    /// of another architecture are included, and so are directories: the loader opens one and fails.
    pub fn files(&self, soname: &str) -> Vec<(PathBuf, Reason)> {
        let in_folders = |folders: &[PathBuf], reason| -> Vec<_> {
            folders.iter().map(|folder| (folder.join(soname), reason)).collect()
        };
        let mut found = in_folders(&self.folders, Reason::LibraryPath);
        found.extend(in_folders(&self.run_path, Reason::RunPath));
        found.extend(cache::paths(&self.cache, soname).into_iter().map(|path| (path.into(), Reason::Cache)));
        found.extend(in_folders(&DEFAULT.map(PathBuf::from), Reason::Default));
        let mut kept: Vec<(PathBuf, Reason)> = Vec::new();
        let mut seen: Vec<PathBuf> = Vec::new();
        for (path, reason) in found {
            // The same file by two ways is one.
            let Ok(real) = std::fs::canonicalize(&path) else { continue };
            if (real.is_file() || real.is_dir()) && !seen.contains(&real) {
                seen.push(real);
                kept.push((path, reason));
            }
        }
        kept
    }
}

/// Splits a value of LD_LIBRARY_PATH into directories; an empty entry stands for the current directory.
pub fn split(value: &OsStr) -> Vec<PathBuf> {
    if value.is_empty() {
        return Vec::new();
    }
    let folder = |bytes: &[u8]| match bytes {
        [] => PathBuf::from("."),
        bytes => Path::new(OsStr::from_bytes(bytes)).to_owned(),
    };
    value.as_bytes().split(|byte| b":;".contains(byte)).map(folder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn variables_come_before_run_paths_and_what_is_there_twice_is_one() {
        let scratch = Scratch::new();
        for folder in ["a", "b", "c"] {
            std::fs::create_dir(scratch.join(folder)).unwrap();
        }
        for folder in ["b", "c"] {
            std::fs::write(scratch.join(folder).join("libx.so.1"), "").unwrap();
        }
        std::os::unix::fs::symlink(scratch.join("c/libx.so.1"), scratch.join("a/libx.so.1")).unwrap();
        let search = Search {
            folders: vec![scratch.join("missing"), scratch.join("a")],
            run_path: vec![scratch.join("b"), scratch.join("c")],
            cache: Vec::new(),
        };
        let expected = [
            (scratch.join("a/libx.so.1"), Reason::LibraryPath),
            (scratch.join("b/libx.so.1"), Reason::RunPath),
        ];
        assert_eq!(search.files("libx.so.1"), expected);
        assert!(search.files("libno-such.so.9").is_empty());
        assert!(!Search::new(None, Vec::new()).files("libc.so.6").is_empty());
    }

    #[test]
    fn elements_of_the_variable() {
        assert_eq!(split(OsStr::new("/a:/b;/c")), ["/a", "/b", "/c"].map(PathBuf::from));
        assert_eq!(split(OsStr::new("/a:")), ["/a", "."].map(PathBuf::from));
        assert!(split(OsStr::new("")).is_empty());
    }
}
