//! Calls about streams and events. A synchronize waits here, for the executor's completion words.

use std::time::Duration;

use vgpu_wire::body::stream::{
    EventCreate, EventDestroy, EventRecord, STREAM_NON_BLOCKING, StreamCreate, StreamDestroy, StreamWait,
};
use vgpu_wire::v1::call::EVENTS_MAX;

use super::core::Mint;
use super::owner::{Owner, OwnerEvent, StreamQuery};
use super::port::{Port, QUERIES_MAX};
use super::request::{Reply, Request};
use super::status;

/// Valid flags of an event, `CU_EVENT_*`: blocking, no timing, interprocess.
const EVENT_FLAGS: u32 = 7;
const EVENT_NO_TIMING: u32 = 2;

impl Owner {
    /// Creates a stream. `priority` is 0 for calls that state none.
    pub(super) fn stream_create(&mut self, mint: &Mint, flags: u32, priority: i32) -> Result<Reply, u32> {
        if flags & !STREAM_NON_BLOCKING != 0 {
            return Err(status::INVALID_VALUE);
        }
        self.streams.room()?;
        let stream = self.mint();
        self.port.send(&StreamCreate { stream, flags, priority, reserved: 0 }, &[])?;
        let handle = mint.handle();
        self.streams.insert(handle, stream);
        Ok(Reply::results(&[handle]))
    }

    pub(super) fn stream_destroy(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let stream = self.streams.remove(request.wide(0)).ok_or(status::INVALID_HANDLE)?;
        self.queries.remove(&stream);
        let done = self.port.synchronize(stream);
        self.port.send(&StreamDestroy { stream, reserved: 0 }, &[])?;
        done.map(|()| Reply::NONE)
    }

    pub(super) fn stream_synchronize(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let stream = self.stream(request.wide(0));
        self.port.synchronize(stream)?;
        Ok(Reply::NONE)
    }

    pub(super) fn stream_query(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let stream = self.stream(request.wide(0));
        // Polling must not add work: the mark of the last query answers, unless the stream may have been
        // given work after it.
        let query = match self.queries.get(&stream).copied() {
            Some(query) if !self.port.is_done(&query.mark) || query.given == self.port.given() => query,
            known => self.query(stream, known)?,
        };
        if !self.port.is_done(&query.mark) {
            return Err(status::NOT_READY);
        }
        self.port.check_errors()?;
        Ok(Reply::NONE)
    }

    /// Submits a new query of a stream. It reuses the word of the `known` one.
    fn query(&mut self, stream: u32, known: Option<StreamQuery>) -> Result<StreamQuery, u32> {
        let used = |index: u32| self.queries.values().any(|query| query.index == index);
        let unused = || (0..QUERIES_MAX as u32).find(|&index| !used(index));
        let index = known.map(|query| query.index).or_else(unused).ok_or(status::OUT_OF_MEMORY)?;
        let mark = self.port.signal(stream, Port::query_word(index))?;
        let query = StreamQuery { index, mark, given: self.port.given() };
        self.queries.insert(stream, query);
        Ok(query)
    }

    fn event(&self, handle: u64) -> Result<OwnerEvent, u32> {
        self.events.get(handle).copied().ok_or(status::INVALID_HANDLE)
    }

    pub(super) fn stream_wait(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let (handle, event) = (request.wide(0), self.event(request.wide(2))?);
        let stream = match handle {
            0..=2 => 0,
            _ => *self.streams.get(handle).ok_or(status::INVALID_HANDLE)?,
        };
        if event.record.is_some() {
            self.port.send(&StreamWait { stream, event: event.number }, &[])?;
        }
        Ok(Reply::NONE)
    }

    pub(super) fn event_create(&mut self, mint: &Mint, flags: u32) -> Result<Reply, u32> {
        if flags & !EVENT_FLAGS != 0 {
            return Err(status::INVALID_VALUE);
        }
        self.events.room()?;
        let used = |index: u32| self.events.iter().any(|(_, event)| event.index == index);
        // There are as many words as an owner may have events.
        let index = (0..EVENTS_MAX as u32).find(|&index| !used(index)).ok_or(status::OUT_OF_MEMORY)?;
        let number = self.mint();
        self.port.send(&EventCreate { event: number, flags }, &[])?;
        let handle = mint.handle();
        self.events
            .insert(handle, OwnerEvent { number, index, timed: flags & EVENT_NO_TIMING == 0, record: None });
        Ok(Reply::results(&[handle]))
    }

    pub(super) fn event_destroy(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let event = self.events.remove(request.wide(0)).ok_or(status::INVALID_HANDLE)?;
        self.port.send(&EventDestroy { event: event.number, reserved: 0 }, &[])?;
        Ok(Reply::NONE)
    }

    pub(super) fn event_record(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let (handle, stream) = (request.wide(0), request.wide(2));
        let event = self.event(handle)?;
        let stream = match stream {
            0..=2 => 0,
            _ => *self.streams.get(stream).ok_or(status::INVALID_HANDLE)?,
        };
        let mark = self.port.mark(Port::event_word(event.index));
        self.port.send(&EventRecord { event: event.number, stream, mark }, &[])?;
        if let Some(event) = self.events.get_mut(handle) {
            event.record = Some(mark);
        }
        Ok(Reply::NONE)
    }

    pub(super) fn event_synchronize(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        if let Some(mark) = self.event(request.wide(0))?.record {
            self.port.wait_for(&mark)?;
        }
        Ok(Reply::NONE)
    }

    pub(super) fn event_query(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        if let Some(mark) = self.event(request.wide(0))?.record {
            if !self.port.is_done(&mark) {
                return Err(status::NOT_READY);
            }
            self.port.check_errors()?;
        }
        Ok(Reply::NONE)
    }

    pub(super) fn event_elapsed(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let (start, end) = (self.event(request.wide(0))?, self.event(request.wide(2))?);
        let (true, Some(from), true, Some(to)) = (start.timed, start.record, end.timed, end.record) else {
            return Err(status::INVALID_HANDLE);
        };
        if !self.port.is_done(&from) || !self.port.is_done(&to) {
            return Err(status::NOT_READY);
        }
        let (from, to) = (self.port.time(&from), self.port.time(&to));
        let milliseconds = 1e3 * Duration::from_nanos(to.abs_diff(from)).as_secs_f32();
        // The events may be in reverse order, which makes the time negative.
        let signed = if to < from { -milliseconds } else { milliseconds };
        Ok(Reply::results(&[signed.to_bits().into()]))
    }
}
