//! Support for tests: a library with its own options in a temporary directory, and its record.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;
use tempfile::TempDir;

use crate::options::{FILE, HELD_CALL, HOLD, HOLD_CALL, RECORD};

/// Name of the library that cargo builds.
const BUILT: &str = "libvgpu_recording_cuda.so";
/// Name by which programs load it.
const NAME: &str = "libcuda.so.1";
/// Names by which programs load the same library as cuBLAS and cuBLASLt.
const CUBLAS: &str = "libcublas.so.13";
const CUBLASLT: &str = "libcublasLt.so.13";

/// A library in a temporary directory. Loaded by its path it has its own state, even if other copies are
/// loaded.
#[derive(Debug)]
pub struct Recording {
    folder: TempDir,
}

impl Recording {
    /// Copies the library that cargo has built beside the running program, or in its `deps`, and writes the
    /// options, as `recording.json` has them.
    ///
    /// # Errors
    /// The library is not there, or cannot be copied.
    pub fn new(options: &Value) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let home = program.parent().unwrap_or(Path::new("."));
        let built = [home.join(BUILT), home.join("deps").join(BUILT)].into_iter().find(|path| path.exists());
        let built = built.ok_or_else(|| {
            let text = format!("{BUILT} is not beside {}", program.display());
            io::Error::new(io::ErrorKind::NotFound, text)
        })?;
        let folder = TempDir::with_prefix("vgpu-recording-")?;
        fs::copy(built, folder.path().join(NAME))?;
        // The loader knows a file by its inode: all three names are one library with one state.
        for name in [CUBLAS, CUBLASLT] {
            fs::hard_link(folder.path().join(NAME), folder.path().join(name))?;
        }
        fs::write(folder.path().join(FILE), options.to_string())?;
        Ok(Self { folder })
    }

    /// Path of the library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Path of the same library as cuBLAS, with cuBLASLt beside it.
    #[must_use]
    pub fn cublas(&self) -> PathBuf {
        self.folder.path().join(CUBLAS)
    }

    /// The lines of the record, in their order.
    ///
    /// # Errors
    /// The record cannot be read, or a line is no JSON.
    pub fn lines(&self) -> io::Result<Vec<Value>> {
        let text = match fs::read_to_string(self.folder.path().join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        text.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
    }

    /// Holds all work: nothing completes until [`Self::release`].
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn hold(&self) -> io::Result<()> {
        fs::write(self.folder.path().join(HOLD), [])
    }

    /// Lets work complete again.
    ///
    /// # Errors
    /// It was not held.
    pub fn release(&self) -> io::Result<()> {
        fs::remove_file(self.folder.path().join(HOLD))
    }

    /// Holds calls of a function before they do anything, until [`Self::release_call`]. Others go on.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn hold_call(&self, call: &str) -> io::Result<()> {
        fs::write(self.folder.path().join(format!("{HOLD_CALL}{call}")), [])
    }

    /// Lets calls of a function go on.
    ///
    /// # Errors
    /// They were not held.
    pub fn release_call(&self, call: &str) -> io::Result<()> {
        fs::remove_file(self.folder.path().join(format!("{HOLD_CALL}{call}")))
    }

    /// Whether a call of a function has been held since the library was loaded.
    #[must_use]
    pub fn has_held(&self, call: &str) -> bool {
        self.folder.path().join(format!("{HELD_CALL}{call}")).exists()
    }

    /// The lines of calls that broke a rule.
    ///
    /// # Errors
    /// As [`Self::lines`].
    pub fn refused(&self) -> io::Result<Vec<Value>> {
        Ok(self.lines()?.into_iter().filter(|line| !line["refused"].is_null()).collect())
    }
}
