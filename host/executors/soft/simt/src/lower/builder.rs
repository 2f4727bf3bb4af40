//! The state of lowering one kernel, which all parts of lowering share.

use std::collections::HashMap;

use vgpu_ptx::Effort;
use vgpu_ptx::analysis::{reads, writes};
use vgpu_ptx::ir::{Kernel, Reg, Terminator};

use crate::machine::{
    Features, Form, FrameLayout, Initial, InitialValue, Inst, LaneRegisters, Opcode, Point,
    ReconvergenceRecorder, Slot, Tables, ValueLoc,
};

use super::blocks::{count_entries, number_blocks};
use super::error::{BuildError, Lowered};
use super::globals::Globals;
use super::observation::observing_blocks;
use super::reconvergence;
use super::slots::{self, RegisterAllocation};
use super::subnormal::never_subnormal;

/// Maximum size of a frame in bytes. Kernels with larger frames are refused; no real kernel has one nearly as
/// large.
const LARGEST_FRAME: u32 = 64 << 20;

/// Maximum number of instructions between two polls of the control, along every straight path through the
/// text.
const POLL_INTERVAL: usize = 1024;

/// A slot for temporary values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Temporary {
    pub(super) slot: Slot,
    /// Whether splits of a warp copy the slot where they merge, as they copy registers.
    pub(super) carried: bool,
}

/// Slots for temporary values. They are reused by each PTX instruction.
#[derive(Debug, Default)]
pub(super) struct Temporaries {
    slots: Vec<Temporary>,
    used: usize,
}

impl Temporaries {
    /// Returns a free slot, and creates one if there is none.
    pub(super) fn allocate(&mut self, make: impl FnOnce() -> Slot) -> &mut Temporary {
        if self.used == self.slots.len() {
            self.slots.push(Temporary { slot: make(), carried: false });
        }
        self.used += 1;
        &mut self.slots[self.used - 1]
    }
}

/// A kernel that is being lowered to a program.
pub(crate) struct Builder<'a> {
    pub(super) kernel: &'a Kernel,
    /// Device addresses of the module's variables.
    pub(super) globals: &'a Globals<'a>,
    pub(super) features: Features,
    pub(super) layout: FrameLayout,
    pub(super) insts: Vec<Inst>,
    /// Instructions that run once for each warp of a launch.
    prologue: Vec<Inst>,
    /// Start of the current straight line (code without a poll), as an index into `insts`. It is negative if
    /// the longest path to this point began earlier. The next field is that of the list that is not being
    /// lowered, `insts` or `prologue`.
    pub(super) line_start: isize,
    prologue_line_start: isize,
    /// Number of instructions since the last poll, on the longest forward path to each block of the kernel.
    pub(super) reach: Vec<usize>,
    /// Shared registers on which lanes must agree at instructions where they reconverge.
    pub(super) reconvergence: ReconvergenceRecorder,
    /// Points of the block's PTX instructions at which lanes may wait, in reverse order. The next field has
    /// the point of the instruction that is being lowered, with its first lowered instruction.
    agreements: Vec<(u32, Point)>,
    agreement: Option<(usize, Point)>,
    pub(super) tables: Tables,
    pub(super) registers: LaneRegisters,
    pub(super) initial: Initial,
    pub(super) windows: u32,
    /// First instruction of each lowered block.
    pub(super) blocks: Vec<u32>,
    /// First lowered block of each block of the kernel.
    pub(super) block_numbers: Vec<u32>,
    /// Number of blocks of the kernel before each one that can observe what other lanes do.
    pub(super) observing: Vec<u32>,
    /// Whether lanes with another member mask may wait while the current instruction is executed.
    pub(super) grouped: bool,
    /// Number of edges that lead to each block of the kernel.
    pub(super) entries: Vec<u32>,
    /// Indices of the branches whose targets are not filled in yet (fix-ups).
    pub(super) jumps: Vec<usize>,
    pub(super) allocation: RegisterAllocation,
    /// Whether each register never holds a subnormal number.
    pub(super) normal: Vec<bool>,
    /// Slots of constants, by value. The next map is the reverse.
    pub(super) scalars: HashMap<u64, Slot>,
    pub(super) constants: HashMap<Slot, u64>,
    /// Vectors in which every lane holds the same constant, by the constant and whether lanes have 64 bits.
    pub(super) vectors: HashMap<(u64, bool), Slot>,
    pub(super) specials: HashMap<InitialValue, ValueLoc>,
    pub(super) temporary_scalars: Temporaries,
    pub(super) temporary_narrow: Temporaries,
    pub(super) temporary_wide: Temporaries,
    pub(super) temporary_predicates: Temporaries,
    /// The block of the kernel that is being lowered.
    pub(super) block: usize,
    line: u32,
}

