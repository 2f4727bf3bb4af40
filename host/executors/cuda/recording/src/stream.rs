//! Streams and events of the recording library.

use std::time::Instant;

use vgpu_abi::driver::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, STREAM_NON_BLOCKING};

use crate::handle::{HandleKind, Handles};
use crate::rule::{CallResult, Rule};
use crate::work::StreamKey;

/// Handle of `CU_STREAM_LEGACY`, which means the same as 0.
const LEGACY: usize = 1;

/// A stream that the program created.
#[derive(Debug)]
pub struct StreamRecord {
    pub context: usize,
    /// Flags with which the stream was created.
    pub flags: u32,
}

/// State of an event's newest record.
#[derive(Clone, Copy, Debug)]
pub enum Recorded {
    /// The event was never recorded.
    Never,
    /// The record is this piece of work.
    Work {
        /// Number of the piece of work.
        number: u64,
        /// Time at which the work completed, if it has.
        at: Option<Instant>,
        /// Number of queries of the program since the work completed.
        asked: u32,
    },
}

/// An event that the program created.
#[derive(Debug)]
pub struct EventState {
    pub context: usize,
    /// Flags with which the event was created.
    pub flags: u32,
    /// State of the event's newest record.
    pub recorded: Recorded,
}

/// All streams and events of the process.
#[derive(Debug)]
pub struct Streams {
    streams: Handles<StreamRecord>,
    /// All events, by handle.
    pub events: Handles<EventState>,
}

impl Streams {
    pub const fn new() -> Self {
        Self { streams: Handles::new(HandleKind::Stream), events: Handles::new(HandleKind::Event) }
    }

    /// Carries out `cuStreamCreateWithPriority`.
    pub fn create(&mut self, context: usize, flags: u32) -> CallResult<usize> {
        if flags & !STREAM_NON_BLOCKING != 0 {
            return Err(Rule::Argument.into());
        }
        Ok(self.streams.add(StreamRecord { context, flags }))
    }

    /// Carries out `cuStreamDestroy`.
    pub fn destroy(&mut self, context: usize, stream: usize) -> CallResult {
        if stream <= LEGACY {
            return Err(Rule::DefaultStream.into());
        }
        self.get(context, stream)?;
        self.streams.remove(stream)?;
        Ok(())
    }

    /// Returns a created stream of the current context.
    pub fn get(&self, context: usize, stream: usize) -> CallResult<&StreamRecord> {
        let found = self.streams.get(stream)?;
        if found.context != context {
            return Err(Rule::OtherContext.into());
        }
        Ok(found)
    }

    /// Returns the key of a stream of the current context, which may be a default stream or a created one.
    pub fn lane(&self, context: usize, stream: usize) -> CallResult<StreamKey> {
        if stream <= LEGACY {
            return Ok(StreamKey { context, stream: 0, blocking: true });
        }
        let blocking = self.get(context, stream)?.flags & STREAM_NON_BLOCKING == 0;
        Ok(StreamKey { context, stream, blocking })
    }

    /// Carries out `cuEventCreate`.
    pub fn create_event(&mut self, context: usize, flags: u32) -> CallResult<usize> {
        let known = EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING | EVENT_INTERPROCESS;
        let alone = flags & EVENT_INTERPROCESS != 0 && flags & EVENT_DISABLE_TIMING == 0;
        if flags & !known != 0 || alone {
            return Err(Rule::Argument.into());
        }
        Ok(self.events.add(EventState { context, flags, recorded: Recorded::Never }))
    }

    /// Records the completion of an event's work, unless the event was recorded again.
    pub fn completed(&mut self, event: usize, number: u64) {
        let Ok(event) = self.events.get_mut(event) else { return };
        if let Recorded::Work { number: newest, at, .. } = &mut event.recorded
            && *newest == number
        {
            *at = Some(Instant::now());
        }
    }

    /// Removes the objects of a context.
    pub fn end_context(&mut self, context: usize) {
        self.streams.retain(|stream| stream.context != context);
        self.events.retain(|event| event.context != context);
    }
}
