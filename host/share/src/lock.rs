//! Open-file-description locks of parts of a file. They belong to the open file, not to the process: a
//! duplicate of the descriptor in another process keeps the lock, and the kernel drops it with the last of
//! them.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};

/// What a lock excludes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Excludes all other locks. The descriptor must allow writing.
    Exclusive,
    /// Excludes exclusive locks. The descriptor must allow reading.
    Shared,
    /// Is no lock: drops the one that the open file has.
    None,
}

/// The part of a file that is locked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockRange {
    /// The whole file.
    All,
    /// The first byte, which the device of a slot locks.
    Device,
    /// Everything behind it, which the workers of a slot lock.
    Workers,
}

impl LockRange {
    const fn lock(self, kind: Kind) -> flock {
        let kind = match kind {
            Kind::Exclusive => libc::F_WRLCK,
            Kind::Shared => libc::F_RDLCK,
            Kind::None => libc::F_UNLCK,
        };
        // A length of 0 is everything from the start on, however long the file grows.
        let (start, bytes) = match self {
            Self::All => (0, 0),
            Self::Device => (0, 1),
            Self::Workers => (1, 0),
        };
        flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: bytes, l_pid: 0 }
    }
}

/// Replaces the lock that an open file has on a part in one step. Returns false if a lock of another open
/// file excludes it.
pub(crate) fn set(file: &File, part: LockRange, kind: Kind) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&part.lock(kind))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether another open file has a lock on a part. Nothing is locked meanwhile, so a look disturbs no
/// claim.
pub(crate) fn is_locked(file: &File, part: LockRange) -> io::Result<bool> {
    let mut lock = part.lock(Kind::Exclusive);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(lock.l_type != libc::F_UNLCK as i16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_belongs_to_an_open_file_and_its_duplicates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let set = |file: &File, kind| set(file, LockRange::All, kind).unwrap();
        let is_locked = |file: &File| is_locked(file, LockRange::All).unwrap();
        let (one, other) = (open(), open());
        assert!(set(&one, Kind::Exclusive) && !set(&other, Kind::Shared));
        assert!(is_locked(&other) && !is_locked(&one));
        assert!(set(&one, Kind::Shared) && set(&File::open(&path).unwrap(), Kind::Shared));
        assert!(!set(&other, Kind::Exclusive));
        let duplicate = one.try_clone().unwrap();
        drop(one);
        assert!(is_locked(&other));
        drop(duplicate);
        assert!(set(&other, Kind::Exclusive));
        assert!(set(&other, Kind::None) && !is_locked(&open()));
    }

    #[test]
    fn the_parts_of_a_file_are_locked_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let device = File::create_new(&path).unwrap();
        let (worker, other) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        assert!(set(&device, LockRange::All, Kind::Exclusive).unwrap());
        assert!(!set(&worker, LockRange::Workers, Kind::Shared).unwrap());
        assert!(set(&device, LockRange::Workers, Kind::None).unwrap());
        assert!(
            is_locked(&other, LockRange::Device).unwrap() && !is_locked(&other, LockRange::Workers).unwrap()
        );
        assert!(set(&worker, LockRange::Workers, Kind::Shared).unwrap());
        assert!(!set(&worker, LockRange::Device, Kind::Shared).unwrap(), "it is the device's");
        drop(device);
        assert!(
            !is_locked(&other, LockRange::Device).unwrap() && is_locked(&other, LockRange::Workers).unwrap()
        );
    }
}
