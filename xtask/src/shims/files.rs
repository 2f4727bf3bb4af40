//! Writes files that two builds may write at once.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Waits for the exclusive lock on `path`, which is held until the returned file is closed.
pub fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.lock()?;
    Ok(file)
}

/// Writes a file under a temporary name and renames it, so that processes that have the old one open or
/// mapped keep it.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let mut file = File::create(&new)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // Only the first failure is reported.
        let _ = fs::remove_file(&new);
    }
    written
}

/// Returns the SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
