//! A session's host thread. It reads the ring, spins and sleeps, publishes progress, and ends the session if
//! the guest breaks the contract, if the executor is lost, or on request. Everything that a session holds is
//! freed here, however long its executor takes to release it. The channel is free after that.

mod ended;
mod pausing;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use vgpu_wire::area;
use vgpu_wire::registers::Refusal;

use crate::device::channel::Channel;
use crate::device::pauses::Pauses;
use crate::device::ring::Ring;
use crate::dispatch::dispatcher::Dispatcher;
use crate::executor::{Executor, Progress, SessionError};
use crate::figures::EndedSessions;
use crate::gate::{Gate, GateMode, InFlightMeter, STALL, ThreadState, Throttle};
use crate::session::host::SessionHost;
use crate::session::remote::SessionLoss;
use crate::session::violation::Violation;
use crate::spin::{Awake, SpinBudget, WaitEvent, cpus};
use crate::threads::panic_message;

pub(crate) use ended::EndedSession;

/// Status `CUDA_ERROR_UNKNOWN`, which a guest gets when the host has ended its session.
pub(crate) const CUDA_ERROR_UNKNOWN: u32 = 999;
/// Maximum number of messages between two updates of the guest's progress.
const BATCH_MOST: u32 = 32;

/// Reason for which a session's thread ends.
enum SessionEnd {
    /// The guest detached, or the device is reset or ends.
    Stopped,
    /// The message with this number cannot be carried out.
    Failed { number: u64, error: SessionError },
}

/// State of a session's thread.
pub(crate) struct SessionThread {
    device: Arc<str>,
    channel: Arc<Channel>,
    host: SessionHost,
    gate: Arc<Gate>,
    ended: Arc<EndedSessions>,
    pauses: Arc<Pauses>,
    ring: Ring,
    /// Range, in the ring's private memory, of a message that a restored session had taken and not
    /// dispatched.
    kept: Option<Range<usize>>,
    dispatcher: Dispatcher,
    budget: SpinBudget,
    /// Number of messages read from the ring.
    taken: u64,
    /// Head and number of completed messages as last stored for the guest.
    published: (u64, u64),
    meter: InFlightMeter,
    /// Whether the gate has admitted the messages that precede the next call of `ask`.
    admitted: bool,
    /// Whether the session was restored and has not called `ask` since.
    unasked: bool,
    /// State that the thread last reported to the gate, with the gate's number of calls at that time.
    told: (ThreadState, u32),
}

impl SessionThread {
    pub(crate) fn new(
        device: Arc<str>,
        channel: Arc<Channel>,
        host: SessionHost,
        gate: Arc<Gate>,
        ended: Arc<EndedSessions>,
        pauses: Arc<Pauses>,
        dispatcher: Dispatcher,
    ) -> Self {
        let ring = Ring::new(host.area());
        Self {
            device,
            channel,
            host,
            gate,
            ended,
            pauses,
            ring,
            kept: None,
            dispatcher,
            budget: SpinBudget::new(cpus()),
            taken: 0,
            published: (0, 0),
            meter: InFlightMeter::new(),
            admitted: false,
            unasked: false,
            told: (ThreadState::Rest, 0),
        }
    }

    /// Runs the session until it ends, then frees everything that it held. This is the body of the session's
    /// thread.
    pub(crate) fn run_session(mut self, executor: &dyn Executor) {
        self.host.served_here();
        let session = self.host.session();
        self.gate.enter(session, thread::current(), self.unasked);
        let gate = Arc::clone(&self.gate);
        self.host.on_settled(Box::new(move |number| gate.settled(session, number)));
        // A panic is a bug of this program, not of the guest. It ends the session, not the device.
        let end =
            catch_unwind(AssertUnwindSafe(|| self.serve())).unwrap_or_else(|payload| SessionEnd::Failed {
                number: self.dispatcher.number(),
                error: SessionError::Lost(format!("panic: {}", panic_message(&*payload))),
            });
        let Self { device, channel, host, gate, ended, pauses, dispatcher, taken, published, .. } = self;
        gate.withdraw(session);
        host.end();
        let done = host.remote().map_or(published.1, |remote| remote.done());
        host.counters().set(taken, done);
        let newest = (dispatcher.number(), dispatcher.kind().map_or("none", vgpu_wire::Kind::name));
        let process = host.process();
        // Everything is freed before the guest can see that its session is over.
        if catch_unwind(AssertUnwindSafe(|| drop(dispatcher))).is_err() {
            tracing::error!(%device, channel = host.channel(), session, "the executor panicked when its session ended");
        }
        gate.leave(session);
        ended.add(&host);
        host.gauges().clear();
        host.memory_changed();
        if let SessionEnd::Failed { number, error } = end {
            let why = match &error {
                SessionError::Violation(_) => Refusal::Violation,
                SessionError::Lost(_) | SessionError::OutOfMemory(_) | SessionError::Paused => {
                    Refusal::Executor
                }
            };
            // An invalid ring is found before there is a message.
            let kind = if number == newest.0 { newest.1 } else { "none" };
            let text = error.to_string();
            host.charges().log_end(text.len(), || {
                tracing::warn!(%device, channel = host.channel(), session, process, number, kind, "session ended: {text}");
            });
            host.end_with(CUDA_ERROR_UNKNOWN, number);
            if channel.fail(why) {
                ended.count_loss(&error);
            }
        }
        let session = EndedSession { device, channel, host, pauses };
        session.wait_for_detach();
        session.close(executor);
    }

