//! Conversions between elements of memory and values of registers.

use vgpu_arena::Element;

use crate::machine::{Isa, LANES, LaneType};

/// Zero-extends an element of memory to the value of a register.
pub(crate) trait Extend: 'static {
    type T: Element;
    type D: LaneType;
    fn extend(value: Self::T) -> Self::D;
    /// Extends eight elements and stores them to eight lanes of a register.
    fn set<I: Isa>(values: [Self::T; 8], to: &mut [Self::D; 8]);
}

macro_rules! extensions {
    ($($name:ident: $t:ty;)*) => { $(
        pub(crate) struct $name;
        impl Extend for $name {
            type T = $t;
            type D = u32;
            #[inline(always)]
            fn extend(value: $t) -> u32 { value as u32 }
            #[inline(always)]
            fn set<I: Isa>(values: [$t; 8], to: &mut [u32; 8]) { I::set8(values.map(Self::extend), to); }
        }
    )* };
}

// Sign extension is rare, and an instruction of its own.
extensions! { FromU8: u8; FromU16: u16; Same32: u32; }

/// Loads an element of 64 bits unchanged.
pub(crate) struct Same64;

impl Extend for Same64 {
    type T = u64;
    type D = u64;
    #[inline(always)]
    fn extend(value: u64) -> u64 {
        value
    }
    #[inline(always)]
    fn set<I: Isa>(values: [u64; 8], to: &mut [u64; 8]) {
        *to = values;
    }
}

/// Truncates the value of a register to an element of memory.
pub(crate) trait Truncate: Element {
    type S: LaneType;
    fn truncate(value: Self::S) -> Self;
}

macro_rules! truncations {
    ($($t:ty, $s:ty;)*) => { $(
        impl Truncate for $t {
            type S = $s;
            #[inline(always)]
            fn truncate(value: $s) -> $t { value as $t }
        }
    )* };
}

truncations! { u8, u32; u16, u32; u32, u32; u64, u64; }

/// Elements of all lanes, with one array for each element of a vector.
pub(super) type Elements<T, const N: usize> = [[T; LANES]; N];
