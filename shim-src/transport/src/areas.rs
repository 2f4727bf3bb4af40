//! Positions of the channels' areas in the window.

/// The channels' areas, which follow each other in the window. They are checked to be within it before use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    pub(crate) base: u64,
    pub(crate) stride: u64,
    pub(crate) channels: u32,
}

impl Areas {
    /// Returns the offset of a channel's area in the window.
    pub(crate) fn offset_of(&self, channel: u32) -> u64 {
        self.base + u64::from(channel) * self.stride
    }

    /// Returns the offset of the first byte after the last area.
    pub(crate) fn end(&self) -> u64 {
        self.base + u64::from(self.channels) * self.stride
    }
}
