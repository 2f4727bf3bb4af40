//! Handle of a worker process in the device's process: its descriptors, how to stop and kill it, how the
//! session's thread waits for it, and the memory that it has not released yet.

mod saved;

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, pidfd_send_signal, waitid, waitpid,
};
use vgpu_device::{
    Gauges, NotSaved, RetiredMemory, SessionError, SessionHost, SessionLoss, WorkerLink, lock,
};

use crate::device::process_watch::Watched;
use crate::shared::packet::{self, WorkerOrder};
use crate::shared::protocol::PROTOCOL;
use crate::shared::status_page::{Sleeper, StatusPage};

/// Time after which a worker that does not read its socket counts as lost.
const UNREAD_MOST: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Number of polls before the session's thread sleeps.
const LOOKS: u32 = 200;

/// Why a wait for a worker has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The worker has progressed so far.
    Reached,
    /// The device is paused.
    Paused,
}

/// Whether the worker's reports are read.
#[derive(Debug, Default)]
struct Reports {
    /// Whether one is being handled.
    handling: bool,
    /// Whether none is read any more, because the worker is dead or is to be killed.
    over: bool,
}

/// A worker process, as the device's process controls it.
pub(crate) struct WorkerProcess {
    pub(crate) host: SessionHost,
    pub(crate) page: Arc<StatusPage>,
    pub(crate) socket: OwnedFd,
    /// Descriptor of the process, where the system has one. Otherwise the socket tells of the process's end.
    pub(crate) pidfd: Option<OwnedFd>,
    pub(crate) pid: u32,
    /// Number of the protocol that the worker speaks.
    protocol: u32,
    reports: Mutex<Reports>,
    /// Notified when `reports` changes, or a pause.
    reading: Condvar,
    /// Whether no report is read, because the device is paused.
    unread: AtomicBool,
    /// Whether the process's number is still its own, because nobody has reaped it.
    named: Mutex<bool>,
    /// Start time of the worker, which limits the time that it can claim to have worked.
    started: Instant,
    /// Number of the newest message that was forwarded.
    newest: AtomicU64,
    /// Number up to which the device's process has completed messages itself, because the worker was idle.
    done_here: AtomicU64,
    /// Number of the newest message whose completion on the GPU was asked for.
    asked: AtomicU64,
    /// Whether nothing more is expected of the worker.
    over: AtomicBool,
    /// Whether the worker is dead and reaped.
    reaped: Mutex<bool>,
    reaping: Condvar,
    retired: Mutex<BTreeMap<u64, RetiredMemory>>,
    /// What is kept until the worker is reaped.
    watched: Mutex<Option<Watched>>,
}

