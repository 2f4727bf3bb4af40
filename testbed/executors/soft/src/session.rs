//! A session of the soft executor: its handles, its memory, and what each message does.
//!
//! Handles that the guest mints are the contract's: an unknown one is a violation. Addresses are the
//! program's: a wrong one is a CUDA error. After a sticky error nothing is carried out any more; marks are
//! still stored and questions answered with that error, so that nobody waits in vain.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_device::{LateError, Session, SessionError, SessionHost, Violation, Work};
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut};
use vgpu_wire::body::memory::{Address, MEM_MANAGED, MemInfoReply};
use vgpu_wire::{Body, JOIN_ALL, SEGMENT_INLINE};
use zerocopy::IntoBytes;

use crate::copy::{CopyError, copy, copy_rows, fill};
use crate::memory::{Allocations, DeviceMemory};

/// `CUresult` values, by their names without `CUDA_ERROR_`.
mod status {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const INVALID_VALUE: u32 = 1;
    pub(super) const OUT_OF_MEMORY: u32 = 2;
    pub(super) const ILLEGAL_ADDRESS: u32 = 700;
    pub(super) const NOT_SUPPORTED: u32 = 801;
}

/// One guest process.
#[derive(Debug)]
pub(crate) struct SoftSession {
    host: SessionHost,
    memory: Allocations,
    streams: HashSet<u32>,
    events: HashSet<u32>,
    /// The sticky error, once there is one.
    dead: Option<u32>,
}

impl SoftSession {
    pub(crate) fn new(host: SessionHost, memory: Arc<DeviceMemory>) -> Self {
        Self {
            host,
            memory: Allocations::new(memory),
            streams: HashSet::new(),
            events: HashSet::new(),
            dead: None,
        }
    }

    fn answer(&self, work: &Work<'_>, status: u32, data: &[u8]) {
        if let Some(to) = work.reply_to() {
            self.host.reply(to, status, data);
        }
    }

    fn fail(&mut self, work: &Work<'_>, code: u32, sticky: bool) {
        if sticky {
            self.dead.get_or_insert(code);
        }
        self.host.fail(LateError { code, sticky, message: work.number });
    }

    /// What a copy or fill came to.
    fn finish(&mut self, work: &Work<'_>, outcome: Result<(), CopyError>) {
        match outcome {
            Ok(()) => {}
            Err(CopyError::Illegal(_)) => self.fail(work, status::ILLEGAL_ADDRESS, true),
            Err(CopyError::Shape) => self.fail(work, status::INVALID_VALUE, false),
        }
    }

    fn known_stream(&self, stream: u32) -> Result<(), Violation> {
        if stream == 0 || self.streams.contains(&stream) {
            Ok(())
        } else {
            Err(Violation::unknown("stream", stream))
        }
    }

    fn known_event(&self, event: u32) -> Result<(), Violation> {
        if self.events.contains(&event) { Ok(()) } else { Err(Violation::unknown("event", event)) }
    }

    fn allocate(&mut self, work: &Work<'_>, bytes: u64, managed: bool) {
        if let Some(code) = self.dead {
            return self.answer(work, code, &[]);
        }
        if managed {
            return self.answer(work, status::NOT_SUPPORTED, &[]);
        }
        if bytes == 0 {
            return self.answer(work, status::INVALID_VALUE, &[]);
        }
        match self.memory.allocate(bytes) {
            Ok(address) => {
                // The report first: who has the address finds it in the status.
                self.report();
                self.answer(work, status::SUCCESS, Address { address }.as_bytes());
            }
            Err(_) => self.answer(work, status::OUT_OF_MEMORY, &[]),
        }
    }

    fn free(&mut self, work: &Work<'_>, address: u64) {
        if !self.memory.free(address) && address != 0 {
            self.fail(work, status::INVALID_VALUE, false);
        }
        self.report();
    }

    fn copy_in(&self, work: &Work<'_>, body: &CopyIn) -> Result<(), CopyOutcome> {
        if body.source.bytes == 0 {
            return Ok(());
        }
        let destination = self.memory.slice(body.destination, body.source.bytes).map_err(CopyError::from)?;
        if body.source.segment == SEGMENT_INLINE {
            destination.copy_from(work.payload);
        } else {
            let piece = self.host.piece(&body.source)?;
            copy(&self.host.slice(&piece), &destination, || self.host.stopping());
        }
        Ok(())
    }

    fn copy_out(&self, body: &CopyOut) -> Result<(), CopyOutcome> {
        let piece = self.host.piece(&body.destination)?;
        if piece.bytes() > 0 {
            let source = self.memory.slice(body.source, piece.bytes()).map_err(CopyError::from)?;
            copy(&source, &self.host.slice(&piece), || self.host.stopping());
        }
        Ok(())
    }

    fn copy_device(&self, body: &CopyDevice) -> Result<(), CopyError> {
        if body.bytes > 0 {
            let source = self.memory.slice(body.source, body.bytes)?;
            copy(&source, &self.memory.slice(body.destination, body.bytes)?, || self.host.stopping());
        }
        Ok(())
    }

