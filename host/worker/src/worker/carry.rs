//! The worker's loop: it reads frames from the ring, passes messages to the session, and publishes its
//! progress.

use std::sync::Arc;

use vgpu_device::{
    Charge, DeviceProcess, OverLimit, Refusals, Resource, Session, SessionError, SessionHost, SharedRange,
    SpinBudget, WaitEvent, Window, Work, cpus,
};
use vgpu_wire::Message;
use zerocopy::FromBytes;

use crate::shared::frame::{FileRun, FrameKind, GrantRecord, RefusalRecord};
use crate::shared::status_page::{Sleeper, StatusPage};
use crate::worker::control::ControlChannel;
use crate::worker::reporter::Reporter;
use crate::worker::ring_reader::{RingFrame, RingReader};
use crate::worker::window_mapping::Reservation;

/// Largest number of messages between two reports of progress to the guest, whatever the executor requests.
const BATCH_MOST: u32 = 32;

/// Unexpected end of the loop: the number of the message, or 0, and the error.
pub(crate) struct SessionEnd {
    pub(crate) number: u64,
    pub(crate) error: SessionError,
}

/// State that the loop shares with the other parts of a worker.
pub(crate) struct MessageLoopParts {
    pub(crate) host: SessionHost,
    pub(crate) page: Arc<StatusPage>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) control: Arc<ControlChannel>,
    pub(crate) reservation: Arc<Reservation>,
}

/// Payload that arrived before its message.
#[derive(Default)]
struct EarlyPayload {
    bytes: Vec<u8>,
    charge: Option<Charge>,
    /// Limit that the payload exceeds, if it does. Its message is refused then.
    over: Option<OverLimit>,
}

/// Carries out the messages of the ring.
pub(crate) struct MessageLoop {
    parts: MessageLoopParts,
    session: Box<dyn Session>,
    refusals: Refusals,
    reader: RingReader,
    payload: EarlyPayload,
    /// Number of the newest message.
    number: u64,
    /// Number of the newest message whose completion was published.
    shown: u64,
    /// Number of messages since the last publication.
    unshown: u32,
    budget: SpinBudget,
}

fn lost(what: impl std::fmt::Display) -> SessionError {
    SessionError::Lost(what.to_string())
}

impl MessageLoop {
    pub(crate) fn new(parts: MessageLoopParts, ring: Window, session: Box<dyn Session>) -> Self {
        Self {
            refusals: Refusals::new(parts.host.clone()),
            parts,
            session,
            reader: RingReader::new(ring),
            payload: EarlyPayload::default(),
            number: 0,
            shown: 0,
            unshown: 0,
            budget: SpinBudget::new(cpus()),
        }
    }

    /// Runs the loop. It returns when the worker is told to stop.
    pub(crate) fn serve(&mut self) -> Result<(), SessionEnd> {
        loop {
            let tail = self.parts.page.tail();
            while let Some(frame) = self.next(tail)? {
                if self.parts.host.stopping() {
                    return Ok(());
                }
                let number = self.number.max(frame.number);
                self.handle_frame(&frame).map_err(|error| SessionEnd { number, error })?;
            }
            self.publish_progress();
            // Everything that the guest may sleep for has been stored by now.
            self.parts.host.wake_guest();
            self.wait();
            if self.parts.host.stopping() {
                return Ok(());
            }
        }
    }

    fn next(&mut self, tail: u64) -> Result<Option<RingFrame>, SessionEnd> {
        let number = self.number;
        self.reader.next(&self.parts.page, tail).map_err(|error| SessionEnd { number, error: lost(error) })
    }

    fn handle_frame(&mut self, frame: &RingFrame) -> Result<(), SessionError> {
        match frame.kind {
            FrameKind::Pad => Ok(()),
            FrameKind::Message => self.execute_message(frame),
            FrameKind::Payload => {
                self.payload.add(&self.parts.host, self.reader.body(frame));
                Ok(())
            }
            FrameKind::Refuse => self.answer_refusal(frame),
            FrameKind::Join => {
                let stream =
                    u32::read_from_bytes(self.reader.body(frame)).map_err(|_| lost("a join of no stream"))?;
                let joined = self.session.join(stream);
                joined.or_else(|error| self.refusals.excuse_join(frame.number, error))
            }
            FrameKind::Through => {
                self.number = frame.number;
                Ok(())
            }
            FrameKind::Grant => self.grant(frame),
            FrameKind::Retire => self.retire(frame),
            FrameKind::Settle => {
                if self.session.settle(frame.number)? {
                    self.parts.host.report_complete(frame.number);
                }
                Ok(())
            }
        }
    }

