//! The session itself: greeting, padding, echo, and window memory.

wire_struct! {
    /// Fills the ring to its end, so that the next message does not wrap. The contents of the tail mean
    /// nothing.
    pub struct Pad = 0 {}
}

wire_struct! {
    /// The first message of a session, and no other. Reply: [`crate::facts::HelloReply`].
    pub struct Hello = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Process id of the guest process, in its own namespace.
        pub process: u32 = 4,
        /// Must be zero, or the host ends the session.
        pub reserved: u64 = 8,
    }
}

wire_struct! {
    /// Does nothing but return the cookie: a round trip to be measured, or to be waited for.
    pub struct Echo = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Value that the reply returns, 8 bytes.
        pub cookie: u64 = 8,
    }
}

wire_struct! {
    /// Allocates window memory, for staging buffers and pinned memory. Reply: [`WindowAllocReply`], or out of
    /// memory.
    pub struct WindowAlloc = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Wanted length in bytes, not 0. The host rounds it up to [`crate::area::WINDOW_GRANULE`].
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Location of the allocated window memory, which reads as zeros.
    pub struct WindowAllocReply = 16 {
        /// Offset in BAR2 of the first byte.
        pub offset: u64 = 0,
        /// Length in bytes, a multiple of [`crate::area::WINDOW_GRANULE`].
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Frees window memory. The host allocates it again only once no earlier work of the session refers to
    /// it.
    pub struct WindowFree = 8 {
        /// Offset in BAR2, as [`WindowAllocReply::offset`] gave it.
        pub offset: u64 = 0,
    }
}
