//! Parts of message bodies: [`Span`] names bytes that both sides can access, and [`Mark`] requests that the
//! host store a value once work has completed.

/// [`Span::segment`] of bytes in the message's own tail.
pub const SEGMENT_INLINE: u32 = u32::MAX;
/// [`Span::segment`] of window memory: offsets count from the start of BAR2.
pub const SEGMENT_BAR: u32 = 0;

wire_struct! {
    /// A range of bytes that both sides can access. The host checks that it belongs to the session.
    pub struct Span = 24 {
        /// [`SEGMENT_BAR`], [`SEGMENT_INLINE`], or the number of a segment of registered guest pages.
        pub segment: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Offset of the first byte in the segment; zero for [`SEGMENT_INLINE`].
        pub offset: u64 = 8,
        /// Length of the range in bytes.
        pub bytes: u64 = 16,
    }
}

impl Span {
    /// Creates a span of `bytes` bytes in the message's own tail.
    #[must_use]
    pub const fn inline(bytes: u64) -> Self {
        Self { segment: SEGMENT_INLINE, reserved: 0, offset: 0, bytes }
    }

    /// Creates a span of `bytes` bytes at `offset` in BAR2.
    #[must_use]
    pub const fn bar(offset: u64, bytes: u64) -> Self {
        Self { segment: SEGMENT_BAR, reserved: 0, offset, bytes }
    }

    /// Returns the length in bytes of the tail that this span adds to its message: 0 unless it is inline.
    #[must_use]
    pub const fn tail_bytes(&self) -> u64 {
        if self.segment == SEGMENT_INLINE { self.bytes } else { 0 }
    }
}

wire_struct! {
    /// A completion word, and the value that the host stores in it once the work has completed.
    pub struct Mark = 16 {
        /// Index of the word, 1 to [`crate::area::WORDS`] - 1; 0 if no value is to be stored.
        pub word: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Value to store, never below an earlier value of the same word.
        pub value: u64 = 8,
    }
}

impl Mark {
    /// A mark without a word, for which the host stores nothing.
    pub const NONE: Self = Self { word: 0, reserved: 0, value: 0 };

    /// Creates a mark that stores `value` in `word`.
    #[must_use]
    pub const fn new(word: u32, value: u64) -> Self {
        Self { word, reserved: 0, value }
    }
}
