//! The worker's loop: takes frames, has the session carry messages out, and says how far it has come.

use std::sync::Arc;

use vgpu_device::{
    Budget, Charge, Home, Look, OverLimit, Refusals, Resource, Session, SessionError, SessionHost,
    SharedRange, Window, Work, cpus,
};
use vgpu_wire::{Body, Message};
use zerocopy::FromBytes;

use crate::shared::board::{Board, Sleeper};
use crate::shared::frame::{FrameKind, Granted, Refusal, RunOf};
use crate::worker::control::Control;
use crate::worker::mapped::Reservation;
use crate::worker::reader::{Frame, Reader};
use crate::worker::teller::Teller;

/// However little an executor does for a message, the guest hears of progress this often.
const BATCH_MOST: u32 = 32;

/// Why the loop ends, other than that it was told to: the number of the message, 0 for none, and what is
/// wrong.
pub(crate) struct Ending {
    pub(crate) number: u64,
    pub(crate) error: SessionError,
}

/// What a worker has.
pub(crate) struct Parts {
    pub(crate) host: SessionHost,
    pub(crate) board: Arc<Board>,
    pub(crate) teller: Arc<Teller>,
    pub(crate) control: Arc<Control>,
    pub(crate) reservation: Arc<Reservation>,
}

/// The payload of a message that came before it.
#[derive(Default)]
struct Payload {
    bytes: Vec<u8>,
    charge: Option<Charge>,
    /// It is more than the session may have: the message is refused.
    over: Option<OverLimit>,
}

/// Carries messages out.
pub(crate) struct Carrier {
    parts: Parts,
    session: Box<dyn Session>,
    refusals: Refusals,
    reader: Reader,
    payload: Payload,
    /// Number of the newest message.
    number: u64,
    /// The same as it was shown last.
    shown: u64,
    /// Messages since then.
    unshown: u32,
    budget: Budget,
}

fn lost(what: impl std::fmt::Display) -> SessionError {
    SessionError::Lost(what.to_string())
}

impl Carrier {
    pub(crate) fn new(parts: Parts, ring: Window, session: Box<dyn Session>) -> Self {
        Self {
            refusals: Refusals::new(parts.host.clone()),
            parts,
            session,
            reader: Reader::new(ring),
            payload: Payload::default(),
            number: 0,
            shown: 0,
            unshown: 0,
            budget: Budget::new(cpus()),
        }
    }

    /// The loop; it returns when it is told to stop.
    pub(crate) fn serve(&mut self) -> Result<(), Ending> {
        loop {
            let tail = self.parts.board.tail();
            while let Some(frame) = self.next(tail)? {
                if self.parts.host.stopping() {
                    return Ok(());
                }
                let number = self.number.max(frame.number);
                self.carry(&frame).map_err(|error| Ending { number, error })?;
            }
            self.show();
            // Whatever the guest may sleep for has been stored by now.
            self.parts.host.wake_guest();
            self.wait();
            if self.parts.host.stopping() {
                return Ok(());
            }
        }
    }

    fn next(&mut self, tail: u64) -> Result<Option<Frame>, Ending> {
        let number = self.number;
        self.reader.next(&self.parts.board, tail).map_err(|error| Ending { number, error: lost(error) })
    }

    fn carry(&mut self, frame: &Frame) -> Result<(), SessionError> {
        match frame.kind {
            FrameKind::Pad => Ok(()),
            FrameKind::Message => self.message(frame),
            FrameKind::Payload => {
                self.payload.add(&self.parts.host, self.reader.body(frame));
                Ok(())
            }
            FrameKind::Refuse => self.refuse(frame),
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
        }
    }

