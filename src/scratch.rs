//! Temporary directories for tests.

use std::path::{Path, PathBuf};

/// Temporary directory of a test. Dropping it removes it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory in the system's temporary directory.
    pub fn new() -> Self {
        let template = std::env::temp_dir().join("vgpu-run-test.XXXXXX");
        Self(nix::unistd::mkdtemp(&template).expect("the temporary folder can be written to"))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of `name` in the directory.
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
