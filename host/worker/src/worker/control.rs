//! The worker's second thread: receives files, releases of holds and the order to stop, and notices that the
//! device's process is gone. It calls no driver, so that nothing keeps it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use vgpu_device::SessionHost;

use crate::shared::board::{Board, Sleeper};
use crate::shared::packet::{self, Order};
use crate::shared::setup::SETUP_MAX;

/// How long a worker may go on without the device's process.
const ORPHANED_MOST: Duration = Duration::from_secs(2);

/// What the two threads share.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Files that have come and are not used yet.
    files: BTreeMap<u64, File>,
    /// No more will come.
    closed: bool,
    /// The session has ended.
    ended: bool,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of a number, which was sent before the frame that names it. `None`: it will not come.
    pub(crate) fn file(&self, number: u64) -> Option<File> {
        let mut state = self.lock();
        while !state.files.contains_key(&number) && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.files.get(&number)?.try_clone().ok()
    }

    /// The files that have come are not named again.
    pub(crate) fn forget_files(&self, below: u64) {
        self.lock().files.retain(|&number, _| number >= below);
    }

    /// The session has ended.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Receives until the other end is closed.
    pub(crate) fn run(&self, socket: impl AsFd, host: &SessionHost, board: &Arc<Board>) {
        while let Ok(Some((packet, files))) = packet::receive(&socket, SETUP_MAX) {
            match Order::decode(&packet) {
                Some(Order::Files(first)) => {
                    self.lock().files.extend((first..).zip(files));
                    self.changed.notify_all();
                }
                Some(Order::Stop) => stop(host, board),
                Some(Order::Release(hold)) => host.releases().tell(hold),
                None => break,
            }
        }
        // Nobody wants to know any more what comes of it.
        let mut state = self.lock();
        state.closed = true;
        self.changed.notify_all();
        stop(host, board);
        let end = Instant::now() + ORPHANED_MOST;
        while !state.ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // In the middle of work that does not look up.
                let _ = kill_process(getpid(), Signal::KILL);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The session is to stop, whatever its thread does.
fn stop(host: &SessionHost, board: &Arc<Board>) {
    host.stop();
    board.wake(Sleeper::Worker);
}
