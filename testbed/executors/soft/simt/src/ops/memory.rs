//! Loads and stores: where lanes' addresses come from, which memory they name, and how elements become values
//! of registers.

use std::marker::PhantomData;

use vgpu_arena::Element;
use vgpu_ptx::ir::window;

use crate::env::Env;
use crate::fault::Fault;
use crate::machine::{Frame, Isa, LANES, Lane, Run, Slot, Step};
use crate::memory::{SHARED_WORDS, Words};
use crate::program::MemoryStep;
use crate::warp::Warp;

/// How an element becomes what a register holds.
pub(crate) trait Extend {
    type T: Element;
    type D: Lane;
    fn extend(value: Self::T) -> Self::D;
    /// Extends four elements to four lanes of a register.
    fn set<I: Isa>(values: [Self::T; 4], to: &mut [Self::D; 4]);
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
            fn set<I: Isa>(values: [$t; 4], to: &mut [u32; 4]) { I::set4(values.map(Self::extend), to); }
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
    fn set<I: Isa>(values: [u64; 4], to: &mut [u64; 4]) {
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

/// Calls `each` for every lane of a mask.
#[inline(always)]
fn for_active(mask: u32, mut each: impl FnMut(usize)) {
    if mask == u32::MAX {
        for lane in 0..LANES {
            each(lane);
        }
        return;
    }
    let mut rest = mask;
    while rest != 0 {
        each(rest.trailing_zeros() as usize);
        rest &= rest - 1;
    }
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

/// The end of an access that failed: what the step returns.
type Failed = u32;

/// Elements of all lanes, one array for each element of a vector.
type Elements<T, const N: usize> = [[T; LANES]; N];

/// A state space.
pub(crate) trait Space {
    /// Loads the lanes of `mask`; others keep what `out` holds.
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed>;

    /// The base address of a lane, or of all of them.
    fn base(frame: &Frame, step: &Step, lane: Option<usize>) -> u64;

    /// Loads the elements of one lane.
    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed>;

    /// Loads all lanes into registers, four lanes at a time. Whether it could: if not, nothing has been done.
    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize>(
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

impl Space for Global {
    #[inline(always)]
    fn base(frame: &Frame, step: &Step, lane: Option<usize>) -> u64 {
        lane.map_or_else(|| frame.get::<u64>(step.a), |lane| frame.vector::<u64>(step.a)[lane])
    }

    #[inline(always)]
    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        let window = &mut env.windows[step.y as usize];
        match env.view.load_uniform_vec::<E::T, N>(window, base.wrapping_add(step.imm)) {
            Ok(elements) => Ok(elements.map(E::extend)),
            Err(mut refusal) => {
                refusal.lane = lane as u32;
                Err(env.refused(warp, step.line, &refusal))
            }
        }
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&warp.frame, step);
        global_load::<E, N>(warp, env, step, &addresses, mask, out)
    }

    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        to: &[Slot; N],
    ) -> bool {
        let window = &env.windows[step.y as usize];
        if N == 1 {
            let Some((bases, out)) = warp.frame.apart::<u64, E::D>(step.a, to[0]) else { return false };
            let (out, _) = out.as_chunks_mut::<4>();
            return env.view.load_fours::<E::T, 1>(
                window,
                bases,
                step.imm,
                E::T::BYTES,
                |four, _, values| {
                    E::set::<I>(values, &mut out[four]);
                },
            );
        }
        let bases = *warp.frame.vector::<u64>(step.a);
        env.view.load_fours::<E::T, N>(
            window,
            &bases,
            step.imm,
            E::T::BYTES * N as u64,
            |four, element, values| {
                E::set::<I>(
                    values,
                    &mut warp.frame.vector_mut::<E::D>(to[element]).as_chunks_mut::<4>().0[four],
                );
            },
        )
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&warp.frame, step);
        global_store::<T, N>(warp, env, step, &addresses, mask, values)
    }
}

#[inline(always)]
fn global_load<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u64; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let window = &mut env.windows[step.y as usize];
    let done = if N == 1 {
        env.view.load_with::<E::T>(window, addresses, mask, |lane, value| out[0][lane] = E::extend(value))
    } else {
        env.view.load_vec_with::<E::T>(
            window,
            addresses,
            mask,
            |lane, element, value| out[element][lane] = E::extend(value),
            N,
        )
    };
    done.map_err(|refusal| env.refused(warp, step.line, &refusal))
}

