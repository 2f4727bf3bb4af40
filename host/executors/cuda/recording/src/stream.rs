//! Streams and events.

use std::time::Instant;

use vgpu_abi::driver::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, STREAM_NON_BLOCKING};

use crate::handle::{HandleKind, Handles};
use crate::rule::{CallResult, Rule};
use crate::work::StreamKey;

/// `CU_STREAM_LEGACY`, which is what 0 means, too.
const LEGACY: usize = 1;

/// A stream.
#[derive(Debug)]
pub struct StreamRecord {
    pub context: usize,
    /// Flags that it was made with.
    pub flags: u32,
}

/// What is known of an event's newest record.
#[derive(Clone, Copy, Debug)]
pub enum Recorded {
    /// There is none.
    Never,
    /// It is this piece of work; complete since a moment.
    Work {
        /// Number of the work.
        number: u64,
        /// When it completed.
        at: Option<Instant>,
        /// How often the program has asked since.
        asked: u32,
    },
}

/// An event.
#[derive(Debug)]
pub struct EventState {
    pub context: usize,
    /// Flags that it was made with.
    pub flags: u32,
    /// Its newest record.
    pub recorded: Recorded,
}

/// All streams and events.
#[derive(Debug)]
pub struct Streams {
    streams: Handles<StreamRecord>,
    /// All events.
    pub events: Handles<EventState>,
}

impl Streams {
    pub const fn new() -> Self {
        Self { streams: Handles::new(HandleKind::Stream), events: Handles::new(HandleKind::Event) }
    }

    /// `cuStreamCreateWithPriority`
    pub fn create(&mut self, context: usize, flags: u32) -> CallResult<usize> {
        if flags & !STREAM_NON_BLOCKING != 0 {
            return Err(Rule::Argument.into());
        }
        Ok(self.streams.add(StreamRecord { context, flags }))
    }

    /// `cuStreamDestroy`
    pub fn destroy(&mut self, context: usize, stream: usize) -> CallResult {
        if stream <= LEGACY {
            return Err(Rule::DefaultStream.into());
        }
        self.get(context, stream)?;
        self.streams.remove(stream)?;
        Ok(())
    }

    /// A stream that was made, of the current context.
    pub fn get(&self, context: usize, stream: usize) -> CallResult<&StreamRecord> {
        let found = self.streams.get(stream)?;
        if found.context != context {
            return Err(Rule::OtherContext.into());
        }
        Ok(found)
    }

    /// The lane of a stream of the current context, a default stream or one that was made.
    pub fn lane(&self, context: usize, stream: usize) -> CallResult<StreamKey> {
        if stream <= LEGACY {
            return Ok(StreamKey { context, stream: 0, blocking: true });
        }
        let blocking = self.get(context, stream)?.flags & STREAM_NON_BLOCKING == 0;
        Ok(StreamKey { context, stream, blocking })
    }

    /// `cuEventCreate`
    pub fn create_event(&mut self, context: usize, flags: u32) -> CallResult<usize> {
        let known = EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING | EVENT_INTERPROCESS;
        let alone = flags & EVENT_INTERPROCESS != 0 && flags & EVENT_DISABLE_TIMING == 0;
        if flags & !known != 0 || alone {
            return Err(Rule::Argument.into());
        }
        Ok(self.events.add(EventState { context, flags, recorded: Recorded::Never }))
    }

    /// A piece of work is complete that was the record of an event: unless the event was recorded anew.
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
