//! Accesses to shared memory.

use super::address::{Failed, Near, good, narrow, within, wrong};
use super::element::{Elements, Extend, Truncate};
use super::space::Space;
use crate::machine::{Env, Inst, Isa, LANES, Slot, Warp, Words};
use vgpu_arena::{Element, for_active};

/// Shared memory, which belongs to the block.
pub(crate) struct Shared;

impl Space for Shared {
    type Address = u32;

    #[inline(always)]
    fn load_lane<E: Extend, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        base: u64,
        lane: usize,
    ) -> Result<[E::D; N], Failed> {
        let address = (base as u32).wrapping_add(inst.imm as u32);
        let size = E::T::BYTES as u32;
        let bytes = size * N as u32;
        if !within(address, bytes, env.shared.bytes) {
            return Err(wrong(Near::Shared, warp, env, inst.line, &[address; LANES], 1 << lane, bytes));
        }
        Ok(std::array::from_fn(|element| E::extend(env.shared.read(address + size * element as u32))))
    }

    #[inline(always)]
    fn load<E: Extend, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        mask: u32,
        out: &mut Elements<E::D, N>,
    ) -> Result<(), Failed> {
        let addresses = narrow::<SCALAR>(&warp.frame, inst);
        shared_load::<E, N>(warp, env, inst, &addresses, mask, out)
    }

    #[inline(always)]
    fn load_all<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        to: &[Slot; N],
    ) -> bool {
        let size = E::T::BYTES as u32;
        if size == 4
            && !SCALAR
            && let Some(from) = side_by_side::<N, L>(warp, inst, env.shared.bytes)
            && let Some(words) = env.shared.words().get(from..from + N * L)
        {
            let (vectors, _) = words.as_chunks::<N>();
            if let Some(vectors) = vectors.first_chunk::<L>() {
                for (element, &to) in to.iter().enumerate() {
                    // All words are read before any is written, so that vectors can be used.
                    let row: [u32; L] = std::array::from_fn(|lane| vectors[lane][element]);
                    if let Some(to) = warp.frame.vector_mut(to).first_chunk_mut() {
                        *to = row;
                    }
                }
                return true;
            }
        }
        let addresses = narrow::<SCALAR>(&warp.frame, inst);
        if !good(&addresses, u32::MAX >> (LANES - L), size * N as u32, env.shared.bytes) {
            return false;
        }
        let first = addresses[0];
        let apart = addresses[..L].iter().fold(0, |apart, address| apart | (address ^ first));
        if apart == 0 {
            for (element, &to) in to.iter().enumerate() {
                let value = E::extend(env.shared.read(first + size * element as u32));
                *warp.frame.vector_mut(to) = [value; LANES];
            }
            return true;
        }
        // Compilers would take the addresses out of the vectors that were compared.
        let (eights, _) = std::hint::black_box(&addresses)[..L].as_chunks::<8>();
        for (element, &to) in to.iter().enumerate() {
            let (out, _) = warp.frame.vector_mut::<E::D>(to).as_chunks_mut::<8>();
            for (eight, out) in eights.iter().zip(out) {
                E::set::<I>(eight.map(|address| env.shared.read(address + size * element as u32)), out);
            }
        }
        true
    }

    #[inline(always)]
    fn store<T: Truncate, const SCALAR: bool, const N: usize>(
        warp: &mut Warp,
        env: &mut Env<'_>,
        inst: &Inst,
        mask: u32,
        values: &[Slot; N],
    ) -> Result<(), Failed> {
        if N == 1
            && T::BYTES == 4
            && !SCALAR
            && mask == u32::MAX
            && let Some(to) = side_by_side::<N, LANES>(warp, inst, env.shared.bytes)
            && let Some(words) =
                env.shared.words_mut().get_mut(to..).and_then(<[u32]>::first_chunk_mut::<LANES>)
        {
            *words = warp.frame.vector::<T::S>(values[0]).map(|value| {
                let value = T::truncate(value);
                value.as_bytes().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
            });
            return Ok(());
        }
        let addresses = narrow::<SCALAR>(&warp.frame, inst);
        shared_store::<T, N>(warp, env, inst, &addresses, mask, values)
    }
}

/// Returns the index of the first word of lane 0, if the first `L` lanes access `N` words each that lie side by
/// side within the block's memory.
#[inline(always)]
fn side_by_side<const N: usize, const L: usize>(warp: &Warp, inst: &Inst, bytes: u32) -> Option<usize> {
    let (each, all) = (4 * N as u32, (4 * N * L) as u32);
    let base = warp.frame.vector::<u32>(inst.a);
    let mut other = 0;
    for lane in 0..L {
        other |= base[lane] ^ base[0].wrapping_add(each * lane as u32);
    }
    let first = base[0].wrapping_add(inst.imm as u32);
    let within = bytes >= all && first <= bytes - all;
    (other == 0 && within && first.is_multiple_of(each)).then_some(first as usize / 4)
}

#[inline(always)]
pub(super) fn shared_load<E: Extend, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    addresses: &[u32; LANES],
    mask: u32,
    out: &mut Elements<E::D, N>,
) -> Result<(), Failed> {
    let (size, bytes) = (E::T::BYTES as u32, env.shared.bytes);
    if !good(addresses, mask, size * N as u32, bytes) {
        return Err(wrong(Near::Shared, warp, env, inst.line, addresses, mask, size * N as u32));
    }
    for_active(mask, |lane| {
        for element in 0..N {
            out[element][lane] = E::extend(env.shared.read(addresses[lane] + size * element as u32));
        }
    });
    Ok(())
}

#[inline(always)]
pub(super) fn shared_store<T: Truncate, const N: usize>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    addresses: &[u32; LANES],
    mask: u32,
    values: &[Slot; N],
) -> Result<(), Failed> {
    let (size, bytes) = (T::BYTES as u32, env.shared.bytes);
    if !good(addresses, mask, size * N as u32, bytes) {
        return Err(wrong(Near::Shared, warp, env, inst.line, addresses, mask, size * N as u32));
    }
    let values: [&[T::S; LANES]; N] = std::array::from_fn(|element| warp.frame.vector(values[element]));
    for_active(mask, |lane| {
        for element in 0..N {
            env.shared.write(addresses[lane] + size * element as u32, T::truncate(values[element][lane]));
        }
    });
    Ok(())
}