#[inline(always)]
fn global_store<T: Truncate, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u64; LANES],
    mask: u32,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let window = &mut env.windows[step.y as usize];
    let values: [&[T::S; LANES]; N] = std::array::from_fn(|element| warp.frame.vector(values[element]));
    if N == 1 && mask.count_ones() <= FEW {
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let value = T::truncate(values[0][lane]);
            if let Err(mut refusal) = env.view.store_uniform(window, addresses[lane], value) {
                refusal.lane = lane as u32;
                return Err(env.refused(warp, step.line, &refusal));
            }
        }
        return Ok(());
    }
    let done = env.view.store_vec_with::<T>(
        window,
        addresses,
        mask,
        |lane, element| T::truncate(values[element][lane]),
        N,
    );
    done.map_err(|refusal| env.refused(warp, step.line, &refusal))
}

impl Space for Shared {
    #[inline(always)]
    fn base(frame: &Frame, step: &Step, lane: Option<usize>) -> u64 {
        lane.map_or_else(
            || u64::from(frame.get::<u32>(step.a)),
            |lane| u64::from(frame.vector::<u32>(step.a)[lane]),
        )
    }

    #[inline(always)]
    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        let address = (base as u32).wrapping_add(step.imm as u32);
        let size = E::T::BYTES as u32;
        let bytes = size * N as u32;
        if !address.is_multiple_of(bytes) || env.shared.bytes < bytes || address > env.shared.bytes - bytes {
            return Err(wrong_shared(warp, env, step.line, &[address; LANES], 1 << lane, bytes));
        }
        Ok(std::array::from_fn(|element| E::extend(env.shared.read(address + size * element as u32))))
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&warp.frame, step);
        shared_load::<E, N>(warp, env, step, &addresses, mask, out)
    }

    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        to: &[Slot; N],
    ) -> bool {
        let addresses = narrow::<SCALAR>(&warp.frame, step);
        let size = E::T::BYTES as u32;
        if !good(&addresses, u32::MAX, size * N as u32, env.shared.bytes) {
            return false;
        }
        let first = addresses[0];
        let (mut apart, mut unit) = (0, 0);
        for lane in 0..LANES {
            apart |= addresses[lane] ^ first;
            unit |= addresses[lane] ^ first.wrapping_add(4 * lane as u32);
        }
        if apart == 0 {
            for (element, &to) in to.iter().enumerate() {
                let value = E::extend(env.shared.read(first + size * element as u32));
                *warp.frame.vector_mut(to) = [value; LANES];
            }
            return true;
        }
        // Words side by side are copied.
        if unit == 0 && N == 1 && size == 4 {
            let from = first as usize / 4;
            if let Some(words) = env.shared.words().get(from..).and_then(|words| words.first_chunk::<LANES>())
            {
                *warp.frame.vector_mut::<u32>(to[0]) = *words;
                return true;
            }
        }
        // Compilers would take the addresses out of the vectors that were compared.
        let (fours, _) = std::hint::black_box(&addresses).as_chunks::<4>();
        for (element, &to) in to.iter().enumerate() {
            let (out, _) = warp.frame.vector_mut::<E::D>(to).as_chunks_mut::<4>();
            for (four, out) in fours.iter().zip(out) {
                E::set::<I>(four.map(|address| env.shared.read(address + size * element as u32)), out);
            }
        }
        true
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&warp.frame, step);
        shared_store::<T, N>(warp, env, step, &addresses, mask, values)
    }
}

