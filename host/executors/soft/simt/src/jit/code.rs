//! Machine code in memory, and the call of it: all of the translator's unsafe code.
//!
//! Memory is written before it is executable, and never both. What the code does is for the assembler of
//! `emitter` to answer for; it rests on these invariants:
//! * Slots lie within frames of the code's layout, and [`Native::enter_warp`] is called with such frames alone.
//! * Every access to device or shared memory is compared with a window of the view, or with the bytes of
//!   shared memory, before it is made. `vgpu_arena::Windows` holds windows of the view's own table alone.
//! * Floating-point exceptions are masked, and the processor's mode is the one that the code was made for,
//!   also where it is left, whatever it does in between.
//! * The code changes no register that the caller keeps, and no memory but the frame, the context, what a
//!   kernel may write, and, where it runs the parts of a block in turns, these and their frames, all of which
//!   fit the layout.

use std::num::NonZeroUsize;
use std::os::raw::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::departed::{DEPARTED, Departed};
use super::exits::Placed;
use crate::machine::{Context, Env, Exit, LEAVE, Native, Warp, WarpSplit};

/// Number of mappings that machine code has in this process.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// Mappings of machine code at most: an eighth of what a process has by default. Programs beyond are
/// interpreted.
const MOST_MAPPINGS: usize = 8192;

/// A mapping that is counted.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn new() -> Option<Self> {
        let counted = Self;
        (MAPPINGS.fetch_add(1, Ordering::Relaxed) < MOST_MAPPINGS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Assembled code, and what is to be known of it.
pub(super) struct Assembled {
    pub(super) placed: Placed,
    /// Whether subnormal numbers count as zero in it.
    pub(super) flush: bool,
    /// Whether it wants the masks of lanes in memory.
    pub(super) masks: bool,
    /// Whether it runs the parts of a block in turns.
    pub(super) turns: bool,
    /// Where it is left with values in registers.
    pub(super) departed: Vec<Departed>,
}

/// Machine code of a program.
#[derive(Debug)]
pub(super) struct MachineCode {
    _counted: Counted,
    memory: NonNull<c_void>,
    length: usize,
    /// Where it begins in the memory.
    before: usize,
    /// Where the code for each step begins, in bytes; 0 where none does.
    entries: Box<[u32]>,
    /// The same for each block.
    targets: Box<[u32]>,
    start: usize,
    /// Whether subnormal numbers count as zero in it.
    flush: bool,
    /// Whether it wants the masks of lanes in memory.
    masks: bool,
    /// Whether it runs the parts of a block in turns.
    turns: bool,
    /// Where it is left with values in registers.
    departed: Box<[Departed]>,
}

// SAFETY: the memory is only read and executed after `new`, and belongs to this value.
unsafe impl Send for MachineCode {}
// SAFETY: as above.
unsafe impl Sync for MachineCode {}

impl MachineCode {
    /// Makes code executable. `None` if the host has no memory, or does not allow it.
    pub(super) fn new(assembled: Assembled, blocks: &[u32]) -> Option<Self> {
        let Assembled { placed, flush, masks, turns, departed } = assembled;
        let Placed { bytes, before, entries, start } = placed;
        let counted = Counted::new()?;
        let length = NonZeroUsize::new((before + bytes.len()).next_multiple_of(4096))?;
        // SAFETY: a new mapping anywhere disturbs nothing.
        let memory = unsafe {
            mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
        }
        .ok()?;
        let targets =
            blocks.iter().map(|first| entries.get(*first as usize).copied().unwrap_or_default()).collect();
        let entries = entries.into();
        let code = Self {
            _counted: counted,
            memory,
            length: length.get(),
            before,
            entries,
            targets,
            start: start as usize,
            flush,
            masks,
            turns,
            departed: departed.into(),
        };
        let to = memory.as_ptr().cast::<u8>().wrapping_add(before);
        // SAFETY: the mapping is at least as long as the bytes and what is before them, writable, and nobody
        // else's.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: the mapping is this value's own, and nothing refers into it.
        unsafe { mprotect(memory, length.get(), ProtFlags::PROT_READ | ProtFlags::PROT_EXEC) }.ok()?;
        Some(code)
    }
}

impl Drop for MachineCode {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and code runs only while the value is borrowed. Failure
        // leaves it mapped, which harms nobody.
        let _ = unsafe { munmap(self.memory, self.length) };
    }
}

