//! Libraries in sealed memory files, opened through `/proc/PID/fd/N` of this process, whose id exec keeps.
//!
//! The descriptors survive exec, and the paths stay valid as long as the process lives. A parent that closes
//! its descriptors before it starts a child still passes valid paths to the child, because any process may
//! open memory files and the same user may open `/proc/PID/fd`. The descriptors have high numbers, to stay
//! clear of programs that use specific low ones.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use memfd::{FileSeal, Memfd};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use rustix::thread::sched_getaffinity;

use super::image::LauncherImage;
use super::mappable::mappable;
use crate::embedded::EmbeddedObject;

/// Lowest descriptor number that is used. The usual limit is 1024.
const FIRST_DESCRIPTOR: i32 = 900;
/// Maximum number of threads that write libraries. One of the eight libraries is as large as five others.
const WRITERS: usize = 3;
/// Seals of a finished library: its content and its seals cannot change any more.
const SEALS: [FileSeal; 4] =
    [FileSeal::SealShrink, FileSeal::SealGrow, FileSeal::SealWrite, FileSeal::SealSeal];
/// Number of descriptors that stay free below a low descriptor limit.
const HEADROOM: i32 = 24;

/// Reason why a library could not be stored in memory.
#[derive(Debug, thiserror::Error)]
pub enum MemfdError {
    /// `memfd_create` failed.
    #[error("failed to create a memory file")]
    Create(#[source] Errno),
    /// Writing the library into the memory file failed.
    #[error("failed to fill a memory file")]
    Fill(#[source] io::Error),
    /// The seals of a memory file could not be read.
    #[error("failed to ask a memory file for its seals")]
    Seals,
    /// `F_ADD_SEALS` failed.
    #[error("failed to seal a memory file")]
    Seal(#[source] memfd::Error),
    /// `F_DUPFD` to a high descriptor failed.
    #[error("failed to place a memory file at a high descriptor")]
    Place(#[source] Errno),
    /// `/proc` is missing, or it does not show this process.
    #[error("failed to reach a memory file at {}", .0.display())]
    Reach(PathBuf, #[source] io::Error),
    /// The system does not permit mapping memory files for execution.
    #[error("failed to map a memory file for execution")]
    Map(#[source] Errno),
}

impl MemfdError {
    /// Returns whether the limit on the size of files (`ulimit -f`) caused the error. The limit applies to
    /// memory files.
    pub fn too_large(&self) -> bool {
        matches!(self, Self::Fill(error) if error.kind() == io::ErrorKind::FileTooLarge)
    }
}

/// A library in a sealed memory file. Dropping it before exec removes the file.
#[derive(Debug)]
pub struct Sealed {
    /// Descriptor that stays open across exec.
    descriptor: OwnedFd,
    pid: u32,
}

impl Sealed {
    /// Returns the path by which any process of this user can open the library while this process lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", self.pid, self.descriptor.as_raw_fd()))
    }
}

/// Grows the kernel's descriptor table to the size that [`all`] needs. Call it while this process has a
/// single thread: with several threads the kernel waits for an RCU grace period, which takes milliseconds.
pub fn make_room() {
    // Only a matter of time: who needs the descriptors finds out whether there are any.
    if let Ok(raw) = fcntl(io::stdin(), FcntlArg::F_DUPFD_CLOEXEC(lowest_descriptor())) {
        // SAFETY: the call has just made this descriptor, and nobody else knows it.
        drop(unsafe { OwnedFd::from_raw_fd(raw) });
    }
}

/// Stores all of `objects` in memory files of this process, which `/proc` shows as `pid`.
pub fn all(objects: &[&'static EmbeddedObject], pid: u32) -> Result<Vec<Sealed>, MemfdError> {
    let lowest = lowest_descriptor();
    let mut sealed = Vec::with_capacity(objects.len());
    for file in sealed_files(objects) {
        let file = file?;
        if sealed.is_empty() {
            // All memory files are alike, so one test is enough.
            mappable(&file).map_err(MemfdError::Map)?;
        }
        // F_DUPFD makes a descriptor that exec keeps; the first one, which it does not keep, is closed here.
        let raw = fcntl(&file, FcntlArg::F_DUPFD(lowest)).map_err(MemfdError::Place)?;
        // SAFETY: the call has just made this descriptor, and nobody else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        let one = Sealed { descriptor, pid };
        if sealed.is_empty() {
            fs::metadata(one.path()).map_err(|error| MemfdError::Reach(one.path(), error))?;
        }
        sealed.push(one);
    }
    Ok(sealed)
}

/// Creates a memory file for each of `objects`, in their order. The kernel's work for these pages takes most
/// of a start, so several threads share it.
fn sealed_files(objects: &[&'static EmbeddedObject]) -> Vec<Result<File, MemfdError>> {
    let image = LauncherImage::open();
    let next = AtomicUsize::new(0);
    let write = || {
        let mut written = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(object) = objects.get(index)
        {
            written.push((index, sealed_file(object, image.as_ref())));
        }
        written
    };
    // One processor is left to the test of the device, which runs at the same time. The standard library's
    // count of processors would also read the limits of all control groups.
    let processors = sched_getaffinity(None).map_or(1, |processors| processors.count() as usize);
    let writers = processors.saturating_sub(1).clamp(1, WRITERS);
    let mut written = thread::scope(|scope| {
        // A thread that cannot be had is done without.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, write).ok();
        let others: Vec<_> = (1..writers).filter_map(spawn).collect();
        let mut written = write();
        for other in others {
            written.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        written
    });
    written.sort_by_key(|(index, _)| *index);
    written.into_iter().map(|(_, file)| file).collect()
}

/// Returns the lowest descriptor number to use, which is lower if the descriptor limit is low.
fn lowest_descriptor() -> i32 {
    let limit =
        getrlimit(Resource::RLIMIT_NOFILE).map_or(i32::MAX, |(soft, _)| soft.try_into().unwrap_or(i32::MAX));
    below(limit)
}

fn below(limit: i32) -> i32 {
    FIRST_DESCRIPTOR.min(limit.saturating_sub(HEADROOM)).max(3)
}

/// Creates a sealed memory file with the content of `object`.
fn sealed_file(object: &EmbeddedObject, image: Option<&LauncherImage>) -> Result<File, MemfdError> {
    let created = create(object.soname).map_err(MemfdError::Create)?;
    let memory = Memfd::try_from_fd(created).map_err(|_| MemfdError::Seals)?;
    let mut file = memory.as_file();
    let sent = image.map_or(0, |image| image.send(object.bytes, file));
    file.write_all(&object.bytes[sent..]).map_err(MemfdError::Fill)?;
    memory.add_seals(&SEALS).map_err(MemfdError::Seal)?;
    Ok(memory.into_file())
}

/// Creates a memory file that can be sealed and that cannot be executed itself, though it can be mapped for
/// execution. The memfd crate is not used because it does not know `MFD_NOEXEC_SEAL` (0.6.6). The flag needs
/// Linux 6.3 and is required if `vm.memfd_noexec` is 2; older kernels return EINVAL for it.
fn create(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC;
    let noexec = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    memfd_create(name, flags | noexec).or_else(|errno| match errno {
        Errno::EINVAL => memfd_create(name, flags),
        other => Err(other),
    })
}

/// Returns whether `path` has the form of a path from [`all`], of this launcher or another, for a library
/// named in `sonames`.
pub fn is_ours(path: &std::path::Path, sonames: impl IntoIterator<Item = &'static str>) -> bool {
    let mut parts = path.components().map(|part| part.as_os_str().to_str().unwrap_or_default());
    let shape = [parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next()];
    let [Some("/"), Some("proc"), Some(pid), Some("fd"), Some(number), None] = shape else { return false };
    if pid.parse::<u32>().is_err() || number.parse::<u32>().is_err() {
        return false;
    }
    let Ok(target) = fs::read_link(path) else { return false };
    let target = target.to_str().unwrap_or_default();
    let name = target.strip_prefix("/memfd:").and_then(|rest| rest.strip_suffix(" (deleted)"));
    name.is_some_and(|name| sonames.into_iter().any(|soname| soname == name))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    static OBJECTS: [EmbeddedObject; 2] = [
        EmbeddedObject { soname: "libone.so.1", bytes: b"one" },
        EmbeddedObject { soname: "libtwo.so.2", bytes: b"two" },
    ];

    #[test]
    fn sealed_high_open_across_exec_and_named() {
        let objects: Vec<&'static EmbeddedObject> = OBJECTS.iter().collect();
        let sealed = all(&objects, std::process::id()).unwrap();
        for (object, sealed) in OBJECTS.iter().zip(&sealed) {
            let number = sealed.descriptor.as_raw_fd();
            assert!(number >= lowest_descriptor());
            assert_eq!(sealed.path(), PathBuf::from(format!("/proc/{}/fd/{number}", std::process::id())));
            let flags = fcntl(&sealed.descriptor, FcntlArg::F_GETFD).unwrap();
            assert_eq!(flags & libc::FD_CLOEXEC, 0, "exec keeps it");
            let seals = fcntl(&sealed.descriptor, FcntlArg::F_GET_SEALS).unwrap();
            let wanted = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
            assert_eq!(seals & wanted, wanted);
            let mut content = Vec::new();
            File::open(sealed.path()).unwrap().read_to_end(&mut content).unwrap();
            assert_eq!(content, object.bytes);
            assert!(fs::OpenOptions::new().write(true).open(sealed.path()).unwrap().write_all(b"x").is_err());
            assert!(is_ours(&sealed.path(), [object.soname]));
            assert!(!is_ours(&sealed.path(), ["libthree.so.3"]));
        }
        let path = sealed[0].path();
        drop(sealed);
        assert!(fs::metadata(path).is_err(), "given up before exec, nothing stays");
    }

    #[test]
    fn names_that_are_not_ours() {
        for path in [
            "/proc/self/fd/0",
            "/proc/1/fd",
            "/proc/1/fd/2/3",
            "/lib/x.so",
            "proc/1/fd/2",
            "/proc/1/exe/2",
            "",
        ] {
            assert!(!is_ours(path.as_ref(), ["libone.so.1"]), "{path}");
        }
    }

    #[test]
    fn a_low_limit_lowers_the_place() {
        assert_eq!(below(1024), 900);
        assert_eq!(below(i32::MAX), 900);
        assert_eq!(below(256), 232);
        assert_eq!(below(64), 40);
        assert_eq!(below(20), 3);
    }
}
