//! The elements of memory accesses: unsigned integers, which are accessed by relaxed atomics.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An element of memory: `u8`, `u16`, `u32`, `u64`, or [`Halves`].
pub trait Element:
    Copy + Default + Debug + PartialEq + FromBytes + IntoBytes + Immutable + Send + Sync + sealed::Raw + 'static
{
    /// Size of an element in bytes.
    const BYTES: u64 = size_of::<Self>() as u64;
    /// Alignment of an element in bytes.
    const ALIGN: u64 = Self::BYTES;
}

/// Two adjacent elements of 16 bits at an even address, as one word of 32 bits: the first is in the low half.
/// They count as two accesses, in no particular order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Halves(pub u32);

impl Element for Halves {
    const ALIGN: u64 = 2;
}

/// Adjacent elements of 16 or 32 bits, 64 bits in all, at an even address. They count as several accesses, in
/// no particular order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(transparent)]
pub struct Neighbours(pub u64);

impl Element for Neighbours {
    const ALIGN: u64 = 2;
}

/// A value that may be at any address, aligned or not.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Uneven<T>(T);

macro_rules! uneven {
    ($($name:ident: $ty:ty;)*) => { $(
        impl sealed::Raw for $name {
            #[inline(always)]
            unsafe fn read(from: *mut u8) -> Self {
                // SAFETY: the caller's promise: mapped; `Uneven` needs no alignment. Volatile, as copies are.
                Self(unsafe { from.cast::<Uneven<$ty>>().read_volatile() }.0)
            }

            #[inline(always)]
            unsafe fn write(to: *mut u8, value: Self) {
                // SAFETY: as for `read`.
                unsafe { to.cast::<Uneven<$ty>>().write_volatile(Uneven(value.0)) };
            }
        }
    )* };
}

uneven! { Halves: u32; Neighbours: u64; }

/// An element with atomic read-modify-write: `u32` or `u64`.
pub trait Cell: Element + sealed::RawCell {}

pub(super) mod sealed {
    /// Loads and stores of one element, each a single access.
    pub trait Raw: Sized {
        /// Loads one element.
        ///
        /// # Safety
        /// The pointer must be aligned, and mapped readable and writable.
        unsafe fn read(from: *mut u8) -> Self;

        /// Stores one element.
        ///
        /// # Safety
        /// The conditions are those of `read`.
        unsafe fn write(to: *mut u8, value: Self);
    }

    /// Atomic read-modify-write of one element.
    pub trait RawCell: Sized {
        /// Replaces the value by what `change` returns for it, and returns the old value.
        ///
        /// # Safety
        /// The conditions are those of `Raw::read`.
        unsafe fn update(at: *mut u8, change: impl FnMut(Self) -> Self) -> Self;
    }
}

macro_rules! elements {
    ($($ty:ty, $atomic:ty;)*) => { $(
        impl Element for $ty {}

        impl sealed::Raw for $ty {
            #[inline(always)]
            unsafe fn read(from: *mut u8) -> Self {
                // SAFETY: the caller's promise; everybody else uses atomics too, or the volatile copies of
                // `vm-memory`.
                unsafe { <$atomic>::from_ptr(from.cast()) }.load(Ordering::Relaxed)
            }

            #[inline(always)]
            unsafe fn write(to: *mut u8, value: Self) {
                // SAFETY: as for `read`.
                unsafe { <$atomic>::from_ptr(to.cast()) }.store(value, Ordering::Relaxed);
            }
        }
    )* };
}

macro_rules! cells {
    ($($ty:ty, $atomic:ty;)*) => { $(
        impl Cell for $ty {}

        impl sealed::RawCell for $ty {
            #[inline(always)]
            unsafe fn update(at: *mut u8, mut change: impl FnMut(Self) -> Self) -> Self {
                // SAFETY: as for `Raw::read`.
                let atomic = unsafe { <$atomic>::from_ptr(at.cast()) };
                let mut old = atomic.load(Ordering::Relaxed);
                loop {
                    match atomic.compare_exchange_weak(old, change(old), Ordering::SeqCst, Ordering::Relaxed) {
                        Ok(old) => return old,
                        Err(now) => old = now,
                    }
                }
            }
        }
    )* };
}

elements! { u8, AtomicU8; u16, AtomicU16; u32, AtomicU32; u64, AtomicU64; }
cells! { u32, AtomicU32; u64, AtomicU64; }
