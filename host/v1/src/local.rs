//! A link to a mediator in the same process. A thread takes the place of the socket and the mediator's
//! process.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use vgpu_device::{has_spare_cpus, lock, threads};
use zerocopy::IntoBytes;

use super::connection_turn::{ConnectionTurn, Turn};
use super::device::Inlet;
use super::link::{Delivery, Link, LinkError, Submission};
use super::mediator::{Answer, Connection, Mediator, Verdict};

/// Time for which a thread spins for the next call before it sleeps. Calls usually follow one another within
/// less.
const LINGER: Duration = Duration::from_micros(60);

/// Time limit for which dropping the link waits for the call in progress.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Number of every connection. One number is enough, because the device learns of a connection's end only
/// while its call waits on it.
const CONNECTION: u64 = 0;

/// A link to a mediator of this process.
#[derive(Debug)]
pub struct Local {
    shared: Arc<SharedLink>,
    way: Mutex<CallThreads>,
    /// Channel whose senders the threads hold: it is disconnected when all of them have ended.
    over: Mutex<Receiver<()>>,
}

/// State that the threads share.
#[derive(Debug)]
struct SharedLink {
    mediator: Arc<Mediator>,
    inlet: Inlet,
    turns: ConnectionTurn,
    /// Current connection. As with a socket, it ends when the mediator refuses a call, and the next call
    /// makes a new one.
    connection: Mutex<Option<Arc<Connection>>>,
}

#[derive(Debug)]
struct CallThreads {
    /// Sends calls to the thread whose turn it is.
    calls: Option<Sender<Submission>>,
    /// The thread whose turn it is, and all threads that were left behind.
    threads: Vec<JoinHandle<()>>,
    working: Option<Sender<()>>,
}

impl Local {
    /// Connects to `mediator` and starts the first thread. Answers are delivered to `inlet`. Fails if the
    /// thread cannot be started.
    pub fn connect(mediator: &Arc<Mediator>, inlet: Inlet) -> std::io::Result<Self> {
        let (turns, turn) = ConnectionTurn::new();
        let shared = SharedLink {
            mediator: Arc::clone(mediator),
            inlet,
            turns,
            connection: Mutex::new(Some(Arc::new(mediator.connect()))),
        };
        let shared = Arc::new(shared);
        let (working, over) = mpsc::channel();
        let mut way = CallThreads { calls: None, threads: Vec::new(), working: Some(working) };
        way.start(&shared, turn)?;
        Ok(Self { shared, way: Mutex::new(way), over: Mutex::new(over) })
    }
}

impl CallThreads {
    /// Starts the thread that executes the calls from now on.
    fn start(&mut self, shared: &Arc<SharedLink>, turn: Turn) -> std::io::Result<()> {
        let (calls, received) = mpsc::channel();
        let (own, working) = (Arc::clone(shared), self.working.clone());
        let thread = threads::spawn("mediator", move || {
            serve(&own, turn, &received);
            drop(working);
        })?;
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread);
        self.calls = Some(calls);
        Ok(())
    }
}

impl Link for Local {
    fn send(&self, submission: Submission) -> Result<u64, LinkError> {
        let way = &mut *lock(&self.way);
        let next = || [submission.header.as_bytes(), submission.call.as_bytes()].concat();
        if let Some((turn, _)) = self.shared.turns.leave_behind(next) {
            way.start(&self.shared, turn).map_err(LinkError::Unreachable)?;
        }
        self.shared.turns.announce(submission.call.owner.get());
        let gone = || LinkError::Unreachable(std::io::ErrorKind::NotConnected.into());
        way.calls.as_ref().ok_or_else(gone)?.send(submission).map_err(|_| gone())?;
        Ok(CONNECTION)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let way = &mut *lock(&self.way);
        (way.calls, way.working) = (None, None);
        // A thread that delivers holds the device, so the last owner, which drops this, may be one of the
        // threads.
        way.threads.retain(|thread| thread.thread().id() != thread::current().id());
        if way.threads.is_empty() {
            return;
        }
        // A call that cannot be stopped ends with the process.
        let limit = self.shared.mediator.left_of(STOP_LIMIT);
        if lock(&self.over).recv_timeout(limit) == Err(RecvTimeoutError::Disconnected) {
            for thread in way.threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

/// Number of threads that spin while this one waits: the guest's, and the bus's thread that answers it.
const SPINNING: usize = 2;

/// Waits for the next call: spins for a while if there are processors to spare, then sleeps. Returns `None`
/// when the link is dropped.
fn next(calls: &Receiver<Submission>) -> Option<Submission> {
    let start = Instant::now();
    while has_spare_cpus(SPINNING) && start.elapsed() < LINGER {
        match calls.try_recv() {
            Ok(submission) => return Some(submission),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    calls.recv().ok()
}

/// Executes calls and delivers their results, as long as it is this thread's turn and the device exists.
fn serve(shared: &SharedLink, turn: Turn, calls: &Receiver<Submission>) {
    let SharedLink { mediator, inlet, turns, connection: current } = shared;
    while let Some(Submission { header, call, data }) = next(calls) {
        let connection = Arc::clone(lock(current).get_or_insert_with(|| Arc::new(mediator.connect())));
        turns.begin(turn, call.owner.get(), &[]);
        let verdict = connection.call_while(&|| turns.is(turn), &header, &call, &data);
        if !turns.end(turn) {
            return;
        }
        // The connection is idle before the guest sees the answer, because the next doorbell starts another
        // call.
        turns.rest(turn);
        let hang_up = || drop(lock(current).take());
        let there = match verdict {
            Verdict::Answer(answer) => {
                let Answer { outcome, data } = *answer;
                let request_id = header.request_id.get();
                inlet.deliver(Delivery::Result { request_id, outcome: Some(&outcome), data: &data })
            }
            // As on a socket, the refusal is delivered and the connection ends. The next call makes a new
            // one.
            Verdict::Busy => {
                hang_up();
                inlet.deliver(Delivery::Busy)
            }
            Verdict::Quarantined => {
                hang_up();
                inlet.deliver(Delivery::Quarantined)
            }
            Verdict::Gone => return,
            Verdict::HangUp(error) => {
                tracing::warn!("device disconnected: {error}");
                hang_up();
                inlet.deliver(Delivery::Closed { connection: CONNECTION })
            }
        };
        if !there {
            return;
        }
    }
}
