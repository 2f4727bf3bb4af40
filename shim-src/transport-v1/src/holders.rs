//! Finds which process has a session on a function, of either version.
//!
//! On version 2 a process locks a byte of the function's window file ([`vgpu_transport::holders`]). A function of
//! version 1 has no such file: there a process locks the byte of its token in the file of owners
//! ([`crate::owners_file`]), which is not opened here, because closing it would drop this process's own locks.

use std::io;
use std::path::Path;

use vgpu_transport::parts::holders_of;
use vgpu_transport::{Holder, holders};

use crate::lock_files::{LockFiles, is_simulated};

/// Returns the processes that have a session on the function with this directory in sysfs, in the order of their
/// channels, or of their tokens on version 1. Processes of old guests are not among them.
///
/// # Errors
/// Fails if the file whose bytes the processes lock, or `/proc/locks`, cannot be read.
pub fn holders_of_any(function: &Path) -> io::Result<Vec<Holder>> {
    if function.join("resource2").exists() {
        return holders(function);
    }
    match holders_of(&LockFiles::new(function, is_simulated(function)).owners) {
        // Nobody has opened the device yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        held => held,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use vgpu_transport::parts::LockFile;

    use super::*;

    #[test]
    fn who_has_a_token_has_a_session() {
        let bus = tempfile::tempdir().unwrap();
        let function = bus.path().join("bus/pci/devices/0000:00:05.0");
        std::fs::create_dir_all(&function).unwrap();
        let _registers = UnixListener::bind(function.join("resource0")).unwrap();
        assert_eq!(holders_of_any(&function).unwrap(), [], "no process has opened it yet");
        let files = LockFiles::new(&function, true);
        assert!(files.owners.starts_with(bus.path()), "{}", files.owners.display());
        std::fs::write(&files.owners, [0; 146]).unwrap();
        let owners = LockFile::open(&files.owners).unwrap();
        assert!(owners.try_lock(7).unwrap());
        let process = std::process::id();
        assert_eq!(holders_of_any(&function).unwrap(), [Holder { channel: 7, process }]);
        owners.unlock(7);
        assert_eq!(holders_of_any(&function).unwrap(), []);
    }

    #[test]
    fn who_has_a_channel_has_a_session() {
        let function = tempfile::tempdir().unwrap();
        let window = function.path().join("resource2");
        std::fs::write(&window, [0; 64]).unwrap();
        let locks = LockFile::open(&window).unwrap();
        assert!(locks.try_lock(3).unwrap());
        let held = holders_of_any(function.path()).unwrap();
        assert_eq!(held, [Holder { channel: 3, process: std::process::id() }]);
    }
}