/// Checks that all registers and instructions to which a kernel refers exist. The analyses rely on this. The
/// targets of branches are checked when blocks are numbered.
fn check_ranges(kernel: &Kernel) -> Lowered {
    let count = kernel.registers.len() as u32;
    let mut beyond = None;
    let mut check = |reg: Reg| {
        if reg.0 >= count {
            beyond = Some(reg.0);
        }
    };
    for inst in &kernel.code {
        reads(&inst.op, &mut check);
        writes(&inst.op, &mut check);
    }
    for block in &kernel.blocks {
        if let Terminator::Branch { guard, .. } = block.end {
            check(guard.reg);
        }
        if block.code.start > block.code.end || block.code.end as usize > kernel.code.len() {
            return Err(format!("a block of the code {:?}", block.code));
        }
    }
    beyond.map_or(Ok(()), |reg| Err(format!("no register {reg}")))
}

impl<'a> Builder<'a> {
    /// Analyses a kernel and allocates its registers, without lowering any instruction.
    pub(super) fn new(
        kernel: &'a Kernel,
        globals: &'a Globals<'a>,
        features: Features,
        aligned: bool,
        effort: &Effort,
    ) -> Result<Self, BuildError> {
        let mut layout = FrameLayout::new();
        let mut registers = LaneRegisters::default();
        check_ranges(kernel)?;
        let entries = count_entries(kernel)?;
        let allocation = slots::allocate(kernel, aligned, &mut layout, &mut registers, effort)?;
        if layout.bytes() > LARGEST_FRAME {
            return Err(format!("its registers take {} bytes of a warp", layout.bytes()).into());
        }
        let mut builder = Self {
            kernel,
            globals,
            features,
            layout,
            insts: Vec::with_capacity(kernel.code.len() + kernel.blocks.len()),
            prologue: Vec::new(),
            line_start: 0,
            prologue_line_start: 0,
            reach: vec![0; kernel.blocks.len()],
            reconvergence: ReconvergenceRecorder::default(),
            agreements: Vec::new(),
            agreement: None,
            tables: Tables { independent_lanes: kernel.independent_lanes, ..Tables::default() },
            registers,
            initial: Initial::default(),
            windows: 0,
            blocks: Vec::with_capacity(kernel.blocks.len()),
            block_numbers: Vec::new(),
            observing: observing_blocks(kernel, &allocation.reads),
            grouped: false,
            entries,
            jumps: Vec::new(),
            allocation,
            normal: never_subnormal(kernel, effort)?,
            scalars: HashMap::new(),
            constants: HashMap::new(),
            vectors: HashMap::new(),
            specials: HashMap::new(),
            temporary_scalars: Temporaries::default(),
            temporary_narrow: Temporaries::default(),
            temporary_wide: Temporaries::default(),
            temporary_predicates: Temporaries::default(),
            block: 0,
            line: 0,
        };
        builder.place_constants()?;
        builder.block_numbers = number_blocks(kernel, |op| builder.is_grouped(op));
        Ok(builder)
    }

    /// Starts a PTX instruction at a line of the text, and frees the temporary slots of the previous one.
    pub(super) fn begin(&mut self, line: u32) {
        self.line = line;
        self.temporary_scalars.used = 0;
        self.temporary_narrow.used = 0;
        self.temporary_wide.used = 0;
        self.temporary_predicates.used = 0;
    }

    /// Returns an instruction without operands, or `None` if the opcode has no such form.
    pub(super) fn try_inst(&self, opcode: Opcode, form: Form) -> Option<Inst> {
        Inst::of(opcode, form, self.features, self.line)
    }

    /// Returns an instruction without operands. Fails if the opcode has no such form.
    pub(super) fn inst_of(&self, opcode: Opcode, form: Form) -> Lowered<Inst> {
        self.try_inst(opcode, form).ok_or_else(|| format!("there is no {opcode:?} of the form {form:?}"))
    }

