//! Where the channels' areas lie in the window.

/// The channels' areas, which follow each other in the window. Checked to lie within it before anybody uses
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    pub(crate) base: u64,
    pub(crate) stride: u64,
    pub(crate) channels: u32,
}

impl Areas {
    /// Offset of a channel's area in the window.
    pub(crate) fn offset_of(&self, channel: u32) -> u64 {
        self.base + u64::from(channel) * self.stride
    }

    /// Offset of the first byte behind the last area.
    pub(crate) fn end(&self) -> u64 {
        self.base + u64::from(self.channels) * self.stride
    }
}
