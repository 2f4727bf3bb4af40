//! Loads and stores: where lanes' addresses come from, which memory they name, and how elements become values
//! of registers.

mod generic;
mod global;
mod local;
mod shared;
mod steps;

pub(crate) use generic::Split;
pub(crate) use steps::{Load, LoadPair, LoadScalar, LoadTwo, Store};

use crate::env::Env;
use crate::fault::Fault;
use crate::machine::{Frame, Isa, LANES, Lane, Slot, Step};
use crate::warp::Warp;
use vgpu_arena::Element;

/// How an element becomes what a register holds.
pub(crate) trait Extend {
    type T: Element;
    type D: Lane;
    fn extend(value: Self::T) -> Self::D;
    /// Extends eight elements to eight lanes of a register.
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

// Signs are extended by another step: they are rare.
extensions! { FromU8: u8; FromU16: u16; Same32: u32; }

/// An element of 64 bits.
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

/// How a register's lane becomes an element.
pub(crate) trait Truncate: Element {
    type S: Lane;
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

/// Addresses of a memory of their own: 32 bits.
#[inline(always)]
fn narrow<const SCALAR: bool>(frame: &Frame, step: &Step) -> [u32; LANES] {
    let offset = step.imm as u32;
    if SCALAR {
        return [frame.get::<u32>(step.a).wrapping_add(offset); LANES];
    }
    let base = frame.vector::<u32>(step.a);
    std::array::from_fn(|lane| base[lane].wrapping_add(offset))
}

/// Device or generic addresses: 64 bits.
#[inline(always)]
fn wide<const SCALAR: bool>(frame: &Frame, step: &Step) -> [u64; LANES] {
    if SCALAR {
        return [frame.get::<u64>(step.a).wrapping_add(step.imm); LANES];
    }
    let base = frame.vector::<u64>(step.a);
    let mut addresses = [0; LANES];
    for lane in 0..LANES {
        addresses[lane] = base[lane].wrapping_add(step.imm);
    }
    addresses
}

/// What is wrong with an address of shared, local or param memory.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Misaligned,
    Beyond,
}

/// The first lane whose address is wrong.
#[cold]
#[inline(never)]
fn find_wrong(addresses: &[u32; LANES], mask: u32, size: u32, bytes: u32) -> (usize, Wrong) {
    for lane in 0..LANES {
        if mask >> lane & 1 == 0 {
            continue;
        }
        if !addresses[lane].is_multiple_of(size) {
            return (lane, Wrong::Misaligned);
        }
        if bytes < size || addresses[lane] > bytes - size {
            return (lane, Wrong::Beyond);
        }
    }
    (0, Wrong::Beyond)
}

/// A memory with addresses of its own.
#[derive(Clone, Copy, Debug)]
enum Near {
    Shared,
    Local,
    Param,
}

/// Ends the launch with the first lane whose address is wrong.
#[cold]
#[inline(never)]
fn wrong(
    near: Near,
    warp: &mut Warp,
    env: &mut Env<'_>,
    line: u32,
    addresses: &[u32; LANES],
    mask: u32,
    size: u32,
) -> Failed {
    let bytes = match near {
        Near::Shared => env.shared.bytes,
        Near::Local => env.local[warp.index as usize].bytes,
        Near::Param => env.params.len() as u32,
    };
    let (lane, wrong) = find_wrong(addresses, mask, size, bytes);
    let address = u64::from(addresses[lane]);
    let site = env.site(warp, line, 1 << lane);
    let fault = match (wrong, near) {
        (Wrong::Misaligned, _) => Fault::Misaligned { address, site },
        (Wrong::Beyond, Near::Shared) => Fault::SharedOutOfBounds { address, site },
        (Wrong::Beyond, Near::Local) => Fault::LocalOutOfBounds { address, site },
        (Wrong::Beyond, Near::Param) => Fault::ParamOutOfBounds { address, site },
    };
    warp.fail(env, fault)
}

/// Whether a lane may access `size` bytes at `address` in a memory of `bytes`.
#[inline(always)]
const fn within(address: u32, size: u32, bytes: u32) -> bool {
    address.is_multiple_of(size) && bytes >= size && address <= bytes - size
}

/// Whether all active lanes may access `size` bytes in a memory of `bytes`.
#[inline(always)]
fn good(addresses: &[u32; LANES], mask: u32, size: u32, bytes: u32) -> bool {
    if bytes < size {
        return false;
    }
    let last = bytes - size;
    let mut wrong = 0;
    if mask == u32::MAX {
        for &address in addresses {
            wrong |= u32::from(address > last) | address & (size - 1);
        }
    } else {
        for (lane, &address) in addresses.iter().enumerate() {
            wrong |= (u32::from(address > last) | address & (size - 1)) & (mask >> lane & 1).wrapping_neg();
        }
    }
    wrong == 0
}

/// So many lanes are rather loaded and stored one by one.
const FEW: u32 = 12;
/// Loading so many lanes one by one takes no longer than loading all lanes together.
const FEWER: u32 = 4;

/// The end of an access that failed: what the step returns.
type Failed = u32;

/// Elements of all lanes, one array for each element of a vector.
type Elements<T, const N: usize> = [[T; LANES]; N];

/// A state space.
pub(crate) trait Space {
    /// What a register holds of an address: 32 bits in a memory of its own, else 64.
    type Address: Lane + Into<u64>;

    /// Loads the lanes of `mask`; others keep what `out` holds.
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed>;

    /// The base address of a lane, or of all of them.
    #[inline(always)]
    fn base(frame: &Frame, step: &Step, lane: Option<usize>) -> u64 {
        lane.map_or_else(
            || frame.get::<Self::Address>(step.a),
            |lane| frame.vector::<Self::Address>(step.a)[lane],
        )
        .into()
    }

    /// Loads the elements of one lane.
    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed>;

    /// Loads the first `L` lanes into registers, eight lanes at a time. Whether it could: if not, nothing has been done.
    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        _: &mut Warp,
        _: &mut Env<'_>,
        _: &Step,
        _: &[Slot; N],
    ) -> bool {
        false
    }

    /// Stores the lanes of `mask`.
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed>;
}

/// Device memory.
pub(crate) struct Global;
/// The block's.
pub(crate) struct Shared;
/// The thread's.
pub(crate) struct Local;
/// Any of them, and the parameters.
pub(crate) struct Generic;

/// An access of lanes to a memory of their own, for atomics.
pub(crate) struct Access<'a> {
    pub(crate) addresses: &'a [u32; LANES],
    pub(crate) size: u32,
    pub(crate) line: u32,
}

impl Access<'_> {
    /// Whether shared memory has what the lanes want.
    pub(crate) fn check_shared(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Result<(), Failed> {
        if good(self.addresses, mask, self.size, env.shared.bytes) {
            return Ok(());
        }
        Err(wrong(Near::Shared, warp, env, self.line, self.addresses, mask, self.size))
    }

    /// Whether local memory has it.
    pub(crate) fn check_local(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Result<(), Failed> {
        if good(self.addresses, mask, self.size, env.local[warp.index as usize].bytes) {
            return Ok(());
        }
        Err(wrong(Near::Local, warp, env, self.line, self.addresses, mask, self.size))
    }

    /// Parameters cannot be written.
    pub(crate) fn refuse_param(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Failed {
        wrong(Near::Param, warp, env, self.line, self.addresses, mask, self.size)
    }
}