#[inline(always)]
fn shared_load<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let (size, bytes) = (E::T::BYTES as u32, env.shared.bytes);
    if !good(addresses, mask, size * N as u32, bytes) {
        return Err(wrong_shared(warp, env, step.line, addresses, mask, size * N as u32));
    }
    for_active(mask, |lane| {
        for element in 0..N {
            out[element][lane] = E::extend(env.shared.read(addresses[lane] + size * element as u32));
        }
    });
    Ok(())
}

#[inline(always)]
fn shared_store<T: Truncate, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u32; LANES],
    mask: u32,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let (size, bytes) = (T::BYTES as u32, env.shared.bytes);
    if !good(addresses, mask, size * N as u32, bytes) {
        return Err(wrong_shared(warp, env, step.line, addresses, mask, size * N as u32));
    }
    let values: [&[T::S; LANES]; N] = std::array::from_fn(|element| warp.frame.vector(values[element]));
    for_active(mask, |lane| {
        for element in 0..N {
            env.shared.write(addresses[lane] + size * element as u32, T::truncate(values[element][lane]));
        }
    });
    Ok(())
}

#[cold]
#[inline(never)]
fn wrong_shared(
    warp: &mut Warp,
    env: &mut Env<'_>,
    line: u32,
    addresses: &[u32; LANES],
    mask: u32,
    size: u32,
) -> Failed {
    let (lane, wrong) = find_wrong(addresses, mask, size, env.shared.bytes);
    let address = u64::from(addresses[lane]);
    let site = env.site(warp, line, 1 << lane);
    let fault = match wrong {
        Wrong::Misaligned => Fault::Misaligned { address, site },
        Wrong::Beyond => Fault::SharedOutOfBounds { address, site },
    };
    warp.fail(env, fault)
}

impl Space for Local {
    #[inline(always)]
    fn base(frame: &Frame, step: &Step, lane: Option<usize>) -> u64 {
        lane.map_or_else(
            || u64::from(frame.get::<u32>(step.a)),
            |lane| u64::from(frame.vector::<u32>(step.a)[lane]),
        )
    }

    #[inline(always)]
    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        let address = (base as u32).wrapping_add(step.imm as u32);
        let size = E::T::BYTES as u32;
        let bytes = size * N as u32;
        let local = &mut env.local[warp.index as usize];
        if !address.is_multiple_of(bytes) || local.bytes < bytes || address > local.bytes - bytes {
            return Err(wrong_local(warp, env, step.line, &[address; LANES], 1 << lane, bytes));
        }
        let memory = local.lane(lane);
        Ok(std::array::from_fn(|element| E::extend(memory.read(address + size * element as u32))))
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&warp.frame, step);
        local_load::<E, N>(warp, env, step, &addresses, mask, out)
    }

    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        to: &[Slot; N],
    ) -> bool {
        // The same word of all lanes is one row of memory.
        if !SCALAR || E::T::BYTES != 4 {
            return false;
        }
        let address = warp.frame.get::<u32>(step.a).wrapping_add(step.imm as u32);
        let local = &env.local[warp.index as usize];
        let bytes = 4 * N as u32;
        if !address.is_multiple_of(bytes) || local.bytes < bytes || address > local.bytes - bytes {
            return false;
        }
        for (element, &to) in to.iter().enumerate() {
            if let Some(row) = local.row(address + 4 * element as u32) {
                *warp.frame.vector_mut::<u32>(to) = *row;
            }
        }
        true
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&warp.frame, step);
        local_store::<T, N>(warp, env, step, &addresses, mask, values)
    }
}

#[inline(always)]
fn local_load<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let size = E::T::BYTES as u32;
    let local = &mut env.local[warp.index as usize];
    if !good(addresses, mask, size * N as u32, local.bytes) {
        return Err(wrong_local(warp, env, step.line, addresses, mask, size * N as u32));
    }
    for_active(mask, |lane| {
        for element in 0..N {
            let value = local.lane(lane).read(addresses[lane] + size * element as u32);
            out[element][lane] = E::extend(value);
        }
    });
    Ok(())
}

