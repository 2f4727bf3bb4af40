//! How a message body names bytes that both sides see ([`Span`]) and a completion that the guest wants to
//! know of ([`Mark`]).

/// [`Span::segment`] of bytes that follow the body in the message itself.
pub const SEGMENT_INLINE: u32 = u32::MAX;
/// [`Span::segment`] of the window BAR.
pub const SEGMENT_BAR: u32 = 0;

wire_struct! {
    /// A range of bytes that both sides see. The host checks that the range belongs to the session.
    pub struct Span = 24 {
        /// [`SEGMENT_BAR`], [`SEGMENT_INLINE`], or a registered segment.
        pub segment: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Offset within the segment; zero for inline.
        pub offset: u64 = 8,
        /// Length in bytes.
        pub bytes: u64 = 16,
    }
}

impl Span {
    /// A span of the message's own tail.
    #[must_use]
    pub const fn inline(bytes: u64) -> Self {
        Self { segment: SEGMENT_INLINE, reserved: 0, offset: 0, bytes }
    }

    /// A span of the window BAR.
    #[must_use]
    pub const fn bar(offset: u64, bytes: u64) -> Self {
        Self { segment: SEGMENT_BAR, reserved: 0, offset, bytes }
    }

    /// How many bytes follow the body in the message for this span.
    #[must_use]
    pub const fn tail_bytes(&self) -> u64 {
        if self.segment == SEGMENT_INLINE { self.bytes } else { 0 }
    }
}

wire_struct! {
    /// A completion word and the value that the host stores in it when the work is done.
    pub struct Mark = 16 {
        /// Index of the word, 1 to [`crate::area::WORDS`] - 1; 0: nothing is stored.
        pub word: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Stored when done; never below an earlier value of the same word.
        pub value: u64 = 8,
    }
}

impl Mark {
    /// Names no word: the host stores nothing.
    pub const NONE: Self = Self { word: 0, reserved: 0, value: 0 };

    /// A mark on `word`.
    #[must_use]
    pub const fn new(word: u32, value: u64) -> Self {
        Self { word, reserved: 0, value }
    }
}