    /// Returns an instruction without operands, of an opcode that has one form.
    pub(super) fn inst(&self, opcode: Opcode) -> Inst {
        self.try_inst(opcode, Form::default()).expect("the only form of the opcode")
    }

    /// Appends an instruction to the program, or to the prologue while that is being lowered.
    pub(super) fn push(&mut self, inst: Inst) {
        self.insts.push(inst);
    }

    /// Returns whether a PTX instruction is a launch invariant, which runs once for each warp of a launch.
    pub(super) fn runs_once(&self, instruction: u32) -> bool {
        self.allocation.invariants.once.get(instruction as usize).copied().unwrap_or(false)
    }

    /// Starts a block by finding the PTX instructions at which lanes may wait, with their reconvergence
    /// points.
    pub(super) fn begin_agreements(&mut self, block: usize) {
        let RegisterAllocation { analysis, places, .. } = &self.allocation;
        self.agreements =
            reconvergence::agreements(self.kernel, block, analysis, places, &mut self.reconvergence);
    }

    /// Starts a PTX instruction at which lanes may wait for others.
    pub(super) fn begin_waits(&mut self, instruction: u32) {
        // Instructions that were lowered together with an earlier one are skipped.
        while self.agreements.last().is_some_and(|(at, _)| *at < instruction) {
            self.agreements.pop();
        }
        let here = self.agreements.pop_if(|(at, _)| *at == instruction);
        self.agreement = here.map(|(_, point)| (self.insts.len(), point));
    }

    /// Records the shared registers that are read after the next instruction, which ends the block. Lanes
    /// that continue there may have run apart.
    pub(super) fn agree_at_end(&mut self, block: usize) {
        let RegisterAllocation { analysis, places, .. } = &self.allocation;
        reconvergence::restart_at_end(self.kernel, block, analysis, places, &mut self.reconvergence);
        let point = self.reconvergence.point();
        self.reconvergence.inst(self.insts.len() as u32, point);
    }

    /// Returns whether lanes may wait for others at the PTX instruction that is being lowered.
    pub(super) const fn waits(&self) -> bool {
        self.agreement.is_some()
    }

    /// Takes the reconvergence point of the barrier that is being lowered.
    pub(super) fn take_agreement(&mut self) -> Lowered<Point> {
        self.agreement
            .take()
            .map(|(_, point)| point)
            .ok_or_else(|| "a barrier where none was seen".to_owned())
    }

    /// Ends a PTX instruction at which lanes may wait. They may do so at any of the instructions that it was
    /// lowered to.
    pub(super) fn end_waits(&mut self) {
        let Some((first, point)) = self.agreement.take() else { return };
        for inst in first..self.insts.len() {
            self.reconvergence.inst(inst as u32, point);
        }
    }

    /// Calls `lower` and adds its instructions to the prologue, which runs once for each warp of a launch.
    pub(super) fn in_prologue(&mut self, lower: impl FnOnce(&mut Self) -> Lowered) -> Lowered {
        self.swap_prologue();
        self.poll_if_due();
        let done = lower(self);
        self.swap_prologue();
        done
    }

    /// Exchanges the list of instructions that is being lowered with the prologue.
    fn swap_prologue(&mut self) {
        std::mem::swap(&mut self.insts, &mut self.prologue);
        std::mem::swap(&mut self.line_start, &mut self.prologue_line_start);
    }

    /// Returns the number of instructions since the last poll, on the longest path to here.
    pub(super) const fn line_length(&self) -> usize {
        self.insts.len().saturating_add_signed(-self.line_start)
    }

    /// Emits a poll of the control if the straight line has become too long.
    pub(super) fn poll_if_due(&mut self) {
        if self.line_length() < POLL_INTERVAL {
            return;
        }
        let mut inst = self.inst(Opcode::Poll);
        inst.imm = POLL_INTERVAL as u64;
        self.push(inst);
        self.line_start = self.insts.len().cast_signed();
    }

    /// Appends the prologue to the blocks. Returns the index of its first instruction.
    pub(super) fn append_prologue(&mut self) -> u32 {
        let first = self.insts.len() as u32;
        let mut prologue = std::mem::take(&mut self.prologue);
        self.insts.append(&mut prologue);
        let leave = self.inst(Opcode::Leave);
        self.push(leave);
        first
    }
}
