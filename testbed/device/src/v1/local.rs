//! A mediator in the same process: calls go to it without a socket, by a thread that stands for its process.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::link::{Delivery, Inlet, Link, LinkError, Submission};
use super::mediator::{Answer, Mediator, Verdict};
use crate::host::lock;
use crate::spin;

/// How long to look for the next call before sleeping: one follows the other.
const LINGER: Duration = Duration::from_micros(60);

/// How long whoever drops the way waits for the call that is being carried out.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// The number of every connection: the device hears of the end of one only while its call waits for it.
const CONNECTION: u64 = 0;

/// The way to a mediator of this process.
#[derive(Debug)]
pub struct Local {
    mediator: Arc<Mediator>,
    calls: Option<Sender<Submission>>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread's work is over.
    over: Mutex<Receiver<()>>,
}

impl Local {
    /// Connects to `mediator`. What comes back goes to `inlet`.
    pub fn connect(mediator: &Arc<Mediator>, inlet: Inlet) -> std::io::Result<Self> {
        let (calls, received) = mpsc::channel();
        let own = Arc::clone(mediator);
        let (working, over) = mpsc::channel();
        let thread = thread::Builder::new().name("mediator".to_owned()).spawn(move || {
            serve(&own, &received, &inlet);
            drop::<Sender<()>>(working);
        })?;
        let mediator = Arc::clone(mediator);
        Ok(Self { mediator, calls: Some(calls), thread: Some(thread), over: Mutex::new(over) })
    }
}

impl Link for Local {
    fn send(&self, submission: Submission) -> Result<u64, LinkError> {
        let gone = || LinkError::Unreachable(std::io::ErrorKind::NotConnected.into());
        self.calls.as_ref().ok_or_else(gone)?.send(submission).map_err(|_| gone())?;
        Ok(CONNECTION)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.calls = None;
        // The last to hold the device may be the thread itself, when it delivers.
        if let Some(thread) = self.thread.take().filter(|own| own.thread().id() != thread::current().id()) {
            // A call that cannot be stopped ends with the process.
            let limit = self.mediator.left_of(STOP_LIMIT);
            if lock(&self.over).recv_timeout(limit) == Err(RecvTimeoutError::Disconnected) {
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

fn serve(mediator: &Arc<Mediator>, calls: &Receiver<Submission>, inlet: &Inlet) {
    let mut connection = Some(mediator.connect());
    while let Some(Submission { header, call, data }) = next(calls) {
        let verdict = connection.get_or_insert_with(|| mediator.connect()).call(&header, &call, &data);
        let there = match verdict {
            Verdict::Answer(answer) => {
                let Answer { outcome, data } = *answer;
                let request_id = header.request_id.get();
                inlet.deliver(Delivery::Result { request_id, outcome: Some(&outcome), data: &data })
            }
            // As a mediator's socket does: a word, then the end. The next call makes a new connection.
            Verdict::Busy => {
                connection = None;
                inlet.deliver(Delivery::Busy)
            }
            Verdict::Quarantined => {
                connection = None;
                inlet.deliver(Delivery::Quarantined)
            }
            Verdict::Gone => return,
            Verdict::HangUp(error) => {
                tracing::warn!("a device is hung up on: {error}");
                connection = None;
                inlet.deliver(Delivery::Closed { connection: CONNECTION })
            }
        };
        if !there {
            return;
        }
    }
}
