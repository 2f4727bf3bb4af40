//! Accesses to local memory, whose words are interleaved by lane.

use super::address::{Access, Near, within};
use super::element::Extend;
use super::near::NearSpace;
use crate::machine::{Env, Isa, LocalMemory, Slot};
use vgpu_arena::Element;

/// Local memory, which belongs to the thread.
pub(crate) struct Local;

impl NearSpace for Local {
    const NEAR: Near = Near::Local;
    type Memory = LocalMemory;

    #[inline(always)]
    fn memory<'m>(env: &'m mut Env<'_>, warp: u32) -> &'m mut LocalMemory {
        &mut env.local[warp as usize]
    }

    #[inline(always)]
    fn load_first<I: Isa, E: Extend, const SCALAR: bool, const N: usize, const L: usize>(
        access: &mut Access<'_, '_>,
        to: &[Slot; N],
    ) -> bool {
        // All lanes access the same word, which is one row of memory.
        if !SCALAR || E::T::BYTES != 4 {
            return false;
        }
        let frame = &mut access.warp.frame;
        let address = frame.get::<u32>(access.inst.a).wrapping_add(access.inst.imm as u32);
        let local = &access.env.local[access.warp.index as usize];
        if !within(address, 4 * N as u32, local.bytes) {
            return false;
        }
        for (element, &to) in to.iter().enumerate() {
            if let Some(row) = local.row(address + 4 * element as u32) {
                *frame.vector_mut::<u32>(to) = *row;
            }
        }
        true
    }
}