#[inline(always)]
fn local_store<T: Truncate, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u32; LANES],
    mask: u32,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let size = T::BYTES as u32;
    let local = &mut env.local[warp.index as usize];
    if !good(addresses, mask, size * N as u32, local.bytes) {
        return Err(wrong_local(warp, env, step.line, addresses, mask, size * N as u32));
    }
    let values: [&[T::S; LANES]; N] = std::array::from_fn(|element| warp.frame.vector(values[element]));
    for_active(mask, |lane| {
        for element in 0..N {
            let value = T::truncate(values[element][lane]);
            local.lane(lane).write(addresses[lane] + size * element as u32, value);
        }
    });
    Ok(())
}

#[cold]
#[inline(never)]
fn wrong_local(
    warp: &mut Warp,
    env: &mut Env<'_>,
    line: u32,
    addresses: &[u32; LANES],
    mask: u32,
    size: u32,
) -> Failed {
    let bytes = env.local[warp.index as usize].bytes;
    let (lane, wrong) = find_wrong(addresses, mask, size, bytes);
    let address = u64::from(addresses[lane]);
    let site = env.site(warp, line, 1 << lane);
    let fault = match wrong {
        Wrong::Misaligned => Fault::Misaligned { address, site },
        Wrong::Beyond => Fault::LocalOutOfBounds { address, site },
    };
    warp.fail(env, fault)
}

/// Lanes by the memory that their generic addresses name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Split {
    pub(crate) shared: u32,
    pub(crate) local: u32,
    pub(crate) param: u32,
}

impl Split {
    #[inline(always)]
    pub(crate) fn of(addresses: &[u64; LANES], mask: u32) -> Self {
        let mut split = Self::default();
        // All three windows lie below 2^42, device memory above or below, and most accesses are to that.
        let mut near = false;
        for &address in addresses {
            near |= address >> 32 == window::SHARED >> 32
                || address >> 32 == window::LOCAL >> 32
                || address >> 32 == window::PARAM >> 32;
        }
        if near {
            for (lane, &address) in addresses.iter().enumerate() {
                let lane = mask & 1 << lane;
                match address & !(window::BYTES - 1) {
                    window::SHARED => split.shared |= lane,
                    window::LOCAL => split.local |= lane,
                    window::PARAM => split.param |= lane,
                    _ => {}
                }
            }
        }
        split
    }
}

impl Space for Generic {
    #[inline(always)]
    fn base(frame: &Frame, step: &Step, lane: Option<usize>) -> u64 {
        lane.map_or_else(|| frame.get::<u64>(step.a), |lane| frame.vector::<u64>(step.a)[lane])
    }

    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        match base.wrapping_add(step.imm) & !(window::BYTES - 1) {
            window::SHARED => Shared::load_lane::<E, N>(warp, env, step, base, lane),
            window::LOCAL => Local::load_lane::<E, N>(warp, env, step, base, lane),
            window::PARAM => {
                let address = (base as u32).wrapping_add(step.imm as u32);
                let mut out = [[E::D::default(); LANES]; N];
                param_load::<E, N>(warp, env, step, &[address; LANES], 1 << lane, &mut out)?;
                Ok(out.map(|lanes| lanes[lane]))
            }
            _ => Global::load_lane::<E, N>(warp, env, step, base, lane),
        }
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&warp.frame, step);
        let split = Split::of(&addresses, mask);
        let device = mask & !(split.shared | split.local | split.param);
        if device != 0 {
            global_load::<E, N>(warp, env, step, &addresses, device, out)?;
        }
        if device == mask {
            return Ok(());
        }
        let near = addresses.map(|address| address as u32);
        if split.shared != 0 {
            shared_load::<E, N>(warp, env, step, &near, split.shared, out)?;
        }
        if split.local != 0 {
            local_load::<E, N>(warp, env, step, &near, split.local, out)?;
        }
        if split.param != 0 {
            param_load::<E, N>(warp, env, step, &near, split.param, out)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&warp.frame, step);
        let split = Split::of(&addresses, mask);
        if split.param != 0 {
            return Err(wrong_param(
                warp,
                env,
                step.line,
                &addresses.map(|address| address as u32),
                split.param,
                1,
            ));
        }
        let device = mask & !(split.shared | split.local);
        if device != 0 {
            global_store::<T, N>(warp, env, step, &addresses, device, values)?;
        }
        if device == mask {
            return Ok(());
        }
        let near = addresses.map(|address| address as u32);
        if split.shared != 0 {
            shared_store::<T, N>(warp, env, step, &near, split.shared, values)?;
        }
        if split.local != 0 {
            local_store::<T, N>(warp, env, step, &near, split.local, values)?;
        }
        Ok(())
    }
}

