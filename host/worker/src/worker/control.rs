//! The worker's second thread: it receives files, answers and the order to stop, and notices that the
//! device's process is gone. It makes no call of the driver, so that nothing blocks it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use vgpu_device::SessionHost;

use crate::shared::packet::{self, WorkerOrder};
use crate::shared::setup::SETUP_MAX;
use crate::shared::status_page::{Sleeper, StatusPage};

/// Time for which a worker may continue without the device's process.
const ORPHANED_MOST: Duration = Duration::from_secs(2);

/// State that the two threads of a worker share.
#[derive(Debug, Default)]
pub(crate) struct ControlChannel {
    state: Mutex<ControlState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ControlState {
    /// Files that were received and are not used yet, by their number.
    files: BTreeMap<u64, File>,
    /// Answer to a request for device memory, until the thread that waits takes it.
    reserved: Option<bool>,
    /// Whether no more orders will come.
    closed: bool,
    /// Whether the session has ended.
    ended: bool,
}

impl ControlChannel {
    fn lock(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file of a number. It was sent before the frame that names it. Returns `None` if it will
    /// not arrive.
    pub(crate) fn file(&self, number: u64) -> Option<File> {
        let mut state = self.lock();
        while !state.files.contains_key(&number) && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.files.get(&number)?.try_clone().ok()
    }

    /// Waits for the answer to the request for device memory that the caller has sent. Only one is sent at a
    /// time. Returns false if the answer will not arrive.
    pub(crate) fn wait_reserved(&self) -> bool {
        let mut state = self.lock();
        while state.reserved.is_none() && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.reserved.take().unwrap_or(false)
    }

    /// Drops the files with a number smaller than `below`, which are not named again.
    pub(crate) fn forget_files(&self, below: u64) {
        self.lock().files.retain(|&number, _| number >= below);
    }

    /// Records that the session has ended.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Receives orders until the other end is closed.
    pub(crate) fn receive_orders(&self, socket: impl AsFd, host: &SessionHost, page: &Arc<StatusPage>) {
        while let Ok(Some((packet, files))) = packet::receive(&socket, SETUP_MAX) {
            match WorkerOrder::decode(&packet) {
                Some(WorkerOrder::Files(first)) => {
                    self.lock().files.extend((first..).zip(files));
                    self.changed.notify_all();
                }
                Some(WorkerOrder::Stop) => stop(host, page),
                Some(WorkerOrder::Reserved(reserved)) => {
                    self.lock().reserved = Some(reserved);
                    self.changed.notify_all();
                }
                None => break,
            }
        }
        // Nobody needs the results any more.
        let mut state = self.lock();
        state.closed = true;
        self.changed.notify_all();
        stop(host, page);
        let end = Instant::now() + ORPHANED_MOST;
        while !state.ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The session's thread may be in work that does not check for the stop.
                let _ = kill_process(getpid(), Signal::KILL);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Tells the session to stop, whatever its thread does.
fn stop(host: &SessionHost, page: &Arc<StatusPage>) {
    host.stop();
    page.wake(Sleeper::Worker);
}