    fn serve(&mut self) -> SessionEnd {
        let awake = Awake::start();
        let mut awake = Some(awake);
        if let Err(end) = self.continue_saved() {
            return end;
        }
        loop {
            let tail = match self.ring.tail(self.host.window()) {
                Ok(tail) => tail,
                Err(violation) => return self.failed_in_ring(violation.into()),
            };
            if tail != self.ring.head() {
                match self.drain(tail) {
                    Ok(()) => {}
                    Err(end) => return end,
                }
            }
            self.publish();
            // Everything that a guest may sleep for has been stored by now.
            self.host.wake();
            if let Err(error) = self.rest() {
                return self.failed(error);
            }
            if self.host.interrupted() || !self.wait(&mut awake) {
                return self.interrupted();
            }
        }
    }

    /// Returns the reason to end the session that another thread has set.
    fn interrupted(&self) -> SessionEnd {
        let newest = self.dispatcher.number();
        if self.host.stopping() {
            return SessionEnd::Stopped;
        }
        match self.host.take_loss() {
            Some(SessionLoss::Violation { number, text }) => {
                SessionEnd::Failed { number, error: Violation::InWorker(text).into() }
            }
            Some(SessionLoss::Executor { number, text }) => {
                SessionEnd::Failed { number: number.unwrap_or(newest), error: SessionError::Lost(text) }
            }
            None => SessionEnd::Stopped,
        }
    }

    /// Returns why the session ends after its executor failed with `error`. If the executor was lost, a
    /// detach or a cause that another thread has reported takes precedence.
    fn failed(&self, error: SessionError) -> SessionEnd {
        match self.interrupted() {
            SessionEnd::Stopped if !self.host.stopping() => {
                SessionEnd::Failed { number: self.dispatcher.number(), error }
            }
            end if matches!(error, SessionError::Lost(_)) => end,
            _ => SessionEnd::Failed { number: self.dispatcher.number(), error },
        }
    }

    fn failed_in_ring(&self, error: SessionError) -> SessionEnd {
        SessionEnd::Failed { number: self.dispatcher.number() + 1, error }
    }

    /// Carries out all messages before `tail`.
    fn drain(&mut self, tail: u64) -> Result<(), SessionEnd> {
        let batch = self.dispatcher.batch().clamp(1, BATCH_MOST);
        let mut until_publish = 1;
        loop {
            let next = self.ring.next(self.host.window(), tail);
            let Some(message) = next.map_err(|violation| self.failed_in_ring(violation.into()))? else {
                return Ok(());
            };
            self.taken += 1;
            until_publish -= 1;
            if until_publish == 0 {
                until_publish = batch;
                self.publish();
            }
            self.carry_out(message)?;
        }
    }

    /// Carries out the message at a range of the ring's private memory.
    #[inline]
    fn carry_out(&mut self, message: Range<usize>) -> Result<(), SessionEnd> {
        if !self.gate.is_open() {
            self.pass_gate(&message).map_err(|error| self.failed(error))?;
        }
        if self.host.interrupted() {
            return Err(self.interrupted());
        }
        let carried = self.dispatcher.dispatch(self.ring.bytes(message));
        carried.or_else(|error| self.finish(error))
    }

    /// Finishes the newest message, whose execution returned `error`. If a pause interrupted it, waits until
    /// the pause has ended and carries it out then. Any other error ends the session.
    #[cold]
    fn finish(&mut self, mut error: SessionError) -> Result<(), SessionEnd> {
        while matches!(error, SessionError::Paused) {
            self.wait_while_paused(None).map_err(|error| self.failed(error))?;
            if self.host.interrupted() {
                return Err(self.interrupted());
            }
            let Err(next) = self.dispatcher.dispatch_pending() else { return Ok(()) };
            error = next;
        }
        Err(self.failed(error))
    }

    /// Carries out the messages that a restored session had taken from its ring and not carried out.
    fn continue_saved(&mut self) -> Result<(), SessionEnd> {
        let resumed = self.dispatcher.resume().and_then(|()| self.dispatcher.dispatch_pending());
        resumed.or_else(|error| self.finish(error))?;
        self.kept.take().map_or(Ok(()), |message| self.carry_out(message))
    }

    /// Stores for the guest how far the ring is read and how many messages are carried out.
    fn publish(&mut self) {
        let (head, before) = (self.ring.head(), self.published);
        let progress = self.dispatcher.progress();
        let done = match progress {
            Progress::Upto(number) => number,
            Progress::ByItself => before.1,
        };
        if before == (head, done) {
            return;
        }
        let returns = self.host.returns();
        returns.u64_at(area::RETURN_HEAD).store(head, Ordering::Release);
        if progress != Progress::ByItself {
            returns.u64_at(area::RETURN_DONE).store(done, Ordering::Release);
        }
        self.published = (head, done);
        self.host.memory_changed();
        self.host.counters().set(self.taken, done);
        // Only a guest that found the ring more than half full can be waiting for space.
        if head - before.0 > area::RING_BYTES / 2 - area::MESSAGE_MAX {
            self.host.wake();
        }
    }

