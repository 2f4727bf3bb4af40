//! Instructions of the engine, and the loop that interprets them.

use std::fmt;

use super::env::Env;
use super::isa::{Baseline, Features, Isa};
use super::opcode::{Form, Opcode};
use super::slot::{FrameLayout, Slot};
use super::split::WarpSplit;
use super::warp::{LEAVE, Warp};

/// Executes the instruction at an index and returns the index of the next one. [`super::LEAVE`], or any other
/// value that is not the index of an instruction, ends the run. Calling it is unsafe because it may need CPU
/// features that the caller must have checked.
pub(crate) type InstFn = unsafe fn(&mut Warp, &mut Env<'_>, &Inst, u32) -> u32;

/// A lowered instruction: an opcode, its function and its operands.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Inst {
    run: InstFn,
    pub(crate) opcode: Opcode,
    pub(crate) form: Form,
    /// Slot of the destination.
    pub(crate) d: Slot,
    /// Slot of the first source; the next fields are those of the others.
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    /// A constant whose meaning each opcode defines, such as an offset in bytes or a pair of instruction
    /// indices.
    pub(crate) imm: u64,
    /// A constant whose meaning each opcode defines, such as a block number or the index of a record in the
    /// tables. The next field is another one.
    pub(crate) x: u32,
    pub(crate) y: u32,
    /// Line in the module's text.
    pub(crate) line: u32,
    /// Whether inactive lanes of the destination must keep their values.
    pub(crate) blend: bool,
    /// Whether the instruction may run in any floating-point mode that machine code has left.
    plain: bool,
}

impl Inst {
    /// Creates an instruction without operands. `plain` tells that it computes no floating-point number.
    pub(crate) const fn new(run: InstFn, opcode: Opcode, form: Form, plain: bool, line: u32) -> Self {
        let none = Slot::NONE;
        Self {
            run,
            opcode,
            form,
            d: none,
            a: none,
            b: none,
            c: none,
            imm: 0,
            x: 0,
            y: 0,
            line,
            blend: false,
            plain,
        }
    }
}

/// An operation that can be compiled for any instruction set. Implementations are inlined into the
/// instruction's function.
pub(crate) trait Operation: 'static {
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32;
}

fn baseline<R: Operation>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
    R::execute::<Baseline>(warp, env, inst, pc)
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn avx2<R: Operation>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
    R::execute::<super::isa::Avx2>(warp, env, inst, pc)
}

/// Returns the function of an operation, compiled for AVX2 if `features` has it.
pub(crate) fn inst_fn<R: Operation>(features: Features) -> InstFn {
    vector_fn::<R>(features).unwrap_or(baseline::<R>)
}

/// Returns the function of an operation for all CPUs. It is used for scalars, which gain nothing from vector
/// instructions.
pub(crate) fn baseline_fn<R: Operation>() -> InstFn {
    baseline::<R>
}

/// Returns the function of an operation compiled for AVX2, or `None` if `features` or this CPU does not have
/// it.
pub(crate) fn vector_fn<R: Operation>(features: Features) -> Option<InstFn> {
    features.has_vectors().then_some(avx2::<R> as InstFn)
}

/// Machine code for some of a program's instructions. It outlives its session and several threads run it at
/// once, so it contains nothing of a session besides the instructions.
pub(crate) trait Native: fmt::Debug + Send + Sync {
    /// Runs a warp from the instruction `pc` on, if machine code begins there. Returns the instruction with
    /// which to continue, which is `pc` if nothing was executed. The frame of the warp fits the layout for
    /// which the code was made.
    fn enter_warp(&self, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32;

    /// Schedules the warps of a block as [`Code::schedule_warps`] does, beginning with an instruction of one
    /// of them. Returns the warp that continues and its instruction, or [`LEAVE`] if no warp has lanes any
    /// more. All frames fit the layout, and each warp continues at an instruction of the program. `again`
    /// tells that since the last call for the same warps only the one that continues has been touched.
    fn enter_block(
        &self,
        splits: &mut [WarpSplit],
        env: &mut Env<'_>,
        from: (usize, u32),
        again: bool,
    ) -> (usize, u32);

    /// Returns whether the code can schedule the warps of a block.
    fn schedules_warps(&self) -> bool;

    /// Returns the size of the code in bytes.
    fn bytes(&self) -> u64;
}

/// Instructions of a program, and the layout of the frames that contain their slots.
#[derive(Debug)]
pub(crate) struct Code {
    insts: Box<[Inst]>,
    native: Option<Box<dyn Native>>,
    layout: FrameLayout,
}

impl Code {
    /// Creates the code of a program. `layout` must have allocated all slots of the instructions.
    pub(crate) fn new(insts: Vec<Inst>, layout: FrameLayout) -> Self {
        Self { insts: insts.into_boxed_slice(), native: None, layout }
    }

    /// Adds machine code that was generated from these instructions, if there is any.
    pub(crate) fn with_native(self, native: Option<Box<dyn Native>>) -> Self {
        Self { native, ..self }
    }

    /// Returns the size of the machine code in bytes, or 0 if there is none.
    pub(crate) fn native_bytes(&self) -> u64 {
        self.native.as_ref().map_or(0, |native| native.bytes())
    }

    /// Returns whether there is machine code.
    pub(crate) const fn is_native(&self) -> bool {
        self.native.is_some()
    }

    /// Returns the number of instructions.
    pub(crate) const fn len(&self) -> usize {
        self.insts.len()
    }

    pub(crate) const fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// Returns whether machine code schedules the warps of a block.
    pub(crate) fn schedules_warps(&self) -> bool {
        self.native.as_ref().is_some_and(|native| native.schedules_warps())
    }

    /// Returns the block at which a warp continues after the barrier instruction `pc`, the index of the
    /// barrier's record, and the line.
    pub(crate) fn arrival(&self, pc: u32) -> (u32, u32, u32) {
        let inst = &self.insts[pc as usize];
        (inst.x, inst.y, inst.line)
    }

    /// Runs the warps of a block in machine code. Each runs until it arrives at a barrier or has no lanes,
    /// and all run again once they have arrived. The run begins with an instruction of one of them. Returns
    /// the warp that has stopped for another reason, or `None` when no warp has lanes any more.
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
        assert!(splits.iter().all(fits), "frames and instructions of this program");
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

    /// Executes instructions from `pc` on until one leaves. The reason is in the warp's `exit`.
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

    /// Returns the instruction `pc`.
    pub(crate) fn inst(&self, pc: u32) -> &Inst {
        &self.insts[pc as usize]
    }

    /// Executes the instruction `pc` alone, in the interpreter. Returns the index of the next.
    pub(crate) fn step(&self, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32 {
        assert!(warp.frame.fits(&self.layout), "a frame of this program");
        Self::interpret(&self.insts[pc as usize], warp, env, pc)
    }

    /// Executes one instruction in the interpreter. Returns the index of the next.
    #[inline(always)]
    fn interpret(inst: &Inst, warp: &mut Warp, env: &mut Env<'_>, pc: u32) -> u32 {
        if !inst.plain {
            env.context.mode.restore();
        }
        // SAFETY: the function came from `inst_fn`, which gave it out for a CPU that can run it.
        unsafe { (inst.run)(warp, env, inst, pc) }
    }
}
