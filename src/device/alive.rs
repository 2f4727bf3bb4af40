//! Tests whether a device answers. A thread of its own asks, because a device that does not answer blocks the
//! asking thread. The launcher and `check` report a silent device in the same words.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::thread::{
    SecureComputingMode, sched_getaffinity, sched_getcpu, sched_setaffinity, secure_computing_mode,
};
use vgpu_findings::busy;
use vgpu_transport::{Device, PciFunction, Progress, Session};
use vgpu_wire::body::session::Echo;

use super::error::DeviceError;
use super::judge::{agrees, ready, refused};
use super::silence::Silence;
use super::survey;

/// Interval at which patience is checked.
pub const TICK: Duration = Duration::from_millis(20);
/// Time limit for an answer. A register access and an echo take microseconds; an attach starts a thread on
/// the host.
const ANSWER: Duration = Duration::from_millis(1500);
/// Time limit for an answer of a version 1 host. It handles one call at a time for the whole guest, so that
/// the answer may wait for another process's kernel.
const TURN: Duration = Duration::from_secs(30);
/// Hard cap on the wait, as a multiple of the limit, however much progress the device makes.
const MOST: u32 = 10;

/// Remaining time to wait for an answer. Each tick is charged by the share of a processor that this process
/// had, so that a busy machine does not make the device look silent. Progress of the device on other
/// sessions' work renews the time.
#[derive(Clone, Debug)]
pub struct Patience {
    limit: Duration,
    left: Duration,
    /// Remaining time until the hard cap, which progress does not renew.
    most: Duration,
    progress: u64,
}

impl Patience {
    /// Creates a wait of the length `limit`.
    pub fn new(limit: Duration) -> Self {
        Self { limit, left: limit, most: limit * MOST, progress: 0 }
    }

    /// Charges a tick during which this process had `share` of a processor. A changed `progress` renews the
    /// time. Returns whether any time is left.
    pub fn tick(&mut self, progress: u64, share: f64) -> bool {
        if progress != self.progress {
            (self.progress, self.left) = (progress, self.limit);
        }
        self.left = self.left.saturating_sub(TICK.mul_f64(share));
        self.most = self.most.saturating_sub(TICK);
        !self.left.is_zero() && !self.most.is_zero()
    }
}

/// Message of the thread that asks the device.
#[derive(Debug)]
enum QuestionEvent {
    /// The thread starts waiting for this part of the device.
    Asks(Silence),
    /// Counters that show the device's progress.
    Gets(Progress),
    /// The test has ended with this result.
    Done(Result<(), DeviceError>),
}

/// A pending test of a function, on a thread of its own.
#[derive(Debug)]
pub struct DeviceQuestion {
    name: String,
    heard: Receiver<QuestionEvent>,
    first: Silence,
}

impl DeviceQuestion {
    /// Starts a test of a function: opening it, reading its identity, and one echo of its host.
    pub fn ask(function: &PciFunction, root: &Path) -> Self {
        let name = function.address.to_string();
        // Room for all that the thread ever says, so that it never waits for a reader who has given up.
        let (tell, heard) = sync_channel(8);
        let (function, root) = (function.clone(), root.to_owned());
        let first = if survey::version(&function) == 1 { Silence::Mediator } else { Silence::Registers };
        let told = tell.clone();
        let asks = move || {
            leave_processor();
            let outcome = ask(&function, &root, &tell);
            // The reader may have given up.
            let _ = tell.send(QuestionEvent::Done(outcome));
        };
        match thread::Builder::new().spawn(asks) {
            // A new thread may stand behind its parent on the same processor, even beside an idle one, until
            // the kernel balances them milliseconds later. Let it run: it leaves at once. Waiting for its
            // word would not do, since who is woken may be put where its waker runs.
            Ok(_) => thread::yield_now(),
            // There is room for it.
            Err(error) => drop(told.send(QuestionEvent::Done(Err(DeviceError::Thread(error))))),
        }
        Self { name, heard, first }
    }

    /// Waits for the result until the time is used up.
    pub fn answer(self) -> Result<(), DeviceError> {
        let Self { name, heard, first } = self;
        wait(&heard, first).unwrap_or_else(|silence| Err(DeviceError::Mute { name, silence }))
    }
}

/// Moves this thread to another of its permitted processors, if there is one. Does nothing if system calls
/// are filtered, because hardened units kill a process for this call (`SystemCallFilter=~@resources`).
fn leave_processor() {
    let (Ok(SecureComputingMode::Disabled), Ok(mut others)) =
        (secure_computing_mode(), sched_getaffinity(None))
    else {
        return;
    };
    others.unset(sched_getcpu());
    if others.count() > 0 {
        // Where it runs is only a matter of time.
        let _ = sched_setaffinity(None, &others);
    }
}

