//! SHA-256 of files and streams, in hexadecimal.

use std::fs::File;
use std::io;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of a file, in hexadecimal.
pub fn digest(path: &Path) -> io::Result<String> {
    let mut hash = Hashing { hash: Sha256::new(), inner: io::sink() };
    io::copy(&mut File::open(path)?, &mut hash)?;
    Ok(hash.finish())
}

/// A writer that hashes all bytes before it passes them on.
#[derive(Debug)]
pub struct Hashing<W> {
    hash: Sha256,
    inner: W,
}

impl<W: io::Write> Hashing<W> {
    /// Creates a writer that hashes everything written to `inner`.
    pub fn new(inner: W) -> Self {
        Self { hash: Sha256::new(), inner }
    }

    /// Returns the SHA-256 of everything written, in hexadecimal.
    pub fn finish(self) -> String {
        hex::encode(self.hash.finalize())
    }
}

impl<W: io::Write> io::Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns the SHA-256 of bytes, in hexadecimal.
#[cfg(test)]
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
