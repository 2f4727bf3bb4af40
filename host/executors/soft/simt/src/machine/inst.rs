//! Steps: lowered instructions, and the loop that runs them.

use std::any::TypeId;
use std::fmt;

use super::env::Env;
use super::isa::{Baseline, Features, Isa};
use super::slot::{FrameLayout, Slot};
use super::split::WarpSplit;
use super::warp::{LEAVE, Warp};

/// Runs the step at an index and returns the index of the next. [`super::LEAVE`], and anything else that is
/// not the index of a step, ends the run. Unsafe to call: it may need CPU features.
pub(crate) type InstFn = unsafe fn(&mut Warp, &mut Env<'_>, &Inst, u32) -> u32;

/// One lowered instruction.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Inst {
    run: InstFn,
    /// What the function does: the type of its [`Operation`].
    pub(crate) opcode: TypeId,
    /// Slot of the destination.
    pub(crate) d: Slot,
    /// Slots of the sources.
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    /// A constant whose meaning is the step's own: an offset in bytes, a pair of step indices.
    pub(crate) imm: u64,
    /// Two more constants of the step's own: block numbers, indices of records in the tables.
    pub(crate) x: u32,
    pub(crate) y: u32,
    /// Line of the module's text.
    pub(crate) line: u32,
    /// Whether inactive lanes of the destination must keep their values.
    pub(crate) blend: bool,
    /// Whether it computes no floating-point number, in whatever mode.
    plain: bool,
}

impl Inst {
    pub(crate) fn new<R: Operation>(run: InstFn, line: u32) -> Self {
        let (opcode, none) = (TypeId::of::<R>(), Slot::NONE);
        Self {
            run,
            opcode,
            d: none,
            a: none,
            b: none,
            c: none,
            imm: 0,
            x: 0,
            y: 0,
            line,
            blend: false,
            plain: R::PLAIN,
        }
    }
}

/// An operation, for any instruction set. Implementations are inlined into the step's function.
pub(crate) trait Operation: 'static {
    /// Whether it computes no floating-point number, so that it may run in whatever mode machine code left.
    const PLAIN: bool = false;

    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32;
}

fn baseline<R: Operation>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
    R::execute::<Baseline>(warp, env, inst, pc)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn avx2<R: Operation>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
    R::execute::<super::isa::Avx2>(warp, env, inst, pc)
}

/// The function of a step.
pub(crate) fn inst_fn<R: Operation>(features: Features) -> InstFn {
    match features {
        #[cfg(target_arch = "x86_64")]
        _ if features.has_vectors() => avx2::<R>,
        _ => baseline::<R>,
    }
}

/// The function of a step that is the same for all instruction sets, because scalars gain nothing from
/// vectors.
pub(crate) fn baseline_fn<R: Operation>() -> InstFn {
    baseline::<R>
}

/// The function of a step that only the best instruction set has. `None` if `features` or this CPU is less.
pub(crate) fn vector_fn<R: Operation>(features: Features) -> Option<InstFn> {
    #[cfg(target_arch = "x86_64")]
    if features.has_vectors() {
        return Some(avx2::<R>);
    }
    let _ = features;
    None
}

