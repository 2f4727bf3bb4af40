//! Frames: the registers of a warp. A slot is eight bytes of a scalar, which all lanes share, or a vector of
//! 32 lanes of four or eight bytes.

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// Bytes of the largest vector: what an access at any slot may reach.
const REACH: usize = LANES * size_of::<u64>();

/// What a lane may hold. Every pattern of bits is a value of these types.
pub(crate) trait Lane: Copy + Default + PartialEq + sealed::Plain + 'static {
    /// Itself if `all` is all ones, the other if it is 0.
    fn or(self, other: Self, all: u32) -> Self;
}

mod sealed {
    /// Any bits are a value, aligned to at most eight bytes.
    pub trait Plain {}
}

macro_rules! lanes {
    ($($ty:ty, $all:ident => $bits:expr, $to:expr, $from:expr;)*) => { $(
        impl Lane for $ty {
            #[inline(always)]
            fn or(self, other: Self, $all: u32) -> Self {
                let bits = $bits;
                $from($to(self) & bits | $to(other) & !bits)
            }
        }
        impl sealed::Plain for $ty {}
    )* };
}

lanes! {
    u32, all => all, u32::from, u32::from;
    i32, all => all, i32::cast_unsigned, u32::cast_signed;
    f32, all => all, f32::to_bits, f32::from_bits;
    u64, all => all as i32 as u64, u64::from, u64::from;
    i64, all => all as i32 as u64, i64::cast_unsigned, u64::cast_signed;
    f64, all => all as i32 as u64, f64::to_bits, f64::from_bits;
}

/// A place in a frame: bytes from its start, a multiple of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(u32);

impl Slot {
    /// A step's unused operand: the first slot, which every layout has.
    pub(crate) const NONE: Self = Self(0);
}

/// Hands out the slots of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    bytes: u32,
}

impl Layout {
    /// One scalar, so that [`Slot::NONE`] is a slot.
    pub(crate) const fn new() -> Self {
        Self { bytes: 8 }
    }

    /// A new scalar.
    pub(crate) fn scalar(&mut self) -> Slot {
        self.take(8, 8)
    }

    /// A new vector of lanes of four bytes, or of eight.
    pub(crate) fn vector(&mut self, wide: bool) -> Slot {
        let lane = if wide { 8 } else { 4 };
        self.take(lane * LANES as u32, 64)
    }

    fn take(&mut self, bytes: u32, align: u32) -> Slot {
        let at = self.bytes.next_multiple_of(align);
        // Lowering refuses kernels long before a frame has 4 GiB.
        self.bytes = at.checked_add(bytes).expect("a frame is smaller than 4 GiB");
        Slot(at)
    }

    /// How long a frame is.
    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }
}

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The registers of a warp. A default one has none, and fits no layout.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    lines: Vec<Line>,
    bytes: u32,
}

impl Frame {
    /// Zeros, for this layout; false: the host has no memory, and the frame fits no layout.
    pub(crate) fn reset(&mut self, layout: &Layout) -> bool {
        let lines = (layout.bytes() as usize + REACH).div_ceil(64);
        self.bytes = 0;
        self.lines.clear();
        if self.lines.try_reserve_exact(lines).is_err() {
            return false;
        }
        self.lines.resize(lines, Line([0; 64]));
        self.bytes = layout.bytes();
        true
    }

    /// Becomes the same as another.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.lines.clone_from(&other.lines);
        self.bytes = other.bytes;
    }

    /// Bytes of the host's memory that a frame of this layout takes.
    pub(crate) const fn cost(layout: &Layout) -> u64 {
        layout.bytes() as u64 + REACH as u64
    }

    /// Whether it was made for this layout.
    pub(super) fn fits(&self, layout: &Layout) -> bool {
        self.bytes == layout.bytes()
    }

    /// A scalar.
    #[inline(always)]
    pub(crate) fn get<T: Lane>(&self, at: Slot) -> T {
        debug_assert!(at.0 < self.bytes);
        let pointer = self.lines.as_ptr().cast::<u8>().wrapping_add(at.0 as usize).cast::<T>();
        // SAFETY: a slot lies within frames of its layout (module invariant), at a multiple of eight; any bits are a T.
        unsafe { *pointer }
    }

    /// Sets a scalar.
    #[inline(always)]
    pub(crate) fn set<T: Lane>(&mut self, at: Slot, value: T) {
        debug_assert!(at.0 < self.bytes);
        let pointer = self.lines.as_mut_ptr().cast::<u8>().wrapping_add(at.0 as usize).cast::<T>();
        // SAFETY: as in `get`.
        unsafe { *pointer = value };
    }

    /// A vector.
    #[inline(always)]
    pub(crate) fn vector<T: Lane>(&self, at: Slot) -> &[T; LANES] {
        debug_assert!(at.0 < self.bytes);
        let pointer = self.lines.as_ptr().cast::<u8>().wrapping_add(at.0 as usize).cast::<[T; LANES]>();
        // SAFETY: as in `get`; a frame is longer than its layout by `REACH`, the size of the largest vector.
        unsafe { &*pointer }
    }

    /// A vector to be written.
    #[inline(always)]
    pub(crate) fn vector_mut<T: Lane>(&mut self, at: Slot) -> &mut [T; LANES] {
        debug_assert!(at.0 < self.bytes);
        let pointer = self.lines.as_mut_ptr().cast::<u8>().wrapping_add(at.0 as usize).cast::<[T; LANES]>();
        // SAFETY: as in `vector`.
        unsafe { &mut *pointer }
    }

    /// A vector to be read and another to be written, if they do not overlap.
    #[inline(always)]
    pub(crate) fn apart<A: Lane, B: Lane>(
        &mut self,
        from: Slot,
        to: Slot,
    ) -> Option<(&[A; LANES], &mut [B; LANES])> {
        if (from.0.abs_diff(to.0) as usize) < REACH {
            return None;
        }
        debug_assert!(from.0 < self.bytes && to.0 < self.bytes);
        let base = self.lines.as_mut_ptr().cast::<u8>();
        let (read, write) =
            (base.wrapping_add(from.0 as usize).cast(), base.wrapping_add(to.0 as usize).cast());
        // SAFETY: as in `vector`; the other vector begins at least the size of one away.
        let read = unsafe { &*read };
        // SAFETY: the same.
        let write = unsafe { &mut *write };
        Some((read, write))
    }
}
