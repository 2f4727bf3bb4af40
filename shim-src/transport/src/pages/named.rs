//! Files of large pages that have a name, so that they outlive the process that made them, and are found again.
//!
//! Who uses one has a lock on it. The name ends in the order in which its pages are used: `vgpu-run.PID.NUMBER.3-2-1-0`; a file whose
//! pages are not chosen yet ends in `new`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{LARGE, lock};

const PREFIX: &str = "vgpu-run.";
const NEW: &str = "new";

/// A file that a process which is gone has left, locked now.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) file: File,
    /// Its pages, in the order in which they are used.
    pub(super) order: Vec<usize>,
    pub(super) path: PathBuf,
}

/// A file whose pages are being chosen. It goes unless it is kept.
#[derive(Debug)]
pub(super) struct New {
    file: Option<File>,
    path: PathBuf,
}

/// Where a file system of pages of 2 MiB is mounted; systemd does so at `/dev/hugepages`.
pub(super) fn folder() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mount(&mounts).map(PathBuf::from)
}

fn mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (place, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
        let fits = kind == "hugetlbfs" && options.split(',').any(|option| option == "pagesize=2M");
        // A name with a blank is written with a backslash, and passed over.
        (fits && !place.contains('\\')).then_some(place)
    })
}

/// What processes that are gone have left in `folder`. What one had not finished is removed.
pub(super) fn left_behind(folder: &Path) -> impl Iterator<Item = Left> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name();
        let order = name.to_str()?.strip_prefix(PREFIX)?.rsplit('.').next()?.to_owned();
        let path = entry.path();
        let file = open(&path, false).ok()?;
        if !lock(&file, 0, 1) {
            return None;
        }
        let order: Option<Vec<usize>> = order.split('-').map(|page| page.parse().ok()).collect();
        let Some(order) = order else {
            // No host has heard of its pages.
            let _ = fs::remove_file(&path);
            return None;
        };
        Some(Left { file, order, path })
    })
}

fn open(path: &Path, new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(new).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

impl New {
    /// A file of so many large pages, which are not taken yet.
    pub(super) fn make(folder: &Path, pages: usize) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{PREFIX}{}.{number}.{NEW}", std::process::id()));
        let file = open(&path, true)?;
        let new = Self { file: Some(file), path };
        if !lock(new.file()?, 0, 1) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        new.file()?.set_len((pages * LARGE) as u64)?;
        Ok(new)
    }

    pub(super) fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Gives it the name by which it is found, with the order of the pages that are left in it. The file, and its name.
    pub(super) fn keep(mut self, order: &[usize]) -> io::Result<(File, PathBuf)> {
        let order = order.iter().map(usize::to_string).collect::<Vec<_>>().join("-");
        let path = self.path.with_extension(order);
        fs::rename(&self.path, &path)?;
        let file = self.file.take().ok_or(io::ErrorKind::NotFound)?;
        Ok((file, path))
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Else it goes when the next process looks for what was left.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_again_once_its_process_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (file, path) = New::make(dir.path(), 4).unwrap().keep(&[3, 2, 0]).unwrap();
        assert!(left_behind(dir.path()).next().is_none(), "it is in use");
        drop(file);
        let left: Vec<Left> = left_behind(dir.path()).collect();
        assert_eq!(left.len(), 1);
        assert_eq!((&left[0].order[..], &left[0].path), (&[3, 2, 0][..], &path));
        assert_eq!(left[0].file.metadata().unwrap().len(), 4 * LARGE as u64);
        assert!(left_behind(dir.path()).next().is_none(), "and has an owner again");
    }

    #[test]
    fn what_was_not_finished_goes() {
        let dir = tempfile::tempdir().unwrap();
        drop(New::make(dir.path(), 1).unwrap());
        fs::write(dir.path().join("vgpu-run.1.0.new"), "").unwrap();
        fs::write(dir.path().join("others"), "").unwrap();
        assert!(left_behind(dir.path()).next().is_none());
        let names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["others"]);
    }

    #[test]
    fn the_mount_is_one_of_pages_of_two_mebibytes() {
        let line = |place: &str, kind: &str, options: &str| format!("none {place} {kind} {options} 0 0\n");
        let mounts = line("/", "ext4", "rw") + &line("/huge1G", "hugetlbfs", "rw,pagesize=1024M");
        assert_eq!(mount(&mounts), None);
        let mounts = mounts + &line("/dev/hugepages", "hugetlbfs", "rw,relatime,pagesize=2M");
        assert_eq!(mount(&mounts), Some("/dev/hugepages"));
        assert_eq!(mount("x"), None);
    }
}