/// Waits for the result until the time is used up. The error is the part of the device that did not answer.
fn wait(heard: &Receiver<QuestionEvent>, first: Silence) -> Result<Result<(), DeviceError>, Silence> {
    let limit = |silence| if silence == Silence::Mediator { TURN } else { ANSWER };
    let (mut silence, mut patience, mut progress) = (first, Patience::new(limit(first)), None);
    loop {
        match heard.recv_timeout(TICK) {
            Ok(QuestionEvent::Asks(next)) => (silence, patience) = (next, Patience::new(limit(next))),
            Ok(QuestionEvent::Gets(counters)) => progress = Some(counters),
            Ok(QuestionEvent::Done(outcome)) => return Ok(outcome),
            Err(RecvTimeoutError::Timeout) => {
                if !patience.tick(progress.as_ref().map_or(0, Progress::count), busy::share()) {
                    return Err(silence);
                }
            }
            // The thread has ended without a word: it was asking that.
            Err(RecvTimeoutError::Disconnected) => return Err(silence),
        }
    }
}

fn ask(function: &PciFunction, root: &Path, tell: &SyncSender<QuestionEvent>) -> Result<(), DeviceError> {
    let name = || function.address.to_string();
    let say = |news| {
        // The reader may have given up.
        let _ = tell.send(news);
    };
    let wrong = |error| refused(function, root, error);
    let device = Device::open(function, Some(vgpu_transport_v1::open)).map_err(wrong)?;
    let probe = device.probe().map_err(wrong)?;
    tracing::debug!(function = %function.address, ?probe, "opened");
    agrees(name(), &probe)?;
    ready(name(), &probe)?;
    if survey::version(function) == 1 {
        // The host has already answered a call when the device was opened.
        return Ok(());
    }
    if let Ok(progress) = Progress::open(&device) {
        say(QuestionEvent::Gets(progress));
    }
    device.ping().map_err(wrong)?;
    say(QuestionEvent::Asks(Silence::Greeting));
    // A device without room for one more process, or one that refuses this one, is not mute: the program
    // finds out by itself whether that is so when it needs the device.
    let session = match Session::attach(device) {
        Ok(session) => session,
        Err(error) => {
            tracing::debug!(function = %function.address, reason = crate::error::chain(&error), "no echo");
            return Ok(());
        }
    };
    say(QuestionEvent::Asks(Silence::Echo));
    let echoed = session.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut [0; 8]);
    tracing::debug!(function = %function.address, ?echoed, "echoed");
    session.close();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(patience: &mut Patience, mut progress: impl FnMut(u32) -> u64) -> u32 {
        (1..u32::MAX).find(|&tick| !patience.tick(progress(tick), 1.0)).unwrap()
    }

    /// Time during which other processes use the processors does not count against the device.
    #[test]
    fn a_busy_machine_renews_patience_but_not_for_ever() {
        let waited = |share: f64| {
            let mut patience = Patience::new(TICK * 50);
            (1..u32::MAX).find(|_| !patience.tick(0, share)).unwrap()
        };
        assert_eq!((waited(1.0), waited(0.25), waited(0.001)), (50, 200, 50 * MOST));
    }

    /// A device counts as silent when it makes no progress, not when a fixed time has passed.
    #[test]
    fn progress_renews_patience_but_not_for_ever() {
        let limit = TICK * 50;
        assert_eq!(ticks(&mut Patience::new(limit), |_| 0), 50);
        assert_eq!(
            ticks(&mut Patience::new(limit), |tick| u64::from(tick.min(30))),
            79,
            "50 from the last one on"
        );
        assert_eq!(ticks(&mut Patience::new(limit), u64::from), 50 * MOST);
    }

    #[test]
    fn who_asks_is_waited_for_by_what_it_asks() {
        let (tell, heard) = sync_channel(8);
        tell.send(QuestionEvent::Asks(Silence::Greeting)).unwrap();
        tell.send(QuestionEvent::Asks(Silence::Echo)).unwrap();
        assert_eq!(wait(&heard, Silence::Registers).unwrap_err(), Silence::Echo);
        tell.send(QuestionEvent::Done(Ok(()))).unwrap();
        assert!(wait(&heard, Silence::Registers).unwrap().is_ok());
        drop(tell);
        assert_eq!(wait(&heard, Silence::Mediator).unwrap_err(), Silence::Mediator);
    }
}
