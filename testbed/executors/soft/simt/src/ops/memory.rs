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
}

macro_rules! extensions {
    ($($name:ident: $t:ty => $d:ty = |$x:ident| $e:expr;)*) => { $(
        pub(crate) struct $name;
        impl Extend for $name {
            type T = $t;
            type D = $d;
            #[inline(always)]
            fn extend($x: $t) -> $d { $e }
        }
    )* };
}

extensions! {
    Same32: u32 => u32 = |x| x;
    Same64: u64 => u64 = |x| x;
    FromU8: u8 => u32 = |x| x as u32;
    FromS8: u8 => u32 = |x| x as i8 as i32 as u32;
    FromU16: u16 => u32 = |x| x as u32;
    FromS16: u16 => u32 = |x| x as i16 as i32 as u32;
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
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        step: &Step,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = wide::<SCALAR>(&warp.frame, step);
        global_load::<E, SCALAR, N>(warp, env, step, &addresses, mask, out)
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
fn global_load<E: Extend, const SCALAR: bool, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    addresses: &[u64; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let window = &mut env.windows[step.y as usize];
    let done = if SCALAR {
        env.view.load_uniform_vec::<E::T, N>(window, addresses[0]).map(|elements| {
            for (out, element) in out.iter_mut().zip(elements) {
                *out = [E::extend(element); LANES];
            }
        })
    } else if N == 1 {
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
    let first = addresses[0];
    let mut apart = 0;
    for &address in addresses {
        apart |= address ^ first;
    }
    if apart == 0 && mask & 1 != 0 {
        for element in 0..N {
            out[element] = [E::extend(env.shared.read(first + size * element as u32)); LANES];
        }
        return Ok(());
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
            global_load::<E, false, N>(warp, env, step, &addresses, device, out)?;
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
            return Err(wrong_param(warp, env, step.line, &addresses.map(|address| address as u32), split.param, 1));
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
        let mask = warp.mask;
        let mut out = [[E::D::default(); LANES]; N];
        if let Err(failed) = S::load::<E, SCALAR, N>(warp, env, step, mask, &mut out) {
            return failed;
        }
        let slots: [Slot; N] = if N == 1 { [step.d; N] } else { targets(env, step) };
        for (slot, out) in slots.into_iter().zip(&out) {
            if mask == u32::MAX {
                *warp.frame.vector_mut(slot) = *out;
            } else {
                super::put_active(warp, slot, out);
            }
        }
        pc + 1
    }
}

/// The registers of a vector.
#[inline(always)]
fn targets<const N: usize>(env: &Env<'_>, step: &Step) -> [Slot; N] {
    let MemoryStep { slots } = &env.tables.memory[step.x as usize];
    std::array::from_fn(|element| slots[element % slots.len()])
}

/// Loads into registers that all lanes share, from an address that they share.
pub(crate) struct LoadScalar<S, E, const N: usize>(PhantomData<(S, E)>);

impl<S: Space, E: Extend, const N: usize> Run for LoadScalar<S, E, N> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let lane = warp.mask.trailing_zeros() as usize % LANES;
        let mut out = [[E::D::default(); LANES]; N];
        if let Err(failed) = S::load::<E, true, N>(warp, env, step, 1 << lane, &mut out) {
            return failed;
        }
        let slots: [Slot; N] = if N == 1 { [step.d; N] } else { targets(env, step) };
        for (slot, out) in slots.into_iter().zip(&out) {
            warp.frame.set(slot, out[lane]);
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
