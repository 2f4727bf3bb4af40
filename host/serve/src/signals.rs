//! The signals that end a command: SIGINT and SIGTERM. All threads block them from the start of the command
//! on, and one of them takes them from a descriptor. One that nobody has taken waits in the kernel, also
//! while this process executes another program: its mask and what waits survive, so that no signal is lost or
//! ends it half way.

use std::io;
use std::sync::{Mutex, MutexGuard};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use vgpu_device::lock;

fn ending() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

/// Lets the signals end this process, whatever the mask of the process that has started it.
pub(crate) fn unblock() -> io::Result<()> {
    Ok(ending().thread_unblock()?)
}

/// The signals of a command.
#[derive(Debug)]
pub(crate) struct EndingSignals {
    waiting: SignalFd,
    /// Locked while a signal is taken.
    taking: Mutex<()>,
}

impl EndingSignals {
    /// Blocks the signals for this thread and those that it starts.
    pub(crate) fn block() -> io::Result<Self> {
        ending().thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let waiting = SignalFd::with_flags(&ending(), flags)?;
        Ok(Self { waiting, taking: Mutex::new(()) })
    }

    /// Waits for a signal, takes it, and calls `end`.
    pub(crate) fn wait(&self, end: impl FnOnce()) -> io::Result<()> {
        loop {
            retry_on_intr(|| poll(&mut [PollFd::new(&self.waiting, PollFlags::IN)], None))?;
            let _taking = lock(&self.taking);
            if self.waiting.read_signal()?.is_some() {
                end();
                return Ok(());
            }
        }
    }

    /// Has signals wait as long as the value lives. Of those that were taken before, `end` has returned.
    pub(crate) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.taking)
    }
}
