//! Frames: the registers of a warp, accessed through slots. A slot holds a scalar of eight bytes, which all
//! lanes share, or a vector of 32 lanes of four or eight bytes.
//!
//! Accesses do not check bounds. They rely on the invariant of slots that the parent module states.

use super::slot::{FrameLayout, LANES, Slot};

/// Size of the largest vector in bytes. A frame extends beyond its layout by this much, so that a vector may
/// be accessed at any slot.
const REACH: usize = LANES * size_of::<u64>();

/// A type that a lane may hold. Every bit pattern is a valid value.
pub(crate) trait LaneType: Copy + Default + PartialEq + sealed::Plain + 'static {
    /// Returns `self` if `all` is all ones, and `other` if it is 0.
    fn or(self, other: Self, all: u32) -> Self;
}

mod sealed {
    /// A type for which every bit pattern is valid, and whose alignment is at most eight bytes.
    pub trait Plain {}
}

macro_rules! lanes {
    ($($ty:ty, $all:ident => $bits:expr, $to:expr, $from:expr;)*) => { $(
        impl LaneType for $ty {
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

/// A cache line. Vectors start at the boundaries of cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

/// The registers of a warp, which slots address. A default frame is empty and fits no layout.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    lines: Vec<CacheLine>,
    bytes: u32,
}

impl Frame {
    /// Makes the frame fit a layout and zeroes it. Returns false if the host has no memory; the frame then
    /// fits no layout.
    pub(crate) fn reset(&mut self, layout: &FrameLayout) -> bool {
        let lines = (layout.bytes() as usize + REACH).div_ceil(64);
        if !self.empty(lines) {
            return false;
        }
        self.lines.resize(lines, CacheLine([0; 64]));
        self.bytes = layout.bytes();
        true
    }

    /// Makes the frame a copy of another one. Returns false if the host has no memory; the frame then fits no
    /// layout.
    pub(crate) fn reset_like(&mut self, other: &Self) -> bool {
        if !self.empty(other.lines.len()) {
            return false;
        }
        self.lines.extend_from_slice(&other.lines);
        self.bytes = other.bytes;
        true
    }

    /// Empties the frame and reserves memory for `lines` cache lines. Returns false if the host has no
    /// memory.
    fn empty(&mut self, lines: usize) -> bool {
        self.bytes = 0;
        self.lines.clear();
        self.lines.try_reserve_exact(lines).is_ok()
    }

    /// Copies the contents and the size of another frame.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.lines.clone_from(&other.lines);
        self.bytes = other.bytes;
    }

    /// Returns the host memory in bytes that a frame of this layout takes.
    pub(crate) const fn cost(layout: &FrameLayout) -> u64 {
        layout.bytes() as u64 + REACH as u64
    }

    /// Returns whether the frame was made for this layout.
    pub(super) fn fits(&self, layout: &FrameLayout) -> bool {
        self.bytes == layout.bytes()
    }

    /// Returns the address of the frame for machine code.
    pub(crate) const fn base(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }

    /// Reads the scalar at a slot.
    #[inline(always)]
    pub(crate) fn get<T: LaneType>(&self, at: Slot) -> T {
        debug_assert!(at.offset() < self.bytes as usize);
        let pointer = self.lines.as_ptr().cast::<u8>().wrapping_add(at.offset()).cast::<T>();
        // SAFETY: a slot lies within frames of its layout (module invariant), at a multiple of eight, and any
        // bits are a T.
        unsafe { *pointer }
    }

    /// Writes the scalar at a slot.
    #[inline(always)]
    pub(crate) fn set<T: LaneType>(&mut self, at: Slot, value: T) {
        debug_assert!(at.offset() < self.bytes as usize);
        let pointer = self.lines.as_mut_ptr().cast::<u8>().wrapping_add(at.offset()).cast::<T>();
        // SAFETY: as in `get`.
        unsafe { *pointer = value };
    }

    /// Borrows the vector at a slot.
    #[inline(always)]
    pub(crate) fn vector<T: LaneType>(&self, at: Slot) -> &[T; LANES] {
        debug_assert!(at.offset() < self.bytes as usize);
        let pointer = self.lines.as_ptr().cast::<u8>().wrapping_add(at.offset()).cast::<[T; LANES]>();
        // SAFETY: as in `get`; a frame is longer than its layout by `REACH`, the size of the largest vector.
        unsafe { &*pointer }
    }

    /// Borrows the vector at a slot for writing.
    #[inline(always)]
    pub(crate) fn vector_mut<T: LaneType>(&mut self, at: Slot) -> &mut [T; LANES] {
        debug_assert!(at.offset() < self.bytes as usize);
        let pointer = self.lines.as_mut_ptr().cast::<u8>().wrapping_add(at.offset()).cast::<[T; LANES]>();
        // SAFETY: as in `vector`.
        unsafe { &mut *pointer }
    }

    /// Borrows one vector for reading and another for writing. Returns `None` if they may overlap.
    #[inline(always)]
    pub(crate) fn apart<A: LaneType, B: LaneType>(
        &mut self,
        from: Slot,
        to: Slot,
    ) -> Option<(&[A; LANES], &mut [B; LANES])> {
        if from.offset().abs_diff(to.offset()) < REACH {
            return None;
        }
        debug_assert!(from.offset().max(to.offset()) < self.bytes as usize);
        let base = self.lines.as_mut_ptr().cast::<u8>();
        let (read, write) = (base.wrapping_add(from.offset()).cast(), base.wrapping_add(to.offset()).cast());
        // SAFETY: as in `vector`; the other vector begins at least the size of one away.
        let read = unsafe { &*read };
        // SAFETY: the same.
        let write = unsafe { &mut *write };
        Some((read, write))
    }
}