    fn message(&mut self, frame: &Frame) -> Result<(), SessionError> {
        let payload = std::mem::take(&mut self.payload);
        let bytes = self.reader.body(frame);
        let message = Message::decode(bytes).map_err(lost)?;
        let records = if payload.bytes.is_empty() { message.tail } else { &payload.bytes };
        let work = Work { number: frame.number, message, payload: records, bytes };
        let carried = match payload.over {
            Some(over) => Err(over.into()),
            None => self.session.execute(&work),
        };
        if let Body::StreamRelease(body) = &work.message.body {
            self.parts.host.releases().forget(body.hold);
        }
        if let Err(error) = carried {
            let (code, why) = self.refusals.judge(&work, error)?;
            self.refusals.refuse(&work, code, &why);
        }
        self.count(frame.number);
        Ok(())
    }

    fn refuse(&mut self, frame: &Frame) -> Result<(), SessionError> {
        let bad = || lost("a refusal that makes no sense");
        let (refusal, rest) = Refusal::read_from_prefix(self.reader.body(frame)).map_err(|_| bad())?;
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
            self.show();
        }
    }

    /// Says how far it has come, to the guest and to the device's process.
    fn show(&mut self) {
        self.unshown = 0;
        self.parts.teller.show(None);
        if self.shown != self.number {
            self.shown = self.number;
            // In this order: who sees that the worker has nothing to do may tell the guest of later messages.
            self.parts.host.store_done(self.number);
            self.parts.board.set_executed(self.number);
        }
        self.reader.release(&self.parts.board);
        self.parts.board.wake(Sleeper::Device);
    }

    fn grant(&mut self, frame: &Frame) -> Result<(), SessionError> {
        let body = self.reader.body(frame);
        let (granted, rest) = Granted::read_from_prefix(body).map_err(|_| lost("a grant of nothing"))?;
        let Parts { host, control, reservation, .. } = &self.parts;
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
                for run in rest.chunks(size_of::<RunOf>()) {
                    let run = RunOf::read_from_bytes(run).map_err(|_| lost("a run of no pages"))?;
                    let file = control.file(run.file).ok_or_else(|| lost("no file of guest pages"))?;
                    runs.push(Window::of_part(file, run.offset, run.bytes).map_err(lost)?);
                    newest = newest.max(run.file);
                }
                control.forget_files(newest + 1);
                host.grant_pages(segment, runs);
            }
        }
        Ok(())
    }

    fn retire(&mut self, frame: &Frame) -> Result<(), SessionError> {
        let body = self.reader.body(frame);
        let granted = Granted::read_from_bytes(body).map_err(|_| lost("nothing is given back"))?;
        let Parts { host, teller, .. } = &self.parts;
        let home = Arc::clone(teller) as Arc<dyn Home>;
        let retired = host.retire_elsewhere(SharedRange::from(granted), frame.number, home);
        self.session.retire(retired.ok_or_else(|| lost("memory is given back that was not given"))?);
        Ok(())
    }

    /// Waits for news in the ring, or the order to stop.
    fn wait(&mut self) {
        let Self { parts: Parts { host, board, .. }, reader, budget, .. } = self;
        let look = || {
            if reader.has_news(board) {
                Look::News
            } else if host.stopping() {
                Look::End
            } else {
                Look::Nothing
            }
        };
        // This thread, and those of the device's process that compete with it.
        budget.wait(
            || board.awake() + 1,
            look,
            |limit| {
                board.sleep(Sleeper::Worker, limit, || look() != Look::Nothing);
                look()
            },
        );
    }
}

impl Payload {
    /// Adds a piece, unless the session has too much.
    fn add(&mut self, host: &SessionHost, piece: &[u8]) {
        let more = piece.len() as u64;
        let charged = match &mut self.charge {
            Some(charge) => charge.grow(more),
            None => host.charges().take(Resource::HostBytes, more).map(|charge| self.charge = Some(charge)),
        };
        match charged {
            Ok(()) if self.over.is_none() => self.bytes.extend_from_slice(piece),
            Ok(()) => {}
            Err(over) => self.over = Some(over),
        }
    }
}
