//! Prepares functions as root: turns memory decoding on, and with `--user` changes the owner of the
//! function's files. Both last until the function is removed or the guest restarts. Also repairs the
//! permissions of the lock file of version 1.

use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;

use nix::unistd::Uid;
use vgpu_transport::PciFunction;
use vgpu_transport_v1::share_lock_file;

use super::error::DeviceError;
use super::files::FILES;
use super::survey::attribute;

/// Turns on memory decoding of all functions and gives their files to `user`, if one is given. Must run as
/// root.
pub fn prepare(functions: &[PciFunction], user: Option<Uid>) -> Result<(), DeviceError> {
    for function in functions {
        settled(&function.dir).map_err(|error| DeviceError::Enable(function.dir.join("enable"), error))?;
        enable(&function.dir)?;
        if let Some(user) = user {
            give_files(&function.dir, user)?;
        }
        mend_turns(function);
    }
    Ok(())
}

/// Rejects a function's directory that users other than root could have created, because VGPU_SYSFS may name
/// any directory. Directories below `/sys` are always accepted.
pub fn settled(dir: &Path) -> io::Result<()> {
    if dir.starts_with("/sys") { Ok(()) } else { vgpu_paths::reject_replaceable(dir) }
}

/// Lets other users take turns at a version 1 device if another program created its lock file for root alone.
/// Must run as root. Our own programs lock that file without being able to open it for writing.
pub fn mend_turns(function: &PciFunction) {
    match share_lock_file(function) {
        Ok(true) => {
            tracing::info!(function = %function.address, "other users may take turns at the device again");
        }
        Ok(false) => {}
        Err((path, error)) => tracing::warn!("failed to open {} to all users: {error}", path.display()),
    }
}

/// Writes 1 to `enable` if it reads 0. The kernel counts each write, so it is not repeated.
fn enable(dir: &Path) -> Result<(), DeviceError> {
    let path = dir.join("enable");
    match attribute(dir, "enable") {
        Ok(text) if text.trim() == "0" => {
            std::fs::write(&path, "1\n").map_err(|error| DeviceError::Enable(path, error))
        }
        // Decoding is on, or its state is unknown; opening the function will show it.
        _ => Ok(()),
    }
}

/// Makes `user` the owner of a function's files. The group stays unchanged, because a udev rule may have set
/// it.
fn give_files(dir: &Path, user: Uid) -> Result<(), DeviceError> {
    for name in FILES {
        let path = dir.join(name);
        // The file itself, should somebody have put a link in its place: sysfs has none there.
        match lchown(&path, Some(user.as_raw()), None) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(DeviceError::Give { path, user, source });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::scratch::Scratch;

    /// A lock file that another program created for root alone is opened to all users.
    #[test]
    fn the_file_of_turns_is_opened_to_all() {
        let scratch = Scratch::new();
        let dir = scratch.join("bus/pci/devices/0000:00:05.0");
        std::fs::create_dir_all(&dir).unwrap();
        // A simulated bus has the file in its own folder.
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("resource0")).unwrap();
        let turns = scratch.join("vgpu_transport.lock");
        std::fs::write(&turns, "").unwrap();
        let mode = || std::fs::metadata(&turns).unwrap().mode() & 0o777;
        let set = |mode| {
            std::fs::set_permissions(&turns, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        let mut bars = [vgpu_transport::Bar::default(); 6];
        bars[0].bytes = 0x1000;
        let function = PciFunction { address: "0000:00:05.0".parse().unwrap(), dir, subsystem: 0, bars };
        set(0o644);
        prepare(std::slice::from_ref(&function), None).unwrap();
        assert_eq!(mode(), 0o666);
        set(0o660);
        prepare(&[function], None).unwrap();
        assert_eq!(mode(), 0o660, "what an administrator chose stays");
    }

    #[test]
    fn memory_decoding_is_turned_on_once() {
        let scratch = Scratch::new();
        let path = scratch.join("enable");
        enable(scratch.path()).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "0\n").unwrap();
        enable(scratch.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        std::fs::write(&path, "2\n").unwrap();
        enable(scratch.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "2\n");
    }

    /// Guards against privilege escalation: nothing is written or given away in a directory that other users
    /// can write.
    #[test]
    fn a_function_that_others_can_replace_is_left_alone() {
        let scratch = Scratch::new();
        std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let dir = scratch.join("0000:00:05.0");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("enable"), "0\n").unwrap();
        let address = "0000:00:05.0".parse().unwrap();
        let function = PciFunction {
            address,
            dir: dir.clone(),
            subsystem: 0,
            bars: [vgpu_transport::Bar::default(); 6],
        };
        let error = prepare(&[function], None).unwrap_err();
        assert!(crate::error::chain(&error).contains("other users can replace what is in"), "{error:?}");
        assert_eq!(std::fs::read_to_string(dir.join("enable")).unwrap(), "0\n");
    }

    #[test]
    fn files_are_given_and_what_is_not_there_is_passed_over() {
        let scratch = Scratch::new();
        std::fs::write(scratch.join("resource0"), "").unwrap();
        std::fs::write(scratch.join("resource0_ro"), "").unwrap();
        std::fs::write(scratch.join("resource3"), "").unwrap();
        let before = std::fs::metadata(scratch.join("resource3")).unwrap();
        let user = if Uid::effective().is_root() { Uid::from_raw(12345) } else { Uid::effective() };
        give_files(scratch.path(), user).unwrap();
        for name in ["resource0", "resource0_ro"] {
            let given = std::fs::metadata(scratch.join(name)).unwrap();
            assert_eq!((given.uid(), given.gid()), (user.as_raw(), before.gid()));
        }
        assert_eq!(std::fs::metadata(scratch.join("resource3")).unwrap().uid(), before.uid());
        let (target, link) = (scratch.join("resource3"), scratch.join("resource1"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        give_files(scratch.path(), user).unwrap();
        assert_eq!(std::fs::metadata(&target).unwrap().uid(), before.uid(), "what a link leads to stays");
    }
}