/// Loads parameters.
fn param_load<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let size = size_of::<E::T>();
    if !good(addresses, mask, (size * N) as u32, env.params.len() as u32) {
        return Err(wrong_param(warp, env, step.line, addresses, mask, (size * N) as u32));
    }
    for_active(mask, |lane| {
        for (element, out) in out.iter_mut().enumerate() {
            let from = addresses[lane] as usize + size * element;
            let mut value = E::T::default();
            if let Some(bytes) = env.params.get(from..from + size) {
                zerocopy::IntoBytes::as_mut_bytes(&mut value).copy_from_slice(bytes);
            }
            out[lane] = E::extend(value);
        }
    });
    Ok(())
}

#[cold]
#[inline(never)]
fn wrong_param(
    warp: &mut Warp,
    env: &mut Env<'_>,
    line: u32,
    addresses: &[u32; LANES],
    mask: u32,
    size: u32,
) -> Failed {
    let (lane, wrong) = find_wrong(addresses, mask, size, env.params.len() as u32);
    let address = u64::from(addresses[lane]);
    let site = env.site(warp, line, 1 << lane);
    let fault = match wrong {
        Wrong::Misaligned => Fault::Misaligned { address, site },
        Wrong::Beyond => Fault::ParamOutOfBounds { address, site },
    };
    warp.fail(env, fault)
}

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
        Err(wrong_shared(warp, env, self.line, self.addresses, mask, self.size))
    }

    /// Whether local memory has it.
    pub(crate) fn check_local(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Result<(), Failed> {
        if good(self.addresses, mask, self.size, env.local[warp.index as usize].bytes) {
            return Ok(());
        }
        Err(wrong_local(warp, env, self.line, self.addresses, mask, self.size))
    }

    /// Parameters cannot be written.
    pub(crate) fn refuse_param(&self, warp: &mut Warp, env: &mut Env<'_>, mask: u32) -> Failed {
        wrong_param(warp, env, self.line, self.addresses, mask, self.size)
    }
}

/// Loads into registers that lanes have of their own. `x`: index of the [`MemoryStep`]; `y`: window.
pub(crate) struct Load<S, E, const SCALAR: bool, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const SCALAR: bool, const N: usize> Run for Load<S, E, SCALAR, N> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let slots: [Slot; N] = if N == 1 { [step.d; N] } else { targets(env, step) };
        if warp.mask == u32::MAX && S::load_all::<I, E, SCALAR, N>(warp, env, step, &slots) {
            return pc + 1;
        }
        match load_some::<S, E, SCALAR, N>(warp, env, step, &slots) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

/// So many lanes are rather loaded and stored one by one.
const FEW: u32 = 12;

