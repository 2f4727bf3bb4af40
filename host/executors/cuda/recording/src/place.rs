//! Support for tests: a library with its own options in a temporary directory, and its record.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;
use tempfile::TempDir;

use crate::options::{FILE, HELD_CALL, HOLD, HOLD_CALL, RECORD};

/// Name of the library file that cargo builds.
const BUILT: &str = "libvgpu_recording_cuda.so";
/// File name under which programs load the library.
const NAME: &str = "libcuda.so.1";
/// File names under which programs load the same library as cuBLAS and cuBLASLt.
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
        // The loader identifies a file by its inode, so all three names are one library with one state.
        for name in [CUBLAS, CUBLASLT] {
            fs::hard_link(folder.path().join(NAME), folder.path().join(name))?;
        }
        fs::write(folder.path().join(FILE), options.to_string())?;
        Ok(Self { folder })
    }

    /// Returns the path of the library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Returns the path of the same library as cuBLAS, with cuBLASLt beside it.
    #[must_use]
    pub fn cublas(&self) -> PathBuf {
        self.folder.path().join(CUBLAS)
    }

    /// Returns the lines of the record, in their order.
    ///
    /// # Errors
    /// The record cannot be read, or a line is no JSON.
    pub fn lines(&self) -> io::Result<Vec<Value>> {
        let text = match fs::read_to_string(self.folder.path().join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // A process that still runs may be writing the last line.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
    }

    /// Holds all work: none completes until [`Self::release`].
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn hold(&self) -> io::Result<()> {
        fs::write(self.folder.path().join(HOLD), [])
    }

    /// Lets held work complete again.
    ///
    /// # Errors
    /// The work was not held.
    pub fn release(&self) -> io::Result<()> {
        fs::remove_file(self.folder.path().join(HOLD))
    }

    /// Blocks calls of a function at their start, until [`Self::release_call`]. Calls of other functions
    /// continue.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn hold_call(&self, call: &str) -> io::Result<()> {
        fs::write(self.folder.path().join(format!("{HOLD_CALL}{call}")), [])
    }

    /// Lets blocked calls of a function continue.
    ///
    /// # Errors
    /// The calls were not held.
    pub fn release_call(&self, call: &str) -> io::Result<()> {
        fs::remove_file(self.folder.path().join(format!("{HOLD_CALL}{call}")))
    }

    /// Returns whether a call of a function has been held since the library was loaded, by
    /// [`Self::hold_call`] or by the options `blocking` and `queue`.
    #[must_use]
    pub fn has_held(&self, call: &str) -> bool {
        self.folder.path().join(format!("{HELD_CALL}{call}")).exists()
    }

    /// Returns the lines of calls that broke a rule.
    ///
    /// # Errors
    /// The errors are those of [`Self::lines`].
    pub fn refused(&self) -> io::Result<Vec<Value>> {
        Ok(self.lines()?.into_iter().filter(|line| !line["refused"].is_null()).collect())
    }
}
