//! Named files of large pages, which outlive the process that made them.
//!
//! The process that uses a file holds a lock on it. The name ends with the order in which the pages are
//! mapped: `vgpu-run.PID.NUMBER.3-2-1-0`. While the pages are being chosen, it ends with `new`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_paths::{Access, Dir};
use vgpu_transport::parts::{LARGE_PAGE, lock_range};

const PREFIX: &str = "vgpu-run.";
const UNFINISHED: &str = "new";

/// A file of a dead process, which this process has locked.
#[derive(Debug)]
pub(super) struct AbandonedFile {
    pub(super) file: File,
    /// Indices of its pages, in the order in which they are mapped.
    pub(super) order: Vec<usize>,
    pub(super) path: PathBuf,
}

/// A file whose pages are being chosen. Removed on drop unless it is finished.
#[derive(Debug)]
pub(super) struct NewPageFile {
    file: Option<File>,
    dir: Dir,
    path: PathBuf,
}

/// Returns the mount point of a file system of 2 MiB pages. systemd mounts one at `/dev/hugepages`.
pub(super) fn hugetlbfs_mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    find_hugetlbfs(&mounts).map(PathBuf::from)
}

fn find_hugetlbfs(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (place, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
        let fits = kind == "hugetlbfs" && options.split(',').any(|option| option == "pagesize=2M");
        // A mount point that contains a blank is escaped by a backslash. It is skipped.
        (fits && !place.contains('\\')).then_some(place)
    })
}

/// Locks and returns the files that dead processes of this user have left in `folder`. Unfinished files are
/// removed. A file of another user, or one that another user may open, is skipped, because its maker may
/// still map its pages.
pub(super) fn abandoned(folder: &Path) -> impl Iterator<Item = AbandonedFile> + use<> {
    let dir = Dir::open(folder).ok();
    let names = dir.as_ref().and_then(|dir| dir.entries().ok()).unwrap_or_default();
    let folder = folder.to_owned();
    names.into_iter().filter_map(move |name| {
        let dir = dir.as_ref()?;
        let order = name.to_str()?.strip_prefix(PREFIX)?.rsplit('.').next()?.to_owned();
        let file = dir.private(&name, Access::ReadWrite).ok()?;
        if !lock_range(&file, 0, 1) {
            return None;
        }
        let order: Option<Vec<usize>> = order.split('-').map(|page| page.parse().ok()).collect();
        let Some(order) = order else {
            // No host was told of its pages.
            let _ = dir.remove(&name);
            return None;
        };
        Some(AbandonedFile { file, order, path: folder.join(name) })
    })
}

impl NewPageFile {
    /// Creates a file of `pages` large pages, which are allocated when they are mapped.
    pub(super) fn create(folder: &Path, pages: usize) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}.{number}.{UNFINISHED}", std::process::id());
        let dir = Dir::open(folder)?;
        let file = dir.create(&name, Access::ReadWrite, 0o600)?;
        let new = Self { file: Some(file), path: folder.join(&name), dir };
        if !lock_range(new.file()?, 0, 1) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        new.file()?.set_len((pages * LARGE_PAGE) as u64)?;
        Ok(new)
    }

    pub(super) fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Renames the file so that its name states the order of the pages it still has. Returns the file and its
    /// path.
    pub(super) fn finish(mut self, order: &[usize]) -> io::Result<(File, PathBuf)> {
        let order = order.iter().map(usize::to_string).collect::<Vec<_>>().join("-");
        let path = self.path.with_extension(order);
        self.dir.rename(name(&self.path), name(&path))?;
        let file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        Ok((file, path))
    }
}

impl Drop for NewPageFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            // If this fails, the next process that searches the directory removes the file.
            let _ = self.dir.remove(name(&self.path));
        }
    }
}

/// Returns the name of the file in its directory.
fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_again_once_its_process_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = NewPageFile::create(dir.path(), 4).unwrap().finish(&[3, 2, 0]).unwrap();
        assert!(abandoned(dir.path()).next().is_none(), "it is in use");
        drop(file);
        let left: Vec<AbandonedFile> = abandoned(dir.path()).collect();
        assert_eq!(left.len(), 1);
        assert_eq!((&left[0].order[..], &left[0].path), (&[3, 2, 0][..], &path));
        assert_eq!(left[0].file.metadata().unwrap().len(), 4 * LARGE_PAGE as u64);
        assert!(abandoned(dir.path()).next().is_none(), "and has an owner again");
    }

    /// Checks that pages which another user may have mapped are not taken over, and that their file is
    /// neither kept open nor removed. Otherwise a user could become root, or write to another user's memory.
    #[test]
    fn files_that_another_user_made_or_may_open_are_left_alone() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};

        let dir = tempfile::tempdir().unwrap();
        let (file, path) = NewPageFile::create(dir.path(), 4).unwrap().finish(&[3, 2, 0]).unwrap();
        drop(file);
        let count = || abandoned(dir.path()).count();
        assert_eq!(count(), 1);
        // SAFETY: asks for a number.
        if unsafe { libc::geteuid() } == 0 {
            chown(&path, Some(65534), Some(65534)).unwrap();
            assert_eq!(count(), 0, "another user made it");
            chown(&path, Some(0), Some(0)).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(count(), 0, "another user may open it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let away = dir.path().join("secret");
        fs::hard_link(&path, &away).unwrap();
        assert_eq!(count(), 0, "it has another name");
        fs::remove_file(&path).unwrap();
        symlink("secret", &path).unwrap();
        let planted = dir.path().join("vgpu-run.1.0.new");
        symlink("secret", &planted).unwrap();
        assert_eq!(count(), 0, "links are not followed");
        assert!(away.exists() && fs::symlink_metadata(&planted).is_ok(), "and nothing is removed");
    }

    #[test]
    fn what_was_not_finished_goes() {
        let dir = tempfile::tempdir().unwrap();
        drop(NewPageFile::create(dir.path(), 1).unwrap());
        let left = Dir::open(dir.path()).unwrap();
        left.create("vgpu-run.1.0.new", Access::Write, 0o600).unwrap();
        fs::write(dir.path().join("others"), "").unwrap();
        assert!(abandoned(dir.path()).next().is_none());
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["others"]);
    }

    #[test]
    fn the_mount_is_one_of_pages_of_two_mebibytes() {
        let line = |place: &str, kind: &str, options: &str| format!("none {place} {kind} {options} 0 0\n");
        let mounts = line("/", "ext4", "rw") + &line("/huge1G", "hugetlbfs", "rw,pagesize=1024M");
        assert_eq!(find_hugetlbfs(&mounts), None);
        let mounts = mounts + &line("/dev/hugepages", "hugetlbfs", "rw,relatime,pagesize=2M");
        assert_eq!(find_hugetlbfs(&mounts), Some("/dev/hugepages"));
        assert_eq!(find_hugetlbfs("x"), None);
    }
}
