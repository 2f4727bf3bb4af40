//! Steps: lowered instructions, and the loop that runs them.

use std::any::TypeId;
use std::fmt;

use super::env::Env;
use super::isa::{Baseline, Features, Isa};
use super::part::Part;
use super::slot::{Layout, Slot};
use super::warp::{LEAVE, Warp};

/// Runs the step at an index and returns the index of the next. [`super::LEAVE`], and anything else that is
/// not the index of a step, ends the run. Unsafe to call: it may need CPU features.
pub(crate) type StepFn = unsafe fn(&mut Warp, &mut Env<'_>, &Step, u32) -> u32;

/// One lowered instruction.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Step {
    run: StepFn,
    /// What the function does: the type of its [`Run`].
    pub(crate) does: TypeId,
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

impl Step {
    pub(crate) fn new<R: Run>(run: StepFn, line: u32) -> Self {
        let (does, none) = (TypeId::of::<R>(), Slot::NONE);
        Self {
            run,
            does,
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
pub(crate) trait Run: 'static {
    /// Whether it computes no floating-point number, so that it may run in whatever mode machine code left.
    const PLAIN: bool = false;

    fn run<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32;
}

fn baseline<R: Run>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
    R::run::<Baseline>(warp, env, step, pc)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn avx2<R: Run>(warp: &mut Warp, env: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
    R::run::<super::isa::Avx2>(warp, env, step, pc)
}

/// The function of a step.
pub(crate) fn step_fn<R: Run>(features: Features) -> StepFn {
    match features {
        #[cfg(target_arch = "x86_64")]
        _ if features.has_vectors() => avx2::<R>,
        _ => baseline::<R>,
    }
}

/// The function of a step that is the same for all instruction sets, because scalars gain nothing from
/// vectors.
pub(crate) fn common_fn<R: Run>() -> StepFn {
    baseline::<R>
}

/// The function of a step that only the best instruction set has. `None` if `features` or this CPU is less.
pub(crate) fn best_fn<R: Run>(features: Features) -> Option<StepFn> {
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
    fn run(&self, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32;

    /// Runs the parts of a block in turns, as [`Code::turns`] does, from a step of one of them on. Returns
    /// the part that goes on, and with which step: [`LEAVE`] if no part has lanes any more. The frames of all
    /// of them fit the layout, and each goes on at a step of the program. `again`: since the last call for
    /// the same parts, nothing has touched any but the one that goes on.
    fn turn(&self, parts: &mut [Part], env: &mut Env<'_>, from: (usize, u32), again: bool) -> (usize, u32);

    /// Whether it runs parts in turns.
    fn takes_turns(&self) -> bool;

    /// Bytes of memory that it takes.
    fn bytes(&self) -> u64;
}

/// The steps of a program, and the layout of the frame in which their slots lie.
#[derive(Debug)]
pub(crate) struct Code {
    steps: Box<[Step]>,
    native: Option<Box<dyn Native>>,
    layout: Layout,
}

impl Code {
    /// Takes the steps of a program. `layout` must have allocated all their slots.
    pub(crate) fn new(steps: Vec<Step>, layout: Layout) -> Self {
        Self { steps: steps.into_boxed_slice(), native: None, layout }
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
        self.steps.len()
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether machine code runs the parts of a block in turns.
    pub(crate) fn takes_turns(&self) -> bool {
        self.native.as_ref().is_some_and(|native| native.takes_turns())
    }

    /// The block at which a warp goes on behind the barrier of step `pc`, its record, and the line.
    pub(crate) fn arrival(&self, pc: u32) -> (u32, u32, u32) {
        let step = &self.steps[pc as usize];
        (step.x, step.y, step.line)
    }

    /// Runs the parts of a block one after another, as far as machine code does that: each until it arrives
    /// at a barrier or has no lanes, and all again when they have arrived. Begins with a step of one of them.
    /// Returns the part that has left otherwise, or `None` when no part has lanes any more.
    pub(crate) fn turns(
        &self,
        parts: &mut [Part],
        env: &mut Env<'_>,
        (mut index, mut pc): (usize, u32),
    ) -> Option<usize> {
        let native = self.native.as_ref()?;
        let fits =
            |part: &Part| part.warp.frame.fits(&self.layout) && (part.turn.pc as usize) < self.steps.len();
        assert!(parts.iter().all(fits), "frames and steps of this program");
        let mut again = false;
        loop {
            (index, pc) = native.turn(parts, env, (index, pc), again);
            if pc == LEAVE {
                return None;
            }
            env.handed += 1;
            again = true;
            pc = Self::step(&self.steps[pc as usize], &mut parts[index].warp, env, pc);
            if pc == LEAVE {
                return Some(index);
            }
        }
    }

    /// Runs steps from `pc` on until one leaves.
    pub(crate) fn run(&self, warp: &mut Warp, env: &mut Env<'_>, mut pc: u32) {
        assert!(warp.frame.fits(&self.layout), "a frame of this program");
        while pc != LEAVE {
            if let Some(native) = &self.native {
                pc = native.run(warp, env, pc);
                env.handed += u64::from(pc != LEAVE);
            }
            let Some(step) = self.steps.get(pc as usize) else { return };
            pc = Self::step(step, warp, env, pc);
        }
    }

    /// Runs one step. Returns the next.
    #[inline(always)]
    fn step(step: &Step, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32 {
        if !step.plain {
            env.context.mode.settle();
        }
        // SAFETY: the function came from `step_fn`, which gave it out for a CPU that can run it.
        unsafe { (step.run)(warp, env, step, pc) }
    }
}
