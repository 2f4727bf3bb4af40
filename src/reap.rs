//! Implements `vgpu-run reap`: frees what killed programs of this guest still hold on the device.
//!
//! Nobody tells the device of a program's death. The kernel drops the lock by which the program owned its
//! channel, and whoever finds the lock free may end the session. It also closes the lock file, of which
//! inotify tells.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use vgpu_transport::{Device, PciFunction, Reaped, sysfs_root};
use vgpu_wire::pci;

use crate::device::judge::refused;
use crate::device::{self, DeviceError};
use crate::error::Failure;

/// Time for which sessions that are ending are waited for. A kernel of the soft executor stops in moments,
/// and a worker process that does not end is killed after 5 s.
const LIMIT: Duration = Duration::from_secs(6);
/// The same between two looks of a command that lingers, which must not miss the next death meanwhile.
const LIMIT_BETWEEN: Duration = Duration::from_millis(250);
/// Time from the end of a process to the second look for it.
const PAUSE: Duration = Duration::from_millis(20);
/// Time after which a command that lingers ends, whatever programs do.
const LINGER_MOST: Duration = Duration::from_secs(30);

/// Ends the sessions of dead processes on all functions, and says how many there were. With `linger` it looks
/// again whenever a program ends within this time.
pub fn reap(linger: Option<Duration>) -> Result<(), Failure> {
    let functions = device::find()?;
    let Some(linger) = linger else { return reap_all(&functions, LIMIT) };
    let end = Instant::now() + LINGER_MOST;
    // Before the first look, so that nobody dies unseen in between.
    let watch = Watch::of(&functions);
    let mut pause = PAUSE;
    loop {
        reap_all(&functions, LIMIT_BETWEEN)?;
        // A process closes its files before it counts as dead, and nothing tells of the rest of its end. So
        // this looks again, after longer and longer times, until nothing has happened for the last of them.
        if watch.sees_an_end(pause) {
            pause = PAUSE;
        } else if pause >= linger {
            return reap_all(&functions, LIMIT);
        } else {
            pause = (5 * pause).min(linger);
        }
        if Instant::now() > end {
            return reap_all(&functions, LIMIT);
        }
    }
}

/// Ends the sessions of dead processes on these functions, and says how many there were. A function that
/// fails keeps nobody from looking at the others.
fn reap_all(functions: &[PciFunction], limit: Duration) -> Result<(), Failure> {
    let (mut all, mut failed) = (Reaped::default(), None);
    // Functions of version 1 have no locks that tell who is dead.
    for function in functions.iter().filter(|function| function.bars[0].bytes >= pci::V2_BAR0_BYTES) {
        match reap_one(function, limit) {
            Ok(reaped) => {
                all.found += reaped.found;
                all.ended += reaped.ended;
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let Reaped { found, ended } = all;
    let sessions = |count| if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") };
    let text = match (found, found - ended) {
        (0, _) => return failed.map_or(Ok(()), |error| Err(error.into())),
        (_, 0) => format!("{} of programs that are gone ended\n", sessions(found)),
        (_, left) => format!("{} of programs that are gone: {left} not ended yet\n", sessions(found)),
    };
    // Standard output may be closed. What matters is done.
    let _ = std::io::stdout().write_all(text.as_bytes());
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Ends the sessions of dead processes on one function, and waits for their end no longer than `limit`.
pub fn reap_one(function: &PciFunction, limit: Duration) -> Result<Reaped, DeviceError> {
    let wrong = |error| refused(function, &sysfs_root(), error);
    let device = Device::identify(function, Some(vgpu_transport_v1::open)).map_err(wrong)?;
    device.reap(limit).map_err(wrong)
}

/// Watches for the end of processes that had the lock file of a function open. `None` if the system has no
/// room for another watch; then nothing is seen.
struct Watch(Option<OwnedFd>);

impl Watch {
    fn of(functions: &[PciFunction]) -> Self {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).and_then(|watch| {
            for function in functions {
                inotify::add_watch(&watch, function.dir.join("resource2"), WatchFlags::CLOSE_WRITE)?;
            }
            Ok(watch)
        });
        Self(watch.inspect_err(|error| tracing::warn!(%error, "the lock files are not watched")).ok())
    }

    /// Waits for the end of a process, but no longer than `limit`. Returns whether there was one.
    fn sees_an_end(&self, limit: Duration) -> bool {
        let Some(watch) = &self.0 else { return false };
        let end = Instant::now() + limit;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            match poll(&mut [PollFd::new(watch, PollFlags::IN)], left.as_ref()) {
                Err(Errno::INTR) => {}
                Ok(1..) => break,
                _ => return false,
            }
        }
        // All that has happened so far is one reason to look.
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(watch, &mut space);
        while events.next().is_ok() {}
        true
    }
}