/// The code at the start: takes a context and the address to go on at, and returns the next step.
type Entry = unsafe extern "sysv64" fn(*mut Context, *const c_void) -> u32;

impl MachineCode {
    /// Where machine code begins for a step of a warp that runs.
    fn entry(&self, warp: &Warp, pc: u32) -> Option<u32> {
        self.entries.get(pc as usize).copied().filter(|at| *at != 0 && warp.mask != 0)
    }

    /// Prepares for a run of a warp.
    #[inline]
    fn prepare(&self, warp: &mut Warp, env: &mut Env<'_>) {
        if self.flush {
            env.context.mode.flush_subnormals();
        } else {
            env.context.mode.restore();
        }
        let Env { context, view, windows, shared, local, blocks, .. } = env;
        context.enter(warp, view, windows, (shared, local), (&self.targets, blocks), self.masks);
    }

    /// Runs from an entry on. Returns what the code returns. The context has just been made for a warp whose
    /// frame fits the layout, and for the parts of its block where it runs these in turns.
    #[inline]
    fn jump(&self, context: &mut Context, at: u32) -> u32 {
        let code = self.memory.as_ptr().cast_const().wrapping_byte_add(self.before);
        // SAFETY: the code at the start has this signature.
        let enter: Entry = unsafe { std::mem::transmute(code.wrapping_byte_add(self.start)) };
        // SAFETY: the context is as said above, and the address is that of a piece. The code keeps to the
        // invariants of the module.
        unsafe { enter(&raw mut *context, code.wrapping_byte_add(at as usize)) }
    }

    /// Takes over what the code has left of a warp. Returns the step with which it goes on.
    #[inline]
    fn take_over(&self, warp: &mut Warp, context: &Context, next: u32) -> u32 {
        context.leave(warp);
        if next == LEAVE {
            warp.exit = Exit::Done;
        } else if next & DEPARTED != 0 {
            let departed = self.departed.get((next & !DEPARTED) as usize).expect("a place of this code");
            departed.settle(context, &mut warp.frame, self.flush);
            return departed.pc;
        }
        next
    }
}

impl Native for MachineCode {
    fn enter_warp(&self, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32 {
        let Some(at) = self.entry(warp, pc) else { return pc };
        self.prepare(warp, env);
        let next = self.jump(env.context, at);
        self.take_over(warp, env.context, next)
    }

    fn enter_block(
        &self,
        splits: &mut [WarpSplit],
        env: &mut Env<'_>,
        (index, pc): (usize, u32),
        again: bool,
    ) -> (usize, u32) {
        let Env { context, local, .. } = &mut *env;
        context.bind(splits, local, again.then_some(index));
        let Some(at) = self.entry(&splits[index].warp, pc) else { return (index, pc) };
        self.prepare(&mut splits[index].warp, env);
        // Nobody looks at the parts until the code has returned.
        env.context.enter_scheduler(splits, index, &self.entries);
        let next = self.jump(env.context, at);
        let index = env.context.leave_scheduler();
        (index, self.take_over(&mut splits[index].warp, env.context, next))
    }

    fn schedules_warps(&self) -> bool {
        self.turns
    }

    fn bytes(&self) -> u64 {
        let tables = 4 * (self.entries.len() + self.targets.len());
        (self.length + tables) as u64 + self.departed.iter().map(Departed::bytes).sum::<u64>()
    }
}