    fn execute_message(&mut self, frame: &RingFrame) -> Result<(), SessionError> {
        let payload = std::mem::take(&mut self.payload);
        let bytes = self.reader.body(frame);
        let message = Message::decode(bytes).map_err(lost)?;
        let records = if payload.bytes.is_empty() { message.tail } else { &payload.bytes };
        let work = Work { number: frame.number, message, payload: records, bytes };
        let carried = match payload.over {
            Some(over) => Err(over.into()),
            None => self.session.execute(&work),
        };
        if let Err(error) = carried {
            let (code, why) = self.refusals.judge(&work, error)?;
            self.refusals.refuse(&work, code, &why);
        }
        self.count(frame.number);
        Ok(())
    }

    fn answer_refusal(&mut self, frame: &RingFrame) -> Result<(), SessionError> {
        let bad = || lost("a refusal that makes no sense");
        let (refusal, rest) = RefusalRecord::read_from_prefix(self.reader.body(frame)).map_err(|_| bad())?;
        let (why, bytes) = rest.split_at_checked(refusal.reason as usize).ok_or_else(bad)?;
        let message = Message::decode(bytes).map_err(lost)?;
        let work = Work { number: frame.number, message, payload: message.tail, bytes };
        self.refusals.refuse(&work, refusal.code, std::str::from_utf8(why).map_err(|_| bad())?);
        self.count(frame.number);
        Ok(())
    }

    fn count(&mut self, number: u64) {
        self.number = number;
        self.unshown += 1;
        if self.unshown >= self.session.batch().clamp(1, BATCH_MOST) {
            self.publish_progress();
        }
    }

    /// Publishes the progress to the guest and to the device's process.
    fn publish_progress(&mut self) {
        self.unshown = 0;
        self.parts.reporter.publish(None);
        if self.shown != self.number {
            self.shown = self.number;
            // In this order, because a process that sees the worker idle may report later messages to the
            // guest.
            self.parts.host.store_done(self.number);
            self.parts.page.set_executed(self.number);
        }
        self.reader.release(&self.parts.page);
        self.parts.page.wake(Sleeper::Device);
    }

    fn grant(&mut self, frame: &RingFrame) -> Result<(), SessionError> {
        let body = self.reader.body(frame);
        let (granted, rest) = GrantRecord::read_from_prefix(body).map_err(|_| lost("a grant of nothing"))?;
        let MessageLoopParts { host, control, reservation, .. } = &self.parts;
        match SharedRange::from(granted) {
            SharedRange::Window { offset, bytes } => {
                reservation
                    .map(offset, bytes)
                    .map_err(|error| lost(format_args!("map window memory: {error}")))?;
                host.grant_window(offset, bytes);
            }
            SharedRange::Pages { segment } => {
                let mut runs = Vec::new();
                let mut newest = 0;
                for run in rest.chunks(size_of::<FileRun>()) {
                    let run = FileRun::read_from_bytes(run).map_err(|_| lost("a run of no pages"))?;
                    let file = control.file(run.file).ok_or_else(|| lost("no file of guest pages"))?;
                    runs.push(Window::from_file_range(file, run.offset, run.bytes).map_err(lost)?);
                    newest = newest.max(run.file);
                }
                control.forget_files(newest + 1);
                host.grant_pages(segment, runs);
            }
        }
        Ok(())
    }

    fn retire(&mut self, frame: &RingFrame) -> Result<(), SessionError> {
        let body = self.reader.body(frame);
        let granted = GrantRecord::read_from_bytes(body).map_err(|_| lost("nothing is given back"))?;
        let MessageLoopParts { host, reporter, .. } = &self.parts;
        let home = Arc::clone(reporter) as Arc<dyn DeviceProcess>;
        let retired = host.retire_in_worker(SharedRange::from(granted), frame.number, home);
        self.session.retire(retired.ok_or_else(|| lost("memory is given back that was not given"))?);
        Ok(())
    }

    /// Waits for frames in the ring, or for the order to stop.
    fn wait(&mut self) {
        let Self { parts: MessageLoopParts { host, page, .. }, reader, budget, .. } = self;
        let look = || {
            if reader.has_news(page) {
                WaitEvent::News
            } else if host.stopping() {
                WaitEvent::End
            } else {
                WaitEvent::Nothing
            }
        };
        // This thread, and the threads of the device's process that compete with it.
        budget.wait(
            || page.awake() + 1,
            look,
            |limit| {
                page.sleep(Sleeper::Worker, limit, || look() != WaitEvent::Nothing);
                look()
            },
        );
    }
}

impl EarlyPayload {
    /// Adds a part of the payload, unless the session exceeds its limit.
    fn add(&mut self, host: &SessionHost, piece: &[u8]) {
        let more = piece.len() as u64;
        let charged = match &mut self.charge {
            Some(charge) => charge.grow(more),
            None => host.charges().charge(Resource::HostBytes, more).map(|charge| self.charge = Some(charge)),
        };
        match charged {
            Ok(()) if self.over.is_none() => self.bytes.extend_from_slice(piece),
            Ok(()) => {}
            Err(over) => self.over = Some(over),
        }
    }
}
