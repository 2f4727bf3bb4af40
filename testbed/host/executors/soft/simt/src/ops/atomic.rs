//! `atom` and `red`: read-modify-writes, lane by lane in the order of lanes.

use vgpu_ptx::ir::Space;

use crate::machine::{AtomicStep, Baseline, Env, Isa, LANES, Run, Slot, Step, Warp, Words};

use super::memory::{Access, Split};

/// Does a read-modify-write for each active lane. `x`: index of the [`AtomicStep`].
pub(crate) struct Atomic;

impl Run for Atomic {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let tables = env.tables;
        match run(warp, env, step, &tables.atomics[step.x as usize]) {
            Ok(()) => pc + 1,
            Err(failed) => failed,
        }
    }
}

/// The operands of all lanes, extended to 64 bits.
fn operand(warp: &Warp, at: Slot, bytes: u32) -> [u64; LANES] {
    if bytes == 8 { *warp.frame.vector(at) } else { warp.frame.vector::<u32>(at).map(u64::from) }
}

fn run(warp: &mut Warp, env: &mut Env<'_>, step: &Step, atomic: &AtomicStep) -> Result<(), u32> {
    let addresses = warp.frame.vector::<u64>(atomic.base).map(|base| base.wrapping_add_signed(atomic.offset));
    let (b, c) = (operand(warp, atomic.b, atomic.bytes), operand(warp, atomic.c, atomic.bytes));
    let mut old = [0; LANES];
    let split = match atomic.space {
        Space::Generic => Split::by_window(&addresses, warp.mask),
        Space::Shared => Split { shared: warp.mask, ..Split::default() },
        Space::Local => Split { local: warp.mask, ..Split::default() },
        Space::Param => Split { param: warp.mask, ..Split::default() },
        Space::Global => Split::default(),
    };
    let near = addresses.map(|address| match atomic.space {
        Space::Generic => address as u32,
        // An address beyond 4 GiB stays out of bounds.
        _ => u32::try_from(address).unwrap_or(u32::MAX),
    });
    let device = warp.mask & !(split.shared | split.local | split.param);
    if device != 0 {
        device_memory(warp, env, step, atomic, &addresses, device, (&b, &c), &mut old)?;
    }
    let access = Access { addresses: &near, size: atomic.bytes, line: step.line };
    if split.param != 0 {
        return Err(access.refuse_param(warp, env, split.param));
    }
    if split.shared != 0 {
        access.check_shared(warp, env, split.shared)?;
        for lane in (0..LANES).filter(|lane| split.shared >> lane & 1 != 0) {
            old[lane] = update(env.shared, near[lane], atomic, b[lane], c[lane]);
        }
    }
    if split.local != 0 {
        access.check_local(warp, env, split.local)?;
        for lane in (0..LANES).filter(|lane| split.local >> lane & 1 != 0) {
            let mut memory = env.local[warp.index as usize].lane(lane);
            old[lane] = update(&mut memory, near[lane], atomic, b[lane], c[lane]);
        }
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

/// Changes an element of memory that no other thread accesses. Returns its old value.
fn update(memory: &mut impl Words, address: u32, atomic: &AtomicStep, b: u64, c: u64) -> u64 {
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

#[allow(clippy::too_many_arguments, reason = "the parts of one access")]
fn device_memory(
    warp: &mut Warp,
    env: &mut Env<'_>,
    step: &Step,
    atomic: &AtomicStep,
    addresses: &[u64; LANES],
    mask: u32,
    (b, c): (&[u64; LANES], &[u64; LANES]),
    old: &mut [u64; LANES],
) -> Result<(), u32> {
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
            *old = narrow.map(u64::from);
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
            for lane in 0..LANES {
                old[lane] = u64::from(narrow[lane] >> shift(lane) & 0xffff);
            }
            done
        }
    };
    done.map_err(|refusal| env.refused(warp, step.line, &refusal))
}
