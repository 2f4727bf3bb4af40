//! Tests only: a folder that is gone when the test ends.

use std::path::{Path, PathBuf};

/// Temporary directory of a test. Dropping it removes it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory in the system's temporary directory.
    pub fn new() -> Self {
        let template = std::env::temp_dir().join("vgpu-run-test.XXXXXX");
        Self(nix::unistd::mkdtemp(&template).expect("the temporary folder can be written to"))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing to be done about it, and the test has been decided.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
