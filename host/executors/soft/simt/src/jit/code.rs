//! Machine code in memory and the calls to it, which contain all of the translators' unsafe code.
//!
//! Memory is written before it becomes executable, and is never both writable and executable. The assembled
//! code must keep to these invariants:
//! - Slots are within frames of the code's layout, and [`Native::enter_warp`] is only called with such
//!   frames.
//! - Every access to device or shared memory is first compared with a window of the view, or with the size of
//!   shared memory. `vgpu_arena::Windows` only holds windows of the view's own table.
//! - Floating-point exceptions are masked. The processor's floating-point mode is the one that the code was
//!   made for, at entry and at every exit.
//! - The code preserves the callee-saved registers. It writes only the frame, the context, and memory that
//!   the kernel may write. If it schedules warps, it also writes the warps of the block and their frames, all
//!   of which fit the layout.

use std::num::NonZeroUsize;
use std::os::raw::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::exits::Placed;
use super::side_exit::{SIDE_EXIT, SideExit};
use crate::machine::{Context, Env, Exit, LEAVE, Native, Warp, WarpSplit};

/// Number of mappings of machine code in this process.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// Maximum number of mappings of machine code: an eighth of the default limit of a process. Further programs
/// are interpreted.
const MOST_MAPPINGS: usize = 8192;

/// Guard that counts one mapping until it is dropped.
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

/// Assembled code and its properties.
pub(super) struct Assembled {
    pub(super) placed: Placed,
    /// Whether the code runs with subnormal floats flushed to zero.
    pub(super) flush: bool,
    /// Whether the code reads the masks of the active lanes from the context.
    pub(super) masks: bool,
    /// Whether the code contains the warp scheduler.
    pub(super) schedules_warps: bool,
    /// Side exits, at which some registers hold values that the frame does not have yet.
    pub(super) side_exits: Vec<SideExit>,
}

/// Machine code of a program in executable memory.
#[derive(Debug)]
pub(super) struct MachineCode {
    _counted: Counted,
    memory: NonNull<c_void>,
    length: usize,
    /// Offset in bytes of the code in the memory.
    before: usize,
    /// Offset of the code of each instruction at which a superblock starts, from the start of the code; 0 for
    /// all others.
    entries: Box<[u32]>,
    /// Offset of the code of each basic block, in the same form.
    targets: Box<[u32]>,
    start: usize,
    /// Whether the code runs with subnormal floats flushed to zero.
    flush: bool,
    /// Whether the code reads the masks of the active lanes from the context.
    masks: bool,
    /// Whether the code contains the warp scheduler.
    schedules_warps: bool,
    /// Side exits, at which some registers hold values that the frame does not have yet.
    side_exits: Box<[SideExit]>,
}

// SAFETY: the memory is only read and executed after `new`, and belongs to this value.
unsafe impl Send for MachineCode {}
// SAFETY: as above.
unsafe impl Sync for MachineCode {}

impl MachineCode {
    /// Makes code executable. Returns `None` if the host has no memory for it, or does not permit it.
    pub(super) fn new(assembled: Assembled, blocks: &[u32]) -> Option<Self> {
        let Assembled { placed, flush, masks, schedules_warps, side_exits } = assembled;
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
            schedules_warps,
            side_exits: side_exits.into(),
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

/// Signature of the entry code. It takes the context and the address at which to continue, and returns the
/// next instruction.
type EntryPoint = unsafe extern "sysv64" fn(*mut Context, *const c_void) -> u32;

impl MachineCode {
    /// Returns the offset of the code for an instruction, if there is such code and the warp has active
    /// lanes.
    fn entry(&self, warp: &Warp, pc: u32) -> Option<u32> {
        self.entries.get(pc as usize).copied().filter(|at| *at != 0 && warp.mask != 0)
    }

    /// Fills in the context for a warp.
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

    /// Runs machine code from an offset on and returns its result. The caller has just prepared the context
    /// for a warp whose frame fits the layout, and for all warps of its block if the code schedules them.
    #[inline]
    fn jump(&self, context: &mut Context, at: u32) -> u32 {
        let code = self.memory.as_ptr().cast_const().wrapping_byte_add(self.before);
        // SAFETY: the code at the start has this signature.
        let enter: EntryPoint = unsafe { std::mem::transmute(code.wrapping_byte_add(self.start)) };
        // SAFETY: the context is as said above, and the address is that of a piece. The code keeps to the
        // invariants of the module.
        unsafe { enter(&raw mut *context, code.wrapping_byte_add(at as usize)) }
    }

    /// Updates the warp after the code has returned. Returns the instruction at which to continue.
    #[inline]
    fn take_over(&self, warp: &mut Warp, context: &Context, next: u32) -> u32 {
        context.leave(warp);
        if next == LEAVE {
            warp.exit = Exit::Done;
        } else if next & SIDE_EXIT != 0 {
            let side_exit = self.side_exits.get((next & !SIDE_EXIT) as usize).expect("a place of this code");
            side_exit.restore(context, &mut warp.frame, self.flush);
            return side_exit.pc;
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
        // The parts are not accessed until the code has returned.
        env.context.enter_scheduler(splits, index, &self.entries);
        let next = self.jump(env.context, at);
        let index = env.context.leave_scheduler();
        (index, self.take_over(&mut splits[index].warp, env.context, next))
    }

    fn schedules_warps(&self) -> bool {
        self.schedules_warps
    }

    fn bytes(&self) -> u64 {
        let tables = 4 * (self.entries.len() + self.targets.len());
        (self.length + tables) as u64 + self.side_exits.iter().map(SideExit::bytes).sum::<u64>()
    }
}