/// Machine code of some of a program's steps. It is kept from one session to the next, and several run it at
/// once: nothing of a session may be in it but what is in the steps.
pub(crate) trait Native: fmt::Debug + Send + Sync {
    /// Runs from the step `pc` on, if machine code begins there. Returns the step to go on with, which is
    /// `pc` if nothing was done. `frame` fits the layout for which the code was made.
    fn enter_warp(&self, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32;

    /// Runs the parts of a block in turns, as [`Code::turns`] does, from a step of one of them on. Returns
    /// the part that goes on, and with which step: [`LEAVE`] if no part has lanes any more. The frames of all
    /// of them fit the layout, and each goes on at a step of the program. `again`: since the last call for
    /// the same parts, nothing has touched any but the one that goes on.
    fn enter_block(
        &self,
        splits: &mut [WarpSplit],
        env: &mut Env<'_>,
        from: (usize, u32),
        again: bool,
    ) -> (usize, u32);

    /// Whether it runs parts in turns.
    fn schedules_warps(&self) -> bool;

    /// Bytes of memory that it takes.
    fn bytes(&self) -> u64;
}

/// The steps of a program, and the layout of the frame in which their slots lie.
#[derive(Debug)]
pub(crate) struct Code {
    insts: Box<[Inst]>,
    native: Option<Box<dyn Native>>,
    layout: FrameLayout,
}

impl Code {
    /// Takes the steps of a program. `layout` must have allocated all their slots.
    pub(crate) fn new(insts: Vec<Inst>, layout: FrameLayout) -> Self {
        Self { insts: insts.into_boxed_slice(), native: None, layout }
    }

    /// Adds machine code that was made of these steps.
    pub(crate) fn with_native(self, native: Option<Box<dyn Native>>) -> Self {
        Self { native, ..self }
    }

    /// Bytes of machine code.
    pub(crate) fn native_bytes(&self) -> u64 {
        self.native.as_ref().map_or(0, |native| native.bytes())
    }

    /// Whether there is machine code.
    pub(crate) const fn is_native(&self) -> bool {
        self.native.is_some()
    }

    /// Number of steps.
    pub(crate) const fn len(&self) -> usize {
        self.insts.len()
    }

    pub(crate) const fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// Whether machine code runs the parts of a block in turns.
    pub(crate) fn schedules_warps(&self) -> bool {
        self.native.as_ref().is_some_and(|native| native.schedules_warps())
    }

    /// The block at which a warp goes on behind the barrier of step `pc`, its record, and the line.
    pub(crate) fn arrival(&self, pc: u32) -> (u32, u32, u32) {
        let inst = &self.insts[pc as usize];
        (inst.x, inst.y, inst.line)
    }

    /// Runs the parts of a block one after another, as far as machine code does that: each until it arrives
    /// at a barrier or has no lanes, and all again when they have arrived. Begins with a step of one of them.
    /// Returns the part that has left otherwise, or `None` when no part has lanes any more.
    pub(crate) fn schedule_warps(
        &self,
        splits: &mut [WarpSplit],
        env: &mut Env<'_>,
        (mut index, mut pc): (usize, u32),
    ) -> Option<usize> {
        let native = self.native.as_ref()?;
        let fits = |split: &WarpSplit| {
            split.warp.frame.fits(&self.layout) && (split.context.pc as usize) < self.insts.len()
        };
        assert!(splits.iter().all(fits), "frames and insts of this program");
        let mut again = false;
        loop {
            (index, pc) = native.enter_block(splits, env, (index, pc), again);
            if pc == LEAVE {
                return None;
            }
            env.handed += 1;
            again = true;
            pc = Self::interpret(&self.insts[pc as usize], &mut splits[index].warp, env, pc);
            if pc == LEAVE {
                return Some(index);
            }
        }
    }

    /// Runs steps from `pc` on until one leaves.
    pub(crate) fn run_warp(&self, warp: &mut Warp, env: &mut Env<'_>, mut pc: u32) {
        assert!(warp.frame.fits(&self.layout), "a frame of this program");
        while pc != LEAVE {
            if let Some(native) = &self.native {
                pc = native.enter_warp(warp, env, pc);
                env.handed += u64::from(pc != LEAVE);
            }
            let Some(inst) = self.insts.get(pc as usize) else { return };
            pc = Self::interpret(inst, warp, env, pc);
        }
    }

    /// Runs one step. Returns the next.
    #[inline(always)]
    fn interpret(inst: &Inst, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32 {
        if !inst.plain {
            env.context.mode.restore();
        }
        // SAFETY: the function came from `inst_fn`, which gave it out for a CPU that can run it.
        unsafe { (inst.run)(warp, env, inst, pc) }
    }
}