/// Loads the active lanes, whichever they are. Not for one instruction set: this is one function for all.
#[inline(never)]
fn load_some<S: Space, E: Extend, const SCALAR: bool, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    slots: &[Slot; N],
) -> Result<(), Failed> {
    let mask = warp.mask;
    if mask.count_ones() <= FEW {
        let mut rest = mask;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let base = S::base(&warp.frame, step, if SCALAR { None } else { Some(lane) });
            let values = S::load_lane::<E, N>(warp, env, step, base, lane)?;
            for (&slot, value) in slots.iter().zip(values) {
                warp.frame.vector_mut::<E::D>(slot)[lane] = value;
            }
        }
        return Ok(());
    }
    let mut out = [[E::D::default(); LANES]; N];
    S::load::<E, SCALAR, N>(warp, env, step, mask, &mut out)?;
    for (&slot, out) in slots.iter().zip(&out) {
        let to = warp.frame.vector_mut::<E::D>(slot);
        for_active(mask, |lane| to[lane] = out[lane]);
    }
    Ok(())
}

/// The registers of a vector.
#[inline(always)]
fn targets<const N: usize>(env: &Env<'_>, step: &Step) -> [Slot; N] {
    let MemoryStep { slots } = &env.tables.memory[step.x as usize];
    std::array::from_fn(|element| slots[element % slots.len()])
}

/// Two loads of 16 bits side by side and the word that they make: device memory, any even address.
pub(crate) struct LoadPair;

impl Run for LoadPair {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        if warp.mask == u32::MAX
            && let Some((bases, out)) = warp.frame.apart::<u64, u32>(step.a, step.d)
        {
            let window = &env.windows[step.y as usize];
            let (out, _) = out.as_chunks_mut::<4>();
            let mut low = [0u16; 4];
            let done = env.view.load_fours::<u16, 2>(window, bases, step.imm, 2, |four, element, values| {
                if element == 0 {
                    low = values;
                } else {
                    let words =
                        std::array::from_fn(|lane| u32::from(values[lane]) << 16 | u32::from(low[lane]));
                    I::set4(words, &mut out[four]);
                }
            });
            if done {
                return pc + 1;
            }
        }
        match load_pairs(warp, env, step) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

/// The same lane by lane, of the active ones.
#[inline(never)]
fn load_pairs(warp: &mut Warp, env: &mut Env<'_>, step: &Step) -> Result<(), Failed> {
    let mut second = step.clone();
    second.imm = step.imm.wrapping_add(2);
    let mut rest = warp.mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let base = warp.frame.vector::<u64>(step.a)[lane];
        let [low] = Global::load_lane::<FromU16, 1>(warp, env, step, base, lane)?;
        let [high] = Global::load_lane::<FromU16, 1>(warp, env, &second, base, lane)?;
        warp.frame.vector_mut::<u32>(step.d)[lane] = high << 16 | low;
    }
    Ok(())
}

/// Loads into registers that all lanes share, from an address that they share.
pub(crate) struct LoadScalar<S, E, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const N: usize> Run for LoadScalar<S, E, N> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let lane = warp.mask.trailing_zeros() as usize % LANES;
        let base = S::base(&warp.frame, step, None);
        let values = match S::load_lane::<E, N>(warp, env, step, base, lane) {
            Ok(values) => values,
            Err(failed) => return failed,
        };
        let slots: [Slot; N] = if N == 1 { [step.d; N] } else { targets(env, step) };
        for (slot, value) in slots.into_iter().zip(values) {
            warp.frame.set(slot, value);
        }
        pc + 1
    }
}

/// Stores from registers that lanes have of their own.
pub(crate) struct Store<S, T, const SCALAR: bool, const N: usize>(PhantomData<(S, T)>);

impl<S: Space, T: Truncate, const SCALAR: bool, const N: usize> Run for Store<S, T, SCALAR, N> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let values: [Slot; N] = if N == 1 { [step.b; N] } else { targets(env, step) };
        match S::store::<T, SCALAR, N>(warp, env, step, warp.mask, &values) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

const _: () = assert!(SHARED_WORDS == 1 << 16, "what an index of 16 bits reaches");