    /// Waits until the gate lets the next message pass, or the session is to end. `message` is the range of
    /// that message in the ring's private memory.
    fn pass_gate(&mut self, message: &Range<usize>) -> Result<(), SessionError> {
        while !self.host.interrupted() {
            if self.gate.is_paused() {
                self.wait_while_paused(Some(message))?;
                continue;
            }
            let (at, limit) = if self.gate.held() {
                // A session that an operator holds asks for none of the GPU's time.
                (ThreadState::Rest, None)
            } else {
                match self.gate.passage() {
                    GateMode::Open => return Ok(()),
                    GateMode::Shut => (ThreadState::Gate, None),
                    GateMode::Metered => {
                        self.tell(ThreadState::Inside);
                        let (settled, at) = self.host.settled();
                        match self.meter.judge(self.dispatcher.number(), settled, at) {
                            Throttle::Pass => {
                                let (session, expected) = (self.host.session(), self.meter.expected());
                                self.admitted = self.admitted || self.gate.admit(session, expected);
                                if self.admitted {
                                    return Ok(());
                                }
                                // If no work completes, nothing wakes this thread.
                                (ThreadState::Inside, Some(STALL))
                            }
                            Throttle::Ask => {
                                self.ask()?;
                                continue;
                            }
                            Throttle::Wait => {
                                self.gate.withdraw(self.host.session());
                                (ThreadState::Inside, None)
                            }
                        }
                    }
                }
            };
            self.publish();
            if at != ThreadState::Inside {
                self.ask()?;
                self.tell(at);
            }
            limit.map_or_else(thread::park, thread::park_timeout);
        }
        Ok(())
    }

    /// Reports to the gate that the ring is empty, after waiting for the end of a pause.
    fn rest(&mut self) -> Result<(), SessionError> {
        loop {
            // Read in this order, because a call to the gate changes them in the other.
            let calls = self.gate.calls();
            if self.gate.is_open() {
                self.told = (ThreadState::Rest, calls);
                return Ok(());
            }
            if !self.gate.is_paused() {
                self.ask()?;
                self.tell(ThreadState::Rest);
                // A call that came before this thread reported its state counts as seen.
                if !self.gate.is_paused() {
                    return Ok(());
                }
            }
            self.wait_while_paused(None)?;
            if self.host.interrupted() {
                return Ok(());
            }
        }
    }

    /// Asks the executor to report when all work so far is complete, unless it was asked since the newest
    /// message.
    fn ask(&mut self) -> Result<(), SessionError> {
        let number = self.dispatcher.number();
        if number != self.meter.asked() || std::mem::take(&mut self.unasked) {
            self.meter.ask(number, self.host.now());
            self.admitted = false;
            self.gate.asks(self.host.session(), number);
            self.dispatcher.settle()?;
        }
        Ok(())
    }

    /// Reports this thread's state to the gate, unless the gate has it and has made no call since.
    fn tell(&mut self, at: ThreadState) {
        let told = (at, self.gate.calls());
        if self.told != told {
            self.told = told;
            self.gate.moves(self.host.session(), at);
        }
    }

    /// Waits for messages in the ring. Returns false if the session is to end.
    fn wait(&mut self, awake: &mut Option<Awake>) -> bool {
        let Self { budget, host, ring, gate, told, .. } = self;
        let look = || {
            if ring.has_news(host.window()) || gate.calls() != told.1 {
                WaitEvent::News
            } else if host.interrupted() {
                WaitEvent::End
            } else {
                WaitEvent::Nothing
            }
        };
        let seen = budget.wait(Awake::count, look, |limit| {
            *awake = None;
            let seen = sleep(host, limit, look);
            *awake = Some(Awake::start());
            seen
        });
        seen == WaitEvent::News
    }
}

/// Sleeps until a doorbell arrives, but at most for `limit`. The flag is set before the last poll, so that a
/// guest that publishes after that poll sees the flag and writes the doorbell.
fn sleep(host: &SessionHost, limit: Option<Duration>, look: impl Fn() -> WaitEvent) -> WaitEvent {
    let end = limit.map(|limit| Instant::now() + limit);
    let flag = host.returns().u32_at(area::RETURN_HOST_SLEEPS);
    flag.store(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let mut slept = false;
    let seen = loop {
        let seen = look();
        if seen != WaitEvent::Nothing {
            break seen;
        }
        match end.map(|end| end.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => break seen,
            Some(left) => thread::park_timeout(left),
        }
        slept = true;
    };
    flag.store(0, Ordering::SeqCst);
    if slept {
        host.counters().host_sleeps.fetch_add(1, Ordering::Relaxed);
    }
    seen
}
