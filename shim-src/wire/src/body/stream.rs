//! Streams and events.

use crate::span::Mark;

wire_struct! {
    /// `cuStreamCreateWithPriority`, under a minted number that is not 0.
    pub struct StreamCreate = 16 {
        /// Minted number.
        pub stream: u32 = 0,
        /// [`STREAM_NON_BLOCKING`] or 0.
        pub flags: u32 = 4,
        /// Priority; lower is more urgent.
        pub priority: i32 = 8,
        /// Zero.
        pub reserved: u32 = 12,
    }
}

/// [`StreamCreate::flags`]: does not wait for, nor is waited for by, stream 0.
pub const STREAM_NON_BLOCKING: u32 = 1;

wire_struct! {
    /// `cuStreamDestroy`: its work is finished first; nobody waits.
    pub struct StreamDestroy = 8 {
        /// The stream.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// Stores the mark when all earlier work of the stream is done; [`crate::JOIN_ALL`] names all
    /// streams. What `cuStreamSynchronize` waits for.
    pub struct Signal = 24 {
        /// The stream.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Stored then.
        pub mark: Mark = 8,
    }
}

wire_struct! {
    /// One more join, where the next message's header has no room for it.
    pub struct Join = 8 {
        /// The stream to be joined; [`crate::JOIN_ALL`]: all.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuEventCreate`. An event's completion is the mark of its newest record.
    pub struct EventCreate = 8 {
        /// Minted number.
        pub event: u32 = 0,
        /// `CUevent_flags`; 2: no timing.
        pub flags: u32 = 4,
    }
}

wire_struct! {
    /// `cuEventDestroy`.
    pub struct EventDestroy = 8 {
        /// The event.
        pub event: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuEventRecord`: stores the mark, with the time, when earlier work of the stream is done.
    pub struct EventRecord = 24 {
        /// The event.
        pub event: u32 = 0,
        /// The stream.
        pub stream: u32 = 4,
        /// The event's word and this record's value.
        pub mark: Mark = 8,
    }
}

wire_struct! {
    /// `cuStreamWaitEvent`: later work of the stream starts after the event's newest record.
    pub struct StreamWait = 8 {
        /// The stream.
        pub stream: u32 = 0,
        /// The event.
        pub event: u32 = 4,
    }
}

wire_struct! {
    /// What `cuLaunchHostFunc` needs of the host: stores the mark when earlier work of the stream is done, and starts later work
    /// of the stream when the guest has sent [`StreamRelease`] with the same number. The stream's work is not done before, for
    /// events, joins and signals alike. Only for executors with [`crate::facts::exec::HOLDS`].
    pub struct StreamHold = 24 {
        /// The stream.
        pub stream: u32 = 0,
        /// Minted number, never used again in the session.
        pub hold: u32 = 4,
        /// Stored when the guest may run its function.
        pub mark: Mark = 8,
    }
}

wire_struct! {
    /// Ends a hold. No work of any stream, so nothing orders it: it takes effect when the host reads it, whatever joins came
    /// before. An executor must therefore read on while streams are held.
    pub struct StreamRelease = 8 {
        /// The hold.
        pub hold: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}
