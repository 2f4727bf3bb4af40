//! Read-modify-write instructions `atom` and `red`, which process lanes in their order.

use vgpu_arena::for_active;
use vgpu_ptx::ir::Space;

use crate::machine::{AtomicOperands, Baseline, Env, Inst, Isa, LANES, Operation, Slot, Warp, Words};

use super::convert::narrow_address;
use super::memory::{Near, NearAccess, WindowLanes, next, single_lanes};

/// Executes a read-modify-write for each active lane. `x` is the index of the [`AtomicOperands`].
pub(crate) struct Atomic;

impl Operation for Atomic {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        next(execute_atomic(warp, env, inst), pc)
    }
}

/// Returns the values of an operand for all lanes, extended to 64 bits.
fn operand(warp: &Warp, at: Slot, bytes: u32) -> [u64; LANES] {
    if bytes == 8 { *warp.frame.vector(at) } else { warp.frame.vector::<u32>(at).map(u64::from) }
}

fn execute_atomic(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst) -> Result<(), u32> {
    let tables = env.tables;
    let atomic = &tables.atomics[inst.x as usize];
    let addresses = warp.frame.vector::<u64>(atomic.base).map(|base| base.wrapping_add_signed(atomic.offset));
    let operands = [atomic.b, atomic.c].map(|at| operand(warp, at, atomic.bytes));
    let mut old = [0; LANES];
    let mask = warp.mask;
    let windows = match atomic.space {
        Space::Generic => WindowLanes::by_window(&addresses, mask),
        Space::Shared => WindowLanes { shared: mask, ..WindowLanes::default() },
        Space::Local => WindowLanes { local: mask, ..WindowLanes::default() },
        Space::Param => WindowLanes { param: mask, ..WindowLanes::default() },
        Space::Global => WindowLanes::default(),
    };
    let mut access = |lanes| {
        let lanes = LaneGroup { addresses: &addresses, mask: lanes, operands: &operands };
        in_one(warp, env, inst, atomic, &lanes, &windows, &mut old)
    };
    if windows.agrees(mask) {
        access(mask)?;
    } else {
        single_lanes(mask).try_for_each(access)?;
    }
    if let Some(dst) = atomic.dst {
        if atomic.bytes == 8 {
            super::put_active::<Baseline, _>(warp, dst, &old);
        } else {
            super::put_active::<Baseline, _>(warp, dst, &old.map(|value| value as u32));
        }
    }
    Ok(())
}

/// Lanes whose addresses are in the same state space.
struct LaneGroup<'a> {
    addresses: &'a [u64; LANES],
    mask: u32,
    /// Values of the operands `b` and `c` for all lanes.
    operands: &'a [[u64; LANES]; 2],
}

/// Executes the read-modify-writes of lanes whose addresses are in the same state space, in the order of the
/// lanes.
fn in_one(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    atomic: &AtomicOperands,
    lanes: &LaneGroup<'_>,
    windows: &WindowLanes,
    old: &mut [u64; LANES],
) -> Result<(), u32> {
    let LaneGroup { addresses, mask, operands: [b, c] } = *lanes;
    if mask & !(windows.shared | windows.local | windows.param) != 0 {
        return device_memory(warp, env, inst, atomic, lanes, old);
    }
    let near = addresses.map(|address| match atomic.space {
        Space::Generic => address as u32,
        _ => narrow_address(address),
    });
    let access = NearAccess { addresses: &near, size: atomic.bytes, line: inst.line };
    if windows.param & mask != 0 {
        return Err(access.refuse_param(warp, env, mask));
    }
    if windows.shared & mask != 0 {
        access.check(Near::Shared, warp, env, mask)?;
        for_active(mask, |lane| old[lane] = update(env.shared, near[lane], atomic, b[lane], c[lane]));
    } else {
        access.check(Near::Local, warp, env, mask)?;
        for_active(mask, |lane| {
            let mut memory = env.local[warp.index as usize].lane(lane);
            old[lane] = update(&mut memory, near[lane], atomic, b[lane], c[lane]);
        });
    }
    Ok(())
}

/// Changes an element of memory that no other thread accesses, and returns its old value.
fn update(memory: &mut impl Words, address: u32, atomic: &AtomicOperands, b: u64, c: u64) -> u64 {
    match atomic.bytes {
        8 => {
            let old = memory.read::<u64>(address);
            memory.write(address, (atomic.change)(old, b, c, true));
            old
        }
        4 => {
            let old = memory.read::<u32>(address);
            memory.write(address, (atomic.change)(old.into(), b, c, true) as u32);
            old.into()
        }
        _ => {
            let old = memory.read::<u16>(address);
            memory.write(address, (atomic.change)(old.into(), b, c, true) as u16);
            old.into()
        }
    }
}

fn device_memory(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    atomic: &AtomicOperands,
    lanes: &LaneGroup<'_>,
    old: &mut [u64; LANES],
) -> Result<(), u32> {
    let LaneGroup { addresses, mask, operands: [b, c] } = *lanes;
    let window = &mut env.windows[atomic.window as usize];
    let change = |lane: usize, value: u64| (atomic.change)(value, b[lane], c[lane], false);
    let done = match atomic.bytes {
        8 => env.view.rmw::<u64>(window, addresses, mask, change, old),
        4 => {
            let mut narrow = [0u32; LANES];
            let done = env.view.rmw::<u32>(
                window,
                addresses,
                mask,
                |lane, value| change(lane, value.into()) as u32,
                &mut narrow,
            );
            for_active(mask, |lane| old[lane] = u64::from(narrow[lane]));
            done
        }
        _ => {
            // The change is one of the word that holds the element. The element itself is checked first.
            let check = env.view.load_with::<u16>(window, addresses, mask, |_, _| {});
            let words = addresses.map(|address| address & !3);
            let shift = |lane: usize| 8 * (addresses[lane] & 2) as u32;
            let mut narrow = [0u32; LANES];
            let done = check.and_then(|()| {
                env.view.rmw::<u32>(
                    window,
                    &words,
                    mask,
                    |lane, word| {
                        let new = change(lane, u64::from(word >> shift(lane) & 0xffff)) as u32 & 0xffff;
                        word & !(0xffff << shift(lane)) | new << shift(lane)
                    },
                    &mut narrow,
                )
            });
            for_active(mask, |lane| old[lane] = u64::from(narrow[lane] >> shift(lane) & 0xffff));
            done
        }
    };
    done.map_err(|refusal| env.refused(warp, inst.line, &refusal))
}
