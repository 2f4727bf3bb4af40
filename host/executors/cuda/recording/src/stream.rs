//! Streams and events.

use std::time::Instant;

use vgpu_abi::driver::{EVENT_BLOCKING_SYNC, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, STREAM_NON_BLOCKING};

use crate::handle::{Handles, Kind};
use crate::rule::{Answer, Rule};
use crate::work::Lane;

/// `CU_STREAM_LEGACY`, which is what 0 means, too.
const LEGACY: usize = 1;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Its context.
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
    /// It was captured.
    Captured {
        /// Number of the capture.
        capture: u64,
    },
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Its context.
    pub context: usize,
    /// Flags that it was made with.
    pub flags: u32,
    /// Its newest record.
    pub recorded: Recorded,
    /// Nodes of the capture that its record stands for.
    pub nodes: Vec<usize>,
}

/// All streams and events.
#[derive(Debug)]
pub struct Streams {
    streams: Handles<Stream>,
    /// All events.
    pub events: Handles<Event>,
}

impl Streams {
    /// None yet.
    pub const fn new() -> Self {
        Self { streams: Handles::new(Kind::Stream), events: Handles::new(Kind::Event) }
    }

    /// `cuStreamCreateWithPriority`
    pub fn create(&mut self, context: usize, flags: u32) -> Answer<usize> {
        if flags & !STREAM_NON_BLOCKING != 0 {
            return Err(Rule::Argument.into());
        }
        Ok(self.streams.add(Stream { context, flags }))
    }

    /// `cuStreamDestroy`
    pub fn destroy(&mut self, context: usize, stream: usize) -> Answer {
        if stream <= LEGACY {
            return Err(Rule::DefaultStream.into());
        }
        self.get(context, stream)?;
        self.streams.remove(stream)?;
        Ok(())
    }

    /// A stream that was made, of the current context.
    pub fn get(&self, context: usize, stream: usize) -> Answer<&Stream> {
        let found = self.streams.get(stream)?;
        if found.context != context {
            return Err(Rule::OtherContext.into());
        }
        Ok(found)
    }

    /// The lane of a stream of the current context, a default stream or one that was made.
    pub fn lane(&self, context: usize, stream: usize) -> Answer<Lane> {
        if stream <= LEGACY {
            return Ok(Lane { context, stream: 0, blocking: true });
        }
        let blocking = self.get(context, stream)?.flags & STREAM_NON_BLOCKING == 0;
        Ok(Lane { context, stream, blocking })
    }

    /// `cuEventCreate`
    pub fn create_event(&mut self, context: usize, flags: u32) -> Answer<usize> {
        let known = EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING | EVENT_INTERPROCESS;
        let alone = flags & EVENT_INTERPROCESS != 0 && flags & EVENT_DISABLE_TIMING == 0;
        if flags & !known != 0 || alone {
            return Err(Rule::Argument.into());
        }
        Ok(self.events.add(Event { context, flags, recorded: Recorded::Never, nodes: Vec::new() }))
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

    /// Takes away what a context had.
    pub fn end_context(&mut self, context: usize) {
        self.streams.retain(|stream| stream.context != context);
        self.events.retain(|event| event.context != context);
    }
}
