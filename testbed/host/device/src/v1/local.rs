//! A mediator in the same process: calls go to it without a socket, by a thread that stands for its process.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use super::device::Inlet;
use super::lane::{Lane, Turn};
use super::link::{Delivery, Link, LinkError, Submission};
use super::mediator::{Answer, Connection, Mediator, Verdict};
use crate::spin;
use crate::sync::lock;

/// How long to look for the next call before sleeping: one follows the other.
const LINGER: Duration = Duration::from_micros(60);

/// How long whoever drops the way waits for the call that is being carried out.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// The number of every connection: the device hears of the end of one only while its call waits for it.
const CONNECTION: u64 = 0;

/// The way to a mediator of this process.
#[derive(Debug)]
pub struct Local {
    shared: Arc<Shared>,
    way: Mutex<Way>,
    /// Disconnected when the work of all threads is over.
    over: Mutex<Receiver<()>>,
}

/// What the threads have in common.
#[derive(Debug)]
struct Shared {
    mediator: Arc<Mediator>,
    inlet: Inlet,
    lane: Lane,
    /// As a socket's, it ends when the mediator turns a call away; the next call makes a new one.
    connection: Mutex<Option<Arc<Connection>>>,
}

#[derive(Debug)]
struct Way {
    /// To the thread whose turn it is.
    calls: Option<Sender<Submission>>,
    /// That and those that were left behind.
    threads: Vec<JoinHandle<()>>,
    working: Option<Sender<()>>,
}

impl Local {
    /// Connects to `mediator`. What comes back goes to `inlet`.
    pub fn connect(mediator: &Arc<Mediator>, inlet: Inlet) -> std::io::Result<Self> {
        let (lane, turn) = Lane::new();
        let shared = Shared {
            mediator: Arc::clone(mediator),
            inlet,
            lane,
            connection: Mutex::new(Some(Arc::new(mediator.connect()))),
        };
        let shared = Arc::new(shared);
        let (working, over) = mpsc::channel();
        let mut way = Way { calls: None, threads: Vec::new(), working: Some(working) };
        way.start(&shared, turn)?;
        Ok(Self { shared, way: Mutex::new(way), over: Mutex::new(over) })
    }
}

impl Way {
    /// Starts the thread whose turn it is from now on.
    fn start(&mut self, shared: &Arc<Shared>, turn: Turn) -> std::io::Result<()> {
        let (calls, received) = mpsc::channel();
        let (own, working) = (Arc::clone(shared), self.working.clone());
        let thread = thread::Builder::new().name("mediator".to_owned()).spawn(move || {
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
        if let Some((turn, _)) = self.shared.lane.leave_behind(next) {
            way.start(&self.shared, turn).map_err(LinkError::Unreachable)?;
        }
        self.shared.lane.announce(submission.call.owner.get());
        let gone = || LinkError::Unreachable(std::io::ErrorKind::NotConnected.into());
        way.calls.as_ref().ok_or_else(gone)?.send(submission).map_err(|_| gone())?;
        Ok(CONNECTION)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let way = &mut *lock(&self.way);
        (way.calls, way.working) = (None, None);
        // The last to hold the device may be such a thread itself, when it delivers.
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

/// The next call: looks for it for a while, where there are processors to spare, then sleeps.
fn next(calls: &Receiver<Submission>) -> Option<Submission> {
    let start = Instant::now();
    while spin::to_spare() && start.elapsed() < LINGER {
        match calls.try_recv() {
            Ok(submission) => return Some(submission),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    calls.recv().ok()
}

/// Has calls carried out for as long as it is this thread's turn.
fn serve(shared: &Shared, turn: Turn, calls: &Receiver<Submission>) {
    let Shared { mediator, inlet, lane, connection: current } = shared;
    while let Some(Submission { header, call, data }) = next(calls) {
        let connection = Arc::clone(lock(current).get_or_insert_with(|| Arc::new(mediator.connect())));
        lane.begin(turn, call.owner.get(), &[]);
        let verdict = connection.call_while(&|| lane.is(turn), &header, &call, &data);
        if !lane.end(turn) {
            return;
        }
        // Before the guest sees the answer: what it rings for next is another call.
        lane.rest(turn);
        let hang_up = || drop(lock(current).take());
        let there = match verdict {
            Verdict::Answer(answer) => {
                let Answer { outcome, data } = *answer;
                let request_id = header.request_id.get();
                inlet.deliver(Delivery::Result { request_id, outcome: Some(&outcome), data: &data })
            }
            // As a mediator's socket does: a word, then the end. The next call makes a new connection.
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
                tracing::warn!("a device is hung up on: {error}");
                hang_up();
                inlet.deliver(Delivery::Closed { connection: CONNECTION })
            }
        };
        if !there {
            return;
        }
    }
}
