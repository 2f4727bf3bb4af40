//! Open-file-description locks of whole files. They belong to the open file, not to the process: a duplicate
//! of the descriptor in another process keeps the lock, and the kernel drops it with the last of them.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};

/// What a lock excludes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Excludes all other locks.
    Exclusive,
    /// Excludes exclusive locks. The file has to be open for reading only.
    Shared,
    /// Is no lock: drops the one that the open file has.
    None,
}

impl Kind {
    fn whole_file(self) -> flock {
        let kind = match self {
            Self::Exclusive => libc::F_WRLCK,
            Self::Shared => libc::F_RDLCK,
            Self::None => libc::F_UNLCK,
        };
        // A length of 0 is the whole file, however long it grows.
        flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
    }
}

/// Replaces the lock of an open file in one step. Returns false if a lock of another open file excludes it.
pub(crate) fn set(file: &File, kind: Kind) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&kind.whole_file())) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether another open file has a lock. Nothing is locked meanwhile, so a look disturbs no claim.
pub(crate) fn is_locked(file: &File) -> io::Result<bool> {
    let mut lock = Kind::Exclusive.whole_file();
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
        let (one, other) = (open(), open());
        assert!(set(&one, Kind::Exclusive).unwrap() && !set(&other, Kind::Shared).unwrap());
        assert!(is_locked(&other).unwrap() && !is_locked(&one).unwrap());
        assert!(set(&one, Kind::Shared).unwrap() && set(&File::open(&path).unwrap(), Kind::Shared).unwrap());
        assert!(!set(&other, Kind::Exclusive).unwrap());
        let duplicate = one.try_clone().unwrap();
        drop(one);
        assert!(is_locked(&other).unwrap());
        drop(duplicate);
        assert!(set(&other, Kind::Exclusive).unwrap());
        assert!(set(&other, Kind::None).unwrap() && !is_locked(&open()).unwrap());
    }
}
