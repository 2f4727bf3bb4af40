//! A worker process as the device's process has it: its descriptors, how it is stopped and killed, how the
//! session's thread waits for it, and the memory that it has not let go of yet.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use rustix::process::{Signal, pidfd_send_signal};
use vgpu_device::{Gauges, Loss, Remote, Retired, SessionError, SessionHost};

use crate::shared::board::{Board, Sleeper};
use crate::shared::packet::{self, Order};

/// How long a worker may leave its socket unread before it counts as lost.
const UNREAD_MOST: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Looks before the session's thread sleeps.
const LOOKS: u32 = 200;

/// A worker.
pub(crate) struct Link {
    pub(crate) host: SessionHost,
    pub(crate) board: Arc<Board>,
    pub(crate) socket: OwnedFd,
    pub(crate) pidfd: OwnedFd,
    pub(crate) pid: u32,
    /// When the worker was started: it cannot have worked for longer than since then.
    started: Instant,
    /// Number of the newest message that was passed on.
    newest: AtomicU64,
    /// Up to which number the device's process has answered messages itself, when the worker had nothing to
    /// do.
    done_here: AtomicU64,
    /// Nothing more is to be expected of it.
    over: AtomicBool,
    /// It is dead and reaped.
    reaped: Mutex<bool>,
    reaping: Condvar,
    retired: Mutex<BTreeMap<u64, Retired>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("pid", &self.pid).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    pub(crate) fn new(
        host: SessionHost,
        board: Arc<Board>,
        socket: OwnedFd,
        pidfd: OwnedFd,
        pid: u32,
    ) -> Self {
        Self {
            host,
            board,
            socket,
            pidfd,
            pid,
            started: Instant::now(),
            newest: AtomicU64::new(0),
            done_here: AtomicU64::new(0),
            over: AtomicBool::new(false),
            reaped: Mutex::default(),
            reaping: Condvar::new(),
            retired: Mutex::default(),
        }
    }

    /// Number of the newest message that was passed on.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// The message of this number is passed on next.
    pub(crate) fn set_newest(&self, number: u64) {
        self.newest.store(number, Ordering::Release);
    }

    /// All messages up to this number are carried out, though the worker was not told of the last of them.
    pub(crate) fn set_done_here(&self, number: u64) {
        self.done_here.store(number, Ordering::Release);
    }

    /// Shows what the worker says that the session holds, and how long its executor has worked.
    pub(crate) fn show_figures(&self) {
        self.board.load_gauges(self.host.gauges());
        self.host.worked_elsewhere(self.busy());
    }

    /// How long the worker's executor has worked, as it says, but not longer than the worker exists.
    fn busy(&self) -> Duration {
        self.board.busy().min(self.started.elapsed())
    }

    /// Whether nobody is to wait for the worker.
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.host.stopping()
    }

    /// Waits until the worker has come so far that `done` holds. An error: it never will.
    pub(crate) fn wait_until(&self, mut done: impl FnMut() -> bool) -> Result<(), SessionError> {
        for _ in 0..LOOKS {
            if done() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.board.sleep(Sleeper::Device, None, || done() || self.is_over());
        if done() { Ok(()) } else { Err(self.gone()) }
    }

    fn gone(&self) -> SessionError {
        SessionError::Lost(format!("worker process {} is gone", self.pid))
    }

    /// The session is lost. The first reason that is given is what the log says.
    pub(crate) fn lose(&self, loss: Loss) {
        self.host.lose(loss);
        self.over.store(true, Ordering::SeqCst);
        self.board.wake(Sleeper::Device);
    }

    /// The worker broke the rules of its own ring or socket. It is killed.
    pub(crate) fn rubbish(&self, what: Arguments<'_>) -> SessionError {
        let text = format!("worker process {} talks rubbish: {what}", self.pid);
        self.lose(Loss::Executor { number: None, text: text.clone() });
        self.kill();
        SessionError::Lost(text)
    }

    /// Sends an order with files.
    pub(crate) fn order(&self, order: Order, files: &[BorrowedFd<'_>]) -> Result<(), SessionError> {
        loop {
            match packet::send(&self.socket, &order.encode(), files, SendFlags::DONTWAIT) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !self.is_over() => {
                    let ready = poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&UNREAD_MOST));
                    if ready == Ok(0) {
                        return Err(self.rubbish(format_args!("it does not read its socket")));
                    }
                }
                Err(error) => {
                    return Err(SessionError::Lost(format!("tell worker process {}: {error}", self.pid)));
                }
            }
        }
    }

    /// Kills the worker, if it lives.
    pub(crate) fn kill(&self) {
        // It may be dead already.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Keeps memory until the worker says that nothing refers to it.
    pub(crate) fn keep(&self, id: u64, memory: Retired) {
        lock(&self.retired).insert(id, memory);
    }

    /// Lets memory go that the worker was told to let go of by this number. `None`: it was told no such
    /// thing.
    pub(crate) fn let_go(&self, id: u64) -> Option<()> {
        let memory = lock(&self.retired).remove(&id);
        memory.map(drop)
    }

    /// Lets all memory go: the worker is dead.
    pub(crate) fn let_all_go(&self) {
        let memory = std::mem::take(&mut *lock(&self.retired));
        drop(memory);
    }

    /// The worker is dead and reaped.
    pub(crate) fn set_reaped(&self) {
        self.over.store(true, Ordering::SeqCst);
        *lock(&self.reaped) = true;
        self.reaping.notify_all();
        self.board.wake(Sleeper::Device);
    }

    /// Waits until the worker is reaped, for `most`. Whether it is.
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

impl Remote for Link {
    fn show(&self, gauges: &Gauges) {
        self.board.load_gauges(gauges);
        gauges.raise_busy(self.busy());
        gauges.worker.store(self.pid, Ordering::Relaxed);
    }

    fn done(&self) -> u64 {
        self.board.executed().min(self.newest()).max(self.done_here.load(Ordering::Acquire))
    }

    fn charged(&self) -> u64 {
        self.board.charged()
    }

    fn stop(&self) {
        // Nobody may wait here. A worker that does not read its socket is killed when its session has ended.
        let _ = packet::send(&self.socket, &Order::Stop.encode(), &[], SendFlags::DONTWAIT);
        self.board.wake(Sleeper::Device);
    }
}