impl std::fmt::Debug for WorkerProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerProcess").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl WorkerProcess {
    pub(crate) fn new(
        host: SessionHost,
        page: Arc<StatusPage>,
        socket: OwnedFd,
        pidfd: Option<OwnedFd>,
        pid: u32,
    ) -> Self {
        Self {
            host,
            page,
            socket,
            pidfd,
            pid,
            protocol: PROTOCOL,
            reports: Mutex::default(),
            reading: Condvar::new(),
            unread: AtomicBool::new(false),
            named: Mutex::new(true),
            started: Instant::now(),
            newest: AtomicU64::new(0),
            done_here: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            over: AtomicBool::new(false),
            reaped: Mutex::default(),
            reaping: Condvar::new(),
            retired: Mutex::default(),
            watched: Mutex::default(),
        }
    }

    /// Keeps a value until the worker is reaped.
    pub(crate) fn watched(self, watched: Option<Watched>) -> Self {
        Self { watched: Mutex::new(watched), ..self }
    }

    /// Returns the number of the newest message that was forwarded.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Sets the number of the message that is forwarded next.
    pub(crate) fn set_newest(&self, number: u64) {
        self.newest.store(number, Ordering::Release);
    }

    /// Marks all messages up to this number as completed. The worker was not told of the last of them.
    pub(crate) fn set_done_here(&self, number: u64) {
        self.done_here.store(number, Ordering::Release);
    }

    /// Returns the number of the newest message whose completion on the GPU was asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Acquire)
    }

    /// Sets the number of the message whose completion is asked for next.
    pub(crate) fn set_asked(&self, number: u64) {
        self.asked.store(number, Ordering::Release);
    }

    /// Copies the worker's figures into the status report: the gauges of the session, and the time that its
    /// executor has worked.
    pub(crate) fn show_figures(&self) {
        self.page.load_gauges(self.host.gauges());
        self.host.worked_in_worker(self.busy());
    }

    /// Returns the time that the worker claims to have worked, at most its age.
    fn busy(&self) -> Duration {
        self.page.busy().min(self.started.elapsed())
    }

    /// Returns whether the worker or its session has ended or is ending, so that nobody should wait for the
    /// worker.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.host.stopping()
    }

    /// Waits until the worker has progressed so far that `done` holds, or the device is paused. Fails if it
    /// never will.
    pub(crate) fn wait_until(&self, mut done: impl FnMut() -> bool) -> Result<Waited, SessionError> {
        for _ in 0..LOOKS {
            if done() {
                return Ok(Waited::Reached);
            }
            std::hint::spin_loop();
        }
        self.page.sleep(Sleeper::Device, None, || done() || self.is_over() || self.host.pausing());
        if done() {
            Ok(Waited::Reached)
        } else if self.is_over() {
            Err(self.gone())
        } else {
            Ok(Waited::Paused)
        }
    }

    /// Begins to handle reports, once the device is not paused.
    pub(crate) fn begin_reports(&self) {
        let reports = lock(&self.reports);
        let unread = |_: &mut Reports| self.unread.load(Ordering::SeqCst);
        let mut reports = self.reading.wait_while(reports, unread).unwrap_or_else(PoisonError::into_inner);
        reports.handling = true;
    }

    /// Returns whether another report may be handled now.
    pub(crate) fn may_read(&self) -> bool {
        !self.unread.load(Ordering::SeqCst)
    }

    /// Ends to handle reports, for ever if `over`.
    pub(crate) fn end_reports(&self, over: bool) {
        let mut reports = lock(&self.reports);
        reports.handling = false;
        reports.over |= over;
        drop(reports);
        self.reading.notify_all();
    }

    /// Has no report read until [`WorkerProcess::resume_reports`]. Waits for the one that is being handled, as
    /// long as the device is paused. Fails if the session is lost or told to stop, or none is read any more.
    pub(crate) fn pause_reports(&self) -> Result<(), NotSaved> {
        self.unread.store(true, Ordering::SeqCst);
        let busy = |reports: &mut Reports| reports.handling && self.host.pausing() && !self.host.stopping();
        let reports = self.reading.wait_while(lock(&self.reports), busy);
        let reports = reports.unwrap_or_else(PoisonError::into_inner);
        let ending = reports.over || reports.handling || self.is_over();
        drop(reports);
        if ending {
            self.resume_reports();
            return Err(NotSaved::Ending);
        }
        Ok(())
    }

    /// Has reports read again.
    pub(crate) fn resume_reports(&self) {
        self.unread.store(false, Ordering::SeqCst);
        self.tell_reader();
    }

    /// Wakes whoever waits for reports to be read or not to be.
    fn tell_reader(&self) {
        // With the lock, so that a thread that has not looked is waiting already.
        let _reports = lock(&self.reports);
        self.reading.notify_all();
    }

    fn gone(&self) -> SessionError {
        SessionError::Lost(format!("worker process {} is gone", self.pid))
    }

    /// Ends the session. The log shows the first reason that is given.
    pub(crate) fn lose(&self, loss: SessionLoss) {
        self.host.lose(loss);
        self.over.store(true, Ordering::SeqCst);
        self.page.wake_surely(Sleeper::Device);
    }

    /// Kills the worker because it broke the rules of its ring or socket.
    pub(crate) fn kill_for_violation(&self, what: Arguments<'_>) -> SessionError {
        let text = format!("worker process {} violates the protocol: {what}", self.pid);
        self.lose(SessionLoss::Executor { number: None, text: text.clone() });
        self.kill();
        SessionError::Lost(text)
    }

    /// Sends an order, with descriptors.
    pub(crate) fn order(&self, order: WorkerOrder, files: &[BorrowedFd<'_>]) -> Result<(), SessionError> {
        loop {
            match packet::send(&self.socket, &order.encode(), files, SendFlags::DONTWAIT) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !self.is_over() => {
                    let ready = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&UNREAD_MOST));
                    if ready == Ok(0) {
                        return Err(self.kill_for_violation(format_args!("it does not read its socket")));
                    }
                }
                Err(error) => {
                    return Err(SessionError::Lost(format!("tell worker process {}: {error}", self.pid)));
                }
            }
        }
    }

    /// Kills the worker if it is alive.
    pub(crate) fn kill(&self) {
        let named = lock(&self.named);
        // The worker may be dead already.
        let _ = match (&self.pidfd, Pid::from_raw(self.pid.cast_signed())) {
            (Some(pidfd), _) => pidfd_send_signal(pidfd, Signal::KILL),
            (None, Some(pid)) if *named => kill_process(pid, Signal::KILL),
            (None, _) => Ok(()),
        };
    }

    /// Waits until the worker is dead, and reaps it. It is a child of this process, whether this program or
    /// the one before started it.
    pub(crate) fn reap(&self) -> std::io::Result<ExitStatus> {
        let pid = Pid::from_raw(self.pid.cast_signed()).ok_or(Errno::SRCH)?;
        // Its number stays its own until the lock is held, under which nobody kills it. An error shows again
        // below.
        let dead = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), dead), Err(Errno::INTR)) {}
        let mut named = lock(&self.named);
        *named = false;
        loop {
            match waitpid(Some(pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Ok(Some((_, status))) => return Ok(ExitStatus::from_raw(status.as_raw())),
                Ok(None) => return Err(Errno::CHILD.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps retired memory until the worker reports that nothing refers to it.
    pub(crate) fn retain(&self, id: u64, memory: RetiredMemory) {
        lock(&self.retired).insert(id, memory);
    }

    /// Releases the memory that was retired under this number. Returns `None` if the worker was given no such
    /// number.
    pub(crate) fn release_retired(&self, id: u64) -> Option<()> {
        let memory = lock(&self.retired).remove(&id);
        memory.map(drop)
    }

    /// Releases all retired memory, because the worker is dead.
    pub(crate) fn release_all_retired(&self) {
        let memory = std::mem::take(&mut *lock(&self.retired));
        drop(memory);
    }

    /// Records that the worker is dead and reaped.
    pub(crate) fn set_reaped(&self) {
        self.over.store(true, Ordering::SeqCst);
        drop(lock(&self.watched).take());
        *lock(&self.reaped) = true;
        self.reaping.notify_all();
        self.page.wake_surely(Sleeper::Device);
    }

    /// Waits at most `most` until the worker is reaped. Returns whether it is.
    pub(crate) fn wait_reaped(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut reaped = lock(&self.reaped);
        while !*reaped {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            reaped = self.reaping.wait_timeout(reaped, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl WorkerLink for WorkerProcess {
    fn show(&self, gauges: &Gauges) {
        self.page.load_gauges(gauges);
        gauges.raise_busy(self.busy());
        // Each message has at most one answer.
        gauges.raise_out_of_memory_in_worker(self.page.out_of_memory().min(self.newest()));
        gauges.worker.store(self.pid, Ordering::Relaxed);
    }

    fn done(&self) -> u64 {
        self.page.executed().min(self.newest()).max(self.done_here.load(Ordering::Acquire))
    }

    fn charged(&self) -> u64 {
        self.page.charged()
    }

    fn stop(&self) {
        // Nobody may wait here. A worker that does not read its socket is killed when its session has ended.
        let _ = packet::send(&self.socket, &WorkerOrder::Stop.encode(), &[], SendFlags::DONTWAIT);
        self.tell_reader();
        self.page.wake_surely(Sleeper::Device);
    }

    fn interrupt(&self) {
        self.tell_reader();
        self.page.wake_surely(Sleeper::Device);
    }
}
