//! Locks by which device processes of one host choose different ranges of addresses. Each range has a file in
//! a shared directory, and the process that has locked the file owns the range. The kernel drops the lock
//! when the process ends, however it ends.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use vgpu_paths::{Access, Dir};

use super::addresses::{ADDRESS_RANGES, Addresses};

/// Name of the directory that device processes share.
const PREFIX: &str = "vgpu-device";
/// Name of the directory of locks in it.
const NAME: &str = "address-ranges";

/// Reason for which a device has no range of addresses.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Other devices of the host own all ranges.
    #[error(
        "all ranges of device addresses that would do are taken by devices of this host (locks in {}); \
         devices of different machines may share one: --address-range chooses it",
        .0.display()
    )]
    Taken(PathBuf),
    /// No range has this number.
    #[error("there is no range of device addresses {0}: they are 0 to {last}", last = ADDRESS_RANGES - 1)]
    Absent(u32),
    /// The directory or a file in it cannot be used.
    #[error("failed to lock a range of device addresses in {} (--address-range does without)", path.display())]
    Directory {
        /// Path of the directory.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
}

/// A directory of locks, one for each range.
#[derive(Debug)]
pub struct RangeLocks {
    dir: Dir,
    path: PathBuf,
}

impl RangeLocks {
    /// Opens a directory of locks, and makes it if it does not exist. Only root and this user may be able to
    /// change its content or to replace it.
    ///
    /// # Errors
    /// The directory cannot be made or opened, or others could change it.
    pub fn open(path: &Path) -> Result<Self, ClaimError> {
        let failed = |source| ClaimError::Directory { path: path.to_owned(), source };
        let dir = vgpu_paths::make_private(path).map_err(failed)?;
        Ok(Self { dir, path: path.to_owned() })
    }

    /// Opens the directory that the device processes of this user share: in /run if this process may make it
    /// or has been given it, and otherwise in `XDG_RUNTIME_DIR`, /run/user or the directory for temporary
    /// files.
    ///
    /// # Errors
    /// None of them can be used. The error is that of the last one.
    pub fn of_host() -> Result<Self, ClaimError> {
        let mut places = vgpu_paths::private_places(PREFIX);
        let last = places.pop().unwrap_or_default();
        for place in places {
            match Self::open(&place.join(NAME)) {
                Ok(locks) => return Ok(locks),
                Err(error) => tracing::debug!(%error, place = %place.display(), "no place for locks"),
            }
        }
        Self::open(&last.join(NAME))
    }

    /// Opens the lock file of a range.
    fn file(&self, index: u32) -> io::Result<File> {
        let name = format!("{index:02}");
        match self.dir.create(&name, Access::ReadWrite, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.dir.private(&name, Access::ReadWrite)
            }
            created => created,
        }
    }

    fn failed(&self, source: io::Error) -> ClaimError {
        ClaimError::Directory { path: self.path.clone(), source }
    }

    /// Locks the first range that no other device owns.
    ///
    /// # Errors
    /// All ranges are locked, or a file cannot be locked.
    pub fn draw(&self) -> Result<Addresses, ClaimError> {
        self.draw_of(0..ADDRESS_RANGES)
    }

    /// Locks the first of these ranges that no other device owns.
    ///
    /// # Errors
    /// All of them are locked, or a file cannot be locked.
    pub fn draw_of(&self, wanted: impl IntoIterator<Item = u32>) -> Result<Addresses, ClaimError> {
        for index in wanted {
            let file = self.file(index).map_err(|source| self.failed(source))?;
            match file.try_lock() {
                Ok(()) => return Ok(Addresses::from_index(index, Some(file))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(source)) => return Err(self.failed(source)),
            }
        }
        Err(ClaimError::Taken(self.path.clone()))
    }

    /// Locks the range that an administrator has chosen, so that no device draws it. Devices of other
    /// machines may choose it too. A device that has drawn it keeps it, which is logged.
    fn share(&self, index: u32) -> io::Result<Option<File>> {
        let file = self.file(index)?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(source),
        }
    }
}

