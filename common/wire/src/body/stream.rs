//! Streams and events, and the marks that tell the guest which of their work has completed.

use crate::span::Mark;

wire_struct! {
    /// Creates a stream with a priority (`cuStreamCreateWithPriority`).
    pub struct StreamCreate = 16 {
        /// Number for the stream, minted by the guest and not in use; neither 0 nor [`crate::JOIN_ALL`].
        pub stream: u32 = 0,
        /// [`STREAM_NON_BLOCKING`] or 0.
        pub flags: u32 = 4,
        /// Priority of the stream's work; lower is more urgent.
        pub priority: i32 = 8,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 12,
    }
}

/// [`StreamCreate::flags`]: the stream does not wait for stream 0, nor stream 0 for it.
pub const STREAM_NON_BLOCKING: u32 = 1;

wire_struct! {
    /// `cuStreamDestroy`. The host finishes the stream's work first; the guest does not wait for that.
    pub struct StreamDestroy = 8 {
        /// Number of the stream, from [`StreamCreate::stream`].
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// Stores the mark once all earlier work of the stream has completed. `cuStreamSynchronize` waits for it.
    pub struct Signal = 24 {
        /// Stream to wait for, or [`crate::JOIN_ALL`] for all streams of the session.
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Mark to store once the work has completed.
        pub mark: Mark = 8,
    }
}

wire_struct! {
    /// A join, where the header of the next message already carries another one.
    pub struct Join = 8 {
        /// Stream to join, or [`crate::JOIN_ALL`] for all streams of the session.
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuEventCreate`. An event has completed when the mark of its newest record has been stored.
    pub struct EventCreate = 8 {
        /// Number for the event, minted by the guest and not in use.
        pub event: u32 = 0,
        /// `CUevent_flags` that the program gave; 2 is an event without timing.
        pub flags: u32 = 4,
    }
}

wire_struct! {
    /// `cuEventDestroy`: frees the number.
    pub struct EventDestroy = 8 {
        /// Number of the event, from [`EventCreate::event`].
        pub event: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}

wire_struct! {
    /// `cuEventRecord`: stores the mark, with the time, once earlier work of the stream has completed.
    pub struct EventRecord = 24 {
        /// Number of the event, from [`EventCreate::event`].
        pub event: u32 = 0,
        /// Stream whose earlier work the record covers.
        pub stream: u32 = 4,
        /// The event's completion word, and the value for this record.
        pub mark: Mark = 8,
    }
}

wire_struct! {
    /// `cuStreamWaitEvent`: later work of the stream starts after the event's newest record.
    pub struct StreamWait = 8 {
        /// Stream whose later work is to wait.
        pub stream: u32 = 0,
        /// Number of the event to wait for, from [`EventCreate::event`].
        pub event: u32 = 4,
    }
}

wire_struct! {
    /// The host's part of `cuLaunchHostFunc`: stores the mark once earlier work of the stream has completed,
    /// and starts later work of the stream when the guest has sent [`StreamRelease`] with the same number.
    /// Until then events, joins and signals see the stream's work as not completed. Only for executors with
    /// [`crate::facts::exec::HOLDS`].
    pub struct StreamHold = 24 {
        /// Stream to hold.
        pub stream: u32 = 0,
        /// Number for the hold, minted by the guest, greater than those before it in the session, and at
        /// most [`crate::area::HOLD_MAX`]; not 0.
        pub hold: u32 = 4,
        /// Stored when the guest may run its function.
        pub mark: Mark = 8,
    }
}

wire_struct! {
    /// Ends a hold. It is not ordered after any work: it takes effect when the host reads it, whatever joins
    /// came before. The guest stores the number to [`crate::area::SUBMIT_RELEASED`] before it sends this, so
    /// that a GPU which polls that word continues even if the host cannot read on.
    pub struct StreamRelease = 8 {
        /// Number of the hold, from [`StreamHold::hold`].
        pub hold: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}
