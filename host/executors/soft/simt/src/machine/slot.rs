//! Slots, which are the locations of values in the frame of a warp. Only a [`FrameLayout`] allocates them.

/// Number of lanes of a warp.
pub(crate) const LANES: usize = 32;

/// Offset of a value in a frame, in bytes from the frame's start. It is a multiple of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

impl Slot {
    /// Slot of an operand that an instruction does not use. It is the first slot, which every layout has.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the offset in bytes from the start of the frame, a multiple of eight.
    #[inline(always)]
    pub(crate) const fn offset(self) -> usize {
        self.0 as usize
    }
}

/// Location of a value in a frame, and whether all lanes share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueLoc {
    /// One value that all lanes share.
    Scalar(Slot),
    /// A value for each lane.
    Vector(Slot),
}

impl ValueLoc {
    pub(crate) const fn slot(self) -> Slot {
        match self {
            Self::Scalar(slot) | Self::Vector(slot) => slot,
        }
    }

    pub(crate) const fn is_scalar(self) -> bool {
        matches!(self, Self::Scalar(_))
    }
}

/// Allocates the slots of a frame one after another. Slots are never freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    bytes: u32,
}

impl FrameLayout {
    /// Creates a layout with one scalar, so that [`Slot::NONE`] is in every frame.
    pub(crate) const fn new() -> Self {
        Self { bytes: 8 }
    }

    /// Allocates a scalar of eight bytes.
    pub(crate) fn scalar(&mut self) -> Slot {
        self.allocate(8, 8)
    }

    /// Allocates a vector whose lanes have four bytes, or eight if it is `wide`.
    pub(crate) fn vector(&mut self, wide: bool) -> Slot {
        let lane = if wide { 8 } else { 4 };
        self.allocate(lane * LANES as u32, 64)
    }

    fn allocate(&mut self, bytes: u32, align: u32) -> Slot {
        let at = self.bytes.next_multiple_of(align);
        // Lowering refuses kernels long before a frame has 4 GiB.
        self.bytes = at.checked_add(bytes).expect("a frame is smaller than 4 GiB");
        Slot(at)
    }

    /// Returns the length of the frame in bytes.
    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }
}