impl Addresses {
    /// Returns the range that an administrator has chosen by number. If there is a directory of locks, the
    /// range is locked there as shared: others may choose it, and nobody draws it. If a device has drawn it
    /// already, that is logged, because devices of one machine must not share a range.
    ///
    /// # Errors
    /// No range has the number.
    pub fn chosen(index: u32, locks: Option<&RangeLocks>) -> Result<Self, ClaimError> {
        if index >= ADDRESS_RANGES {
            return Err(ClaimError::Absent(index));
        }
        let shared = locks.map(|locks| locks.share(index));
        match &shared {
            Some(Ok(None)) => tracing::warn!(
                "address range {index} is also that of a device of this host that drew it: a machine must not have both"
            ),
            Some(Err(error)) => tracing::debug!(%error, "address range {index} is not locked"),
            Some(Ok(Some(_))) | None => {}
        }
        Ok(Self::from_index(index, shared.and_then(Result::ok).flatten()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn locks() -> (tempfile::TempDir, RangeLocks) {
        let folder = tempfile::tempdir().unwrap();
        let locks = RangeLocks::open(&folder.path().join(NAME)).unwrap();
        (folder, locks)
    }

    #[test]
    fn each_device_draws_another_range_until_there_is_none() {
        let (folder, locks) = locks();
        // The locks as another process sees them.
        let other = RangeLocks::open(&folder.path().join(NAME)).unwrap();
        let mut drawn: Vec<Addresses> = (0..ADDRESS_RANGES)
            .map(|turn| if turn % 2 == 0 { &locks } else { &other }.draw().unwrap())
            .collect();
        let different: BTreeSet<u32> = drawn.iter().map(Addresses::index).collect();
        assert_eq!(different.len(), ADDRESS_RANGES as usize);
        let error = other.draw().unwrap_err();
        assert!(matches!(error, ClaimError::Taken(_)), "{error}");
        assert!(error.to_string().contains("all ranges") && error.to_string().contains("--address-range"));
        // A copy keeps the range locked; the last copy releases it.
        let (gone, copy) = (drawn.swap_remove(7), drawn[11].clone());
        let kept = drawn.swap_remove(11).index();
        assert_eq!(copy.index(), kept);
        let index = gone.index();
        drop(gone);
        assert_eq!(other.draw().unwrap().index(), index);
        drop(copy);
        assert_eq!(locks.draw().unwrap().index(), kept.min(index));
    }

    #[test]
    fn threads_that_draw_at_once_get_different_ranges() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        let drawn: Vec<Addresses> = std::thread::scope(|scope| {
            let draw = || RangeLocks::open(&path).unwrap().draw().unwrap();
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(drawn.iter().map(Addresses::index).collect::<BTreeSet<_>>().len(), 16);
    }

    #[test]
    fn a_range_that_was_chosen_is_not_drawn() {
        let (_folder, locks) = locks();
        let chosen = Addresses::chosen(0, Some(&locks)).unwrap();
        let again = Addresses::chosen(0, Some(&locks)).unwrap();
        assert_eq!((chosen.index(), &chosen), (0, &again));
        let drawn = locks.draw().unwrap();
        assert_eq!(drawn.index(), 1);
        // A range that was drawn can still be chosen, because the administrator overrides the lock.
        assert_eq!(Addresses::chosen(1, Some(&locks)).unwrap(), drawn);
        assert_eq!(Addresses::chosen(1, None).unwrap(), drawn);
        assert!(matches!(Addresses::chosen(ADDRESS_RANGES, None), Err(ClaimError::Absent(_))));
        drop((chosen, again));
        assert_eq!(locks.draw().unwrap().index(), 0);
    }

    #[test]
    fn directories_that_others_could_change_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("open");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = RangeLocks::open(&path).unwrap_err();
        assert!(matches!(&error, ClaimError::Directory { .. }), "{error}");
        // A file that others could lock is not accepted.
        let (_folder, locks) = locks();
        let drawn = locks.draw().unwrap();
        drop(drawn);
        std::fs::set_permissions(locks.path.join("00"), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(locks.draw(), Err(ClaimError::Directory { .. })));
    }
}
