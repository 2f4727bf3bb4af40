//! What the launcher needs to know of the files by which processes share a device of version 1.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use vgpu_wire::pci::V2_BAR0_BYTES;

use crate::sysfs::PciFunction;

use super::lock_files::LockFiles;
use super::shared_file::mend;

/// The files of a function, if it is of version 1.
fn lock_files(function: &PciFunction) -> Option<LockFiles> {
    if function.bars[0].bytes >= V2_BAR0_BYTES {
        return None;
    }
    let simulated = std::fs::metadata(function.dir.join("resource0"))
        .is_ok_and(|metadata| metadata.file_type().is_socket());
    Some(LockFiles::of(&function.dir, simulated))
}

/// The files by which processes take turns at a function, whether they exist yet or not: the lock first.
/// Empty unless the function is of version 1.
pub fn turn_files(function: &PciFunction) -> Vec<PathBuf> {
    lock_files(function).map_or_else(Vec::new, |files| vec![files.lock, files.owners])
}

/// Lets every user lock the file by which processes take turns at a function, where a guest of another make
/// has left it to this user alone. Returns `true` if it had.
///
/// # Errors
/// Which file it is, and why its mode cannot be read or set: something that is not a file of its own may lie
/// there.
pub fn mend_turn_file(function: &PciFunction) -> Result<bool, (PathBuf, io::Error)> {
    let Some(LockFiles { lock, .. }) = lock_files(function) else { return Ok(false) };
    mend(&lock).map_err(|error| (lock, error))
}