    /// Runs `work` unless the session has a sticky error.
    fn unless_dead<T>(&self, act: impl FnOnce(&Self) -> Result<(), T>) -> Result<(), T> {
        if self.dead.is_some() { Ok(()) } else { act(self) }
    }

    /// Splits what a copy with a span came to: a violation ends the session, an error is the program's.
    fn finish_span(&mut self, work: &Work<'_>, outcome: Result<(), CopyOutcome>) -> Result<(), Violation> {
        match outcome {
            Err(CopyOutcome::Violation(violation)) => Err(violation),
            Err(CopyOutcome::Error(error)) => {
                self.finish(work, Err(error));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn report(&self) {
        let gauges = self.host.gauges();
        gauges.allocated.store(self.memory.charged(), Ordering::Relaxed);
        gauges.allocations.store(self.memory.count(), Ordering::Relaxed);
        gauges.streams.store(self.streams.len() as u32, Ordering::Relaxed);
        gauges.events.store(self.events.len() as u32, Ordering::Relaxed);
    }

    fn handles(&mut self, body: &Body) -> Result<(), Violation> {
        match body {
            Body::StreamCreate(body) if !self.streams.insert(body.stream) => {
                return Err(Violation::in_use("stream", body.stream));
            }
            Body::StreamDestroy(body) if !self.streams.remove(&body.stream) => {
                return Err(Violation::unknown("stream", body.stream));
            }
            Body::EventCreate(body) if !self.events.insert(body.event) => {
                return Err(Violation::in_use("event", body.event));
            }
            Body::EventDestroy(body) if !self.events.remove(&body.event) => {
                return Err(Violation::unknown("event", body.event));
            }
            _ => {}
        }
        self.report();
        Ok(())
    }
}

/// What can go wrong with a copy from or to the window.
enum CopyOutcome {
    Violation(Violation),
    Error(CopyError),
}

impl From<Violation> for CopyOutcome {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<CopyError> for CopyOutcome {
    fn from(error: CopyError) -> Self {
        Self::Error(error)
    }
}

impl Session for SoftSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::MemAlloc(body) => self.allocate(work, body.bytes, body.flags & MEM_MANAGED != 0),
            Body::MemAllocAsync(body) => {
                self.known_stream(body.stream)?;
                self.allocate(work, body.bytes, false);
            }
            Body::MemFree(body) => self.free(work, body.address),
            Body::MemFreeAsync(body) => {
                self.known_stream(body.stream)?;
                self.free(work, body.address);
            }
            Body::MemInfo(_) => {
                let (free, total) = self.memory.info();
                let status = self.dead.unwrap_or(status::SUCCESS);
                self.answer(work, status, MemInfoReply { free, total }.as_bytes());
            }
            Body::CopyIn(body) => {
                self.known_stream(body.stream)?;
                let outcome = self.unless_dead(|session| session.copy_in(work, body));
                self.finish_span(work, outcome)?;
                self.host.signal(&body.read);
            }
            Body::CopyOut(body) => {
                self.known_stream(body.stream)?;
                let outcome = self.unless_dead(|session| session.copy_out(body));
                self.finish_span(work, outcome)?;
                self.host.signal(&body.written);
            }
            Body::CopyDevice(body) => {
                self.known_stream(body.stream)?;
                let outcome = self.unless_dead(|session| session.copy_device(body));
                self.finish(work, outcome);
            }
            Body::CopyRows(body) => {
                self.known_stream(body.stream)?;
                let stop = || self.host.stopping();
                let outcome = self.unless_dead(|session| copy_rows(&session.memory, body, stop));
                self.finish(work, outcome);
            }
            Body::Fill(body) => {
                self.known_stream(body.stream)?;
                let stop = || self.host.stopping();
                let outcome = self.unless_dead(|session| fill(&session.memory, body, stop));
                self.finish(work, outcome);
            }
            Body::StreamCreate(_) | Body::StreamDestroy(_) | Body::EventCreate(_) | Body::EventDestroy(_) => {
                self.handles(&work.message.body)?;
            }
            Body::Signal(body) => {
                if body.stream != JOIN_ALL {
                    self.known_stream(body.stream)?;
                }
                self.host.signal(&body.mark);
            }
            Body::EventRecord(body) => {
                self.known_stream(body.stream)?;
                self.known_event(body.event)?;
                self.host.signal(&body.mark);
            }
            Body::StreamWait(body) => {
                self.known_stream(body.stream)?;
                self.known_event(body.event)?;
            }
            // No abilities: what needs them is refused, at once where there is an answer.
            body => {
                let code = self.dead.unwrap_or(status::NOT_SUPPORTED);
                if body.reply().is_some() {
                    self.answer(work, code, &[]);
                } else if self.dead.is_none() {
                    self.fail(work, code, false);
                }
            }
        }
        Ok(())
    }

    /// Work is done in the order of the ring: what a join asks for is so already.
    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        if stream != JOIN_ALL {
            self.known_stream(stream)?;
        }
        Ok(())
    }
}
