//! Accesses to shared memory, with a fast path for lanes whose words are adjacent.

use super::address::{Access, Near, good, narrow};
use super::element::{Extend, Truncate};
use super::near::NearSpace;
use crate::machine::{Env, Isa, LANES, SharedMemory, Slot, Words};
use vgpu_arena::Element;

/// Shared memory, which belongs to the block.
pub(crate) struct Shared;

impl NearSpace for Shared {
    const NEAR: Near = Near::Shared;
    type Memory = SharedMemory;

    #[inline(always)]
    fn memory<'m>(env: &'m mut Env<'_>, _: u32) -> &'m mut SharedMemory {
        env.shared
    }

    #[inline(always)]
    fn load_first<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        access: &mut Access<'_, '_>,
        to: &[Slot; N],
    ) -> bool {
        let size = E::T::BYTES as u32;
        if size == 4
            && !SCALAR
            && let Some(from) = side_by_side::<N, L>(access)
            && let Some(words) = access.env.shared.words().get(from..from + N * L)
        {
            let (vectors, _) = words.as_chunks::<N>();
            if let Some(vectors) = vectors.first_chunk::<L>() {
                for (element, &to) in to.iter().enumerate() {
                    // All words are read before any is written, so that vectors can be used.
                    let row: [u32; L] = std::array::from_fn(|lane| vectors[lane][element]);
                    if let Some(to) = access.warp.frame.vector_mut(to).first_chunk_mut() {
                        *to = row;
                    }
                }
                return true;
            }
        }
        let addresses = narrow::<SCALAR>(&access.warp.frame, access.inst);
        let (frame, shared) = (&mut access.warp.frame, &*access.env.shared);
        if !good(&addresses, u32::MAX >> (LANES - L), size * N as u32, shared.bytes) {
            return false;
        }
        let first = addresses[0];
        let apart = addresses[..L].iter().fold(0, |apart, address| apart | (address ^ first));
        if apart == 0 {
            for (element, &to) in to.iter().enumerate() {
                let value = E::extend(shared.read(first + size * element as u32));
                *frame.vector_mut(to) = [value; LANES];
            }
            return true;
        }
        // Compilers would take the addresses out of the vectors that were compared.
        let (eights, _) = std::hint::black_box(&addresses)[..L].as_chunks::<8>();
        for (element, &to) in to.iter().enumerate() {
            let (out, _) = frame.vector_mut::<E::D>(to).as_chunks_mut::<8>();
            for (eight, out) in eights.iter().zip(out) {
                E::set::<I>(eight.map(|address| shared.read(address + size * element as u32)), out);
            }
        }
        true
    }

    #[inline(always)]
    fn store_together<T: Truncate, const SCALAR: bool, const N: usize>(
        access: &mut Access<'_, '_>,
        mask: u32,
        values: &[Slot; N],
    ) -> bool {
        if N == 1
            && T::BYTES == 4
            && !SCALAR
            && mask == u32::MAX
            && let Some(to) = side_by_side::<N, LANES>(access)
            && let Some(words) =
                access.env.shared.words_mut().get_mut(to..).and_then(<[u32]>::first_chunk_mut::<LANES>)
        {
            *words = access.warp.frame.vector::<T::S>(values[0]).map(|value| {
                let value = T::truncate(value);
                value.as_bytes().first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
            });
            return true;
        }
        false
    }
}

/// Returns the index of the first word of lane 0, if the first `L` lanes access `N` words each that are
/// adjacent and within the block's memory.
#[inline(always)]
fn side_by_side<const N: usize, const L: usize>(access: &Access<'_, '_>) -> Option<usize> {
    let (each, all) = (4 * N as u32, (4 * N * L) as u32);
    let bytes = access.env.shared.bytes;
    let base = access.warp.frame.vector::<u32>(access.inst.a);
    let mut other = 0;
    for lane in 0..L {
        other |= base[lane] ^ base[0].wrapping_add(each * lane as u32);
    }
    let first = base[0].wrapping_add(access.inst.imm as u32);
    let within = bytes >= all && first <= bytes - all;
    (other == 0 && within && first.is_multiple_of(each)).then_some(first as usize / 4)
}
