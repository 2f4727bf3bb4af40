//! The session itself: greeting, padding, echo, and shares of the window.

wire_struct! {
    /// Fills the ring to its end, so that the next message does not wrap. The tail is anything.
    pub struct Pad = 0 {}
}

wire_struct! {
    /// The first message of a session. Reply: [`crate::facts::HelloReply`].
    pub struct Hello = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// The guest's process id, in its own namespace.
        pub process: u32 = 4,
        /// Zero.
        pub reserved: u64 = 8,
    }
}

wire_struct! {
    /// Asks for nothing: measures a round trip. Reply: the cookie, 8 bytes.
    pub struct Echo = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Comes back.
        pub cookie: u64 = 8,
    }
}

wire_struct! {
    /// Asks for window memory: staging, pinned memory. Reply: [`WindowAllocReply`], or out of memory.
    pub struct WindowAlloc = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Rounded up to [`crate::area::WINDOW_GRANULE`].
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Where the memory lies.
    pub struct WindowAllocReply = 16 {
        /// Offset in BAR2.
        pub offset: u64 = 0,
        /// Bytes given, a multiple of the granule.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Gives window memory back. It is given to another only when no earlier work of the session
    /// refers to it any more.
    pub struct WindowFree = 8 {
        /// As `WindowAlloc` answered.
        pub offset: u64 = 0,
    }
}
