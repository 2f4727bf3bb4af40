//! What all of lowering uses: the kernel on its way, and places of operands.

use std::collections::HashMap;

use vgpu_ptx::ir::{self, Base, Class, Guard, Kernel, Operand, Reg};
use vgpu_ptx::{Effort, Spent};

use crate::env::Tables;
use crate::machine::{Features, Layout, Run, Slot, Step, best_fn, common_fn, step_fn};
use crate::meetings::{Point, Recorder};
use crate::ops::{Place, control, convert, special};
use crate::program::{Initial, MemoryStep, Registers, Special};

use super::meeting;
use super::slots::{self, Allocation};

/// Done, or what is wrong.
pub(crate) type Lowered<T = ()> = Result<T, String>;

/// Why a kernel is not lowered, before its first instruction is.
pub(super) enum BuildError {
    Wrong(String),
    Spent(Spent),
}

impl From<String> for BuildError {
    fn from(what: String) -> Self {
        Self::Wrong(what)
    }
}

impl From<Spent> for BuildError {
    fn from(spent: Spent) -> Self {
        Self::Spent(spent)
    }
}

/// Frames that are larger than this are refused: no real kernel comes near.
const LARGEST_FRAME: u32 = 64 << 20;

/// Steps of a straight line, counted along every way through the text, between two looks at the control.
pub(super) const LOOK: usize = 1024;

/// Slots for values within one instruction.
#[derive(Debug, Default)]
struct Temporaries {
    slots: Vec<Slot>,
    used: usize,
}

impl Temporaries {
    fn take(&mut self, make: impl FnOnce() -> Slot) -> Slot {
        if self.used == self.slots.len() {
            self.slots.push(make());
        }
        self.used += 1;
        self.slots[self.used - 1]
    }
}

/// A kernel on its way to a program.
pub(crate) struct Builder<'a> {
    pub(super) kernel: &'a Kernel,
    globals: &'a [u64],
    pub(super) features: Features,
    pub(super) layout: Layout,
    pub(super) steps: Vec<Step>,
    /// Steps that run once a warp and launch.
    prologue: Vec<Step>,
    /// Where the line that is being lowered began: at a look, or so many steps ago on the longest way to here. The
    /// same of the prologue.
    pub(super) line_start: isize,
    prologue_line_start: isize,
    /// By block of the kernel: the most steps since a look that a way forward to it has.
    pub(super) reach: Vec<usize>,
    /// What lanes must agree on at steps where they wait for others.
    pub(super) meetings: Recorder,
    /// The same of the block's instructions, the next one last, and of the one that is being lowered, with its first step.
    agreements: Vec<(u32, Point)>,
    agreement: Option<(usize, Point)>,
    pub(super) tables: Tables,
    pub(super) registers: Registers,
    pub(super) initial: Initial,
    pub(super) windows: u32,
    /// First step of each lowered block.
    pub(super) blocks: Vec<u32>,
    /// Lowered block of each block of the kernel.
    pub(super) block_numbers: Vec<u32>,
    /// How many edges lead to each block of the kernel.
    pub(super) entries: Vec<u32>,
    /// Steps that go to other blocks, to be linked.
    pub(super) jumps: Vec<usize>,
    allocation: Allocation,
    /// Registers whose floating-point values are never subnormal.
    pub(super) normal: Vec<bool>,
    scalars: HashMap<u64, Slot>,
    /// What constant a slot holds.
    constants: HashMap<Slot, u64>,
    vectors: HashMap<(u64, bool), Slot>,
    specials: HashMap<Special, Place>,
    temporary_scalars: Temporaries,
    temporary_narrow: Temporaries,
    temporary_wide: Temporaries,
    /// The block of the kernel that is being lowered.
    pub(super) block: usize,
    line: u32,
}

/// Bytes of a register.
pub(super) const fn class_bytes(class: Class) -> u32 {
    match class {
        Class::Pred => 1,
        Class::B16 => 2,
        Class::B32 => 4,
        Class::B64 => 8,
    }
}

/// Whether all registers and blocks that a kernel names are there: the analyses rely on it.
fn check_ranges(kernel: &Kernel) -> Lowered {
    let count = kernel.registers.len() as u32;
    let mut beyond = None;
    let mut check = |reg: Reg| {
        if reg.0 >= count {
            beyond = Some(reg.0);
        }
    };
    for inst in &kernel.code {
        vgpu_ptx::analysis::reads(&inst.op, &mut check);
        vgpu_ptx::analysis::writes(&inst.op, &mut check);
    }
    for block in &kernel.blocks {
        if let ir::Terminator::Branch { guard, .. } = block.end {
            check(guard.reg);
        }
        if block.code.start > block.code.end || block.code.end as usize > kernel.code.len() {
            return Err(format!("a block of the code {:?}", block.code));
        }
    }
    beyond.map_or(Ok(()), |reg| Err(format!("no register {reg}")))
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        kernel: &'a Kernel,
        globals: &'a [u64],
        features: Features,
        aligned: bool,
        effort: &Effort,
    ) -> Result<Self, BuildError> {
        let mut layout = Layout::new();
        let mut registers = Registers::default();
        check_ranges(kernel)?;
        let (block_numbers, entries) = super::flow::number_blocks(kernel)?;
        let allocation = slots::allocate(kernel, aligned, &mut layout, &mut registers, effort)?;
        if layout.bytes() > LARGEST_FRAME {
            return Err(format!("its registers take {} bytes of a warp", layout.bytes()).into());
        }
        let mut builder = Self {
            kernel,
            globals,
            features,
            layout,
            steps: Vec::with_capacity(kernel.code.len() + kernel.blocks.len()),
            prologue: Vec::new(),
            line_start: 0,
            prologue_line_start: 0,
            reach: vec![0; kernel.blocks.len()],
            meetings: Recorder::default(),
            agreements: Vec::new(),
            agreement: None,
            tables: Tables::default(),
            registers,
            initial: Initial::default(),
            windows: 0,
            blocks: Vec::with_capacity(kernel.blocks.len()),
            block_numbers,
            entries,
            jumps: Vec::new(),
            allocation,
            normal: super::arithmetic::never_subnormal(kernel, effort)?,
            scalars: HashMap::new(),
            constants: HashMap::new(),
            vectors: HashMap::new(),
            specials: HashMap::new(),
            temporary_scalars: Temporaries::default(),
            temporary_narrow: Temporaries::default(),
            temporary_wide: Temporaries::default(),
            block: 0,
            line: 0,
        };
        builder.place_constants()?;
        Ok(builder)
    }

    /// Begins an instruction.
    pub(super) fn begin(&mut self, line: u32) {
        self.line = line;
        self.temporary_scalars.used = 0;
        self.temporary_narrow.used = 0;
        self.temporary_wide.used = 0;
    }

    /// A step, to be filled in.
    pub(super) fn step<R: Run>(&self) -> Step {
        Step::new(step_fn::<R>(self.features), self.line)
    }

    /// A step that is the same for all instruction sets.
    pub(super) fn common<R: Run>(&self) -> Step {
        Step::new(common_fn::<R>(), self.line)
    }

    /// A step that saves some work and that the best instruction set alone has.
    pub(super) fn best<R: Run>(&self) -> Option<Step> {
        best_fn::<R>(self.features).map(|run| Step::new(run, self.line))
    }

    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Whether an instruction runs once a warp and launch.
    pub(super) fn runs_once(&self, instruction: u32) -> bool {
        self.allocation.invariants.once.get(instruction as usize).copied().unwrap_or(false)
    }

    /// Begins a block, as far as the meeting of lanes goes.
    pub(super) fn begin_agreements(&mut self, block: usize) {
        let Allocation { analysis, places, .. } = &self.allocation;
        self.agreements = meeting::agreements(self.kernel, block, analysis, places, &mut self.meetings);
    }

    /// Begins an instruction, where lanes may wait for others.
    pub(super) fn begin_meeting(&mut self, instruction: u32) {
        // Those of instructions that were lowered together with an earlier one are passed over.
        while self.agreements.last().is_some_and(|(at, _)| *at < instruction) {
            self.agreements.pop();
        }
        let here = self.agreements.pop_if(|(at, _)| *at == instruction);
        self.agreement = here.map(|(_, point)| (self.steps.len(), point));
    }

    /// What lanes must agree on that meet at the barrier that is being lowered.
    pub(super) fn take_agreement(&mut self) -> Lowered<Point> {
        self.agreement
            .take()
            .map(|(_, point)| point)
            .ok_or_else(|| "a barrier where none was seen".to_owned())
    }

    /// Ends an instruction: lanes may wait at any of its steps.
    pub(super) fn end_meeting(&mut self) {
        let Some((first, point)) = self.agreement.take() else { return };
        for step in first..self.steps.len() {
            self.meetings.step(step as u32, point);
        }
    }

    /// Lowers something to steps that run once a warp and launch.
    pub(super) fn in_prologue(&mut self, lower: impl FnOnce(&mut Self) -> Lowered) -> Lowered {
        self.turn_prologue();
        self.look();
        let done = lower(self);
        self.turn_prologue();
        done
    }

    fn turn_prologue(&mut self) {
        std::mem::swap(&mut self.steps, &mut self.prologue);
        std::mem::swap(&mut self.line_start, &mut self.prologue_line_start);
    }

    /// Steps since the last look, on the longest way here.
    pub(super) const fn line_length(&self) -> usize {
        self.steps.len().saturating_add_signed(-self.line_start)
    }

    /// Begins an instruction with a look at the control, if it is time for one.
    pub(super) fn look(&mut self) {
        if self.line_length() < LOOK {
            return;
        }
        let mut step = self.common::<control::Look>();
        step.imm = LOOK as u64;
        self.push(step);
        self.line_start = self.steps.len().cast_signed();
    }

    /// Puts the prologue behind the blocks. Its first step.
    pub(super) fn append_prologue(&mut self) -> u32 {
        let first = self.steps.len() as u32;
        let mut prologue = std::mem::take(&mut self.prologue);
        self.steps.append(&mut prologue);
        let leave = self.common::<control::Leave>();
        self.push(leave);
        first
    }

    // Places

    pub(super) fn temporary_scalar(&mut self) -> Slot {
        self.temporary_scalars.take(|| self.layout.scalar())
    }

    pub(super) fn temporary_vector(&mut self, wide: bool) -> Slot {
        let temporaries = if wide { &mut self.temporary_wide } else { &mut self.temporary_narrow };
        temporaries.take(|| self.layout.vector(wide))
    }

    /// The slot of a constant.
    pub(super) fn constant(&mut self, value: u64) -> Slot {
        if let Some(&slot) = self.scalars.get(&value) {
            return slot;
        }
        let slot = self.layout.scalar();
        self.scalars.insert(value, slot);
        self.constants.insert(slot, value);
        self.initial.scalars.push((slot, value));
        slot
    }

    /// The constant that a place holds, if it is one.
    pub(super) fn constant_of(&self, place: Place) -> Option<u64> {
        match place {
            Place::Scalar(slot) => self.constants.get(&slot).copied(),
            Place::Vector(_) => None,
        }
    }

    pub(super) fn class(&self, reg: Reg) -> Lowered<Class> {
        self.kernel.registers.get(reg.0 as usize).copied().ok_or_else(|| format!("no register {}", reg.0))
    }

    pub(super) fn place(&self, reg: Reg) -> Lowered<Place> {
        self.class(reg)?;
        Ok(self.allocation.places[reg.0 as usize])
    }

    /// Whether lanes that wait elsewhere, while this block runs, have values of their own in a register.
    pub(super) fn blends(&self, reg: Reg) -> bool {
        self.allocation.analysis.waiting[self.block].contains(reg)
    }

    /// The constant that a register always holds.
    pub(super) fn constant_register(&self, reg: Reg) -> Option<u64> {
        self.constant_of(*self.allocation.places.get(reg.0 as usize)?)
    }

    /// Gives registers that always hold a constant its place.
    fn place_constants(&mut self) -> Lowered {
        let mut constants: Vec<(Reg, Operand)> = self.allocation.constants.drain().collect();
        constants.sort_unstable_by_key(|(reg, _)| *reg);
        for (reg, value) in constants {
            let place = self.source(&value, class_bytes(self.class(reg)?))?;
            self.allocation.places[reg.0 as usize] = place;
        }
        Ok(())
    }

    /// Whether nobody reads a register.
    pub(super) fn is_dead(&self, reg: Reg) -> bool {
        self.allocation.reads[reg.0 as usize] == 0
    }

    /// Whether exactly one instruction reads a register, once.
    pub(super) fn is_read_once(&self, reg: Reg) -> bool {
        self.allocation.reads[reg.0 as usize] == 1
    }

    /// Whether a register is the value of a parameter from the start.
    pub(super) fn is_parameter(&self, reg: Reg) -> Option<Slot> {
        self.allocation.parameters.get(&reg).copied()
    }

    /// A register that is to have `bytes`.
    pub(super) fn register(&self, reg: Reg, bytes: u32) -> Lowered<Place> {
        let has = class_bytes(self.class(reg)?);
        if has != bytes {
            return Err(format!("register {} has {has} bytes, not {bytes}", reg.0));
        }
        self.place(reg)
    }

    /// An operand of `bytes`.
    pub(super) fn source(&mut self, operand: &Operand, bytes: u32) -> Lowered<Place> {
        match *operand {
            Operand::Reg(reg) => self.register(reg, bytes),
            Operand::Imm(value) => {
                let value = if bytes < 8 { value & ((1 << (8 * bytes)) - 1) } else { value };
                Ok(Place::Scalar(self.constant(value)))
            }
            Operand::Special(special) => self.special_operand(special, bytes),
            Operand::Address(base, offset) => {
                let address = self.address(base)?.wrapping_add_signed(offset);
                let address = if bytes < 8 { address & ((1 << (8 * bytes)) - 1) } else { address };
                Ok(Place::Scalar(self.constant(address)))
            }
        }
    }

    /// An address that is known now.
    pub(super) fn address(&self, base: Base) -> Lowered<u64> {
        match base {
            Base::Zero => Ok(0),
            Base::DynamicShared => Ok(self.kernel.dynamic_shared_offset.into()),
            Base::Global(index) => {
                self.globals.get(index as usize).copied().ok_or_else(|| format!("no global variable {index}"))
            }
            Base::Reg(_) => Err("an address of a register".into()),
        }
    }

    /// An operand of the width of its register, for instructions that take wider ones; and that width. Others have `bytes`.
    pub(super) fn loose_source(&mut self, operand: &Operand, bytes: u32) -> Lowered<(Place, u32)> {
        let width = match *operand {
            Operand::Reg(reg) => class_bytes(self.class(reg)?),
            _ => bytes,
        };
        if width < bytes {
            return Err(format!("an operand of {width} bytes where {bytes} are needed"));
        }
        Ok((self.source(operand, width)?, width))
    }

    /// Where a predicate is, and what it is xored with.
    pub(super) fn guard(&self, guard: Guard) -> Lowered<(Place, u32)> {
        Ok((self.register(guard.reg, 1)?, if guard.negated { u32::MAX } else { 0 }))
    }

    fn special_operand(&mut self, special: ir::Special, bytes: u32) -> Lowered<Place> {
        let clock = match special {
            ir::Special::Clock | ir::Special::Clock64 => Some(self.common::<special::Clock>()),
            ir::Special::GlobalTimer => Some(self.common::<special::GlobalTimer>()),
            _ => None,
        };
        if let Some(mut step) = clock {
            step.d = self.temporary_scalar();
            let place = Place::Scalar(step.d);
            self.push(step);
            return Ok(place);
        }
        let place = self.special(special);
        match (bytes, place) {
            (4, _) => Ok(place),
            (2, _) => self.apply1::<convert::Low16>(place),
            (8, _) => self.apply1::<convert::Widen>(place),
            _ => Err(format!("a special register as an operand of {bytes} bytes")),
        }
    }

    /// Where a special register of 32 bits is.
    fn special(&mut self, special: ir::Special) -> Place {
        if let ir::Special::Ctaid(axis) = special {
            let key = Special::Ptx(special);
            if let Some(&place) = self.specials.get(&key) {
                return place;
            }
            let slot = self.layout.scalar();
            self.initial.block.push((slot, axis));
            self.specials.insert(key, Place::Scalar(slot));
            return Place::Scalar(slot);
        }
        let lanes = match special {
            ir::Special::Tid(0)
            | ir::Special::LaneId
            | ir::Special::LaneMaskEq
            | ir::Special::LaneMaskLe
            | ir::Special::LaneMaskLt
            | ir::Special::LaneMaskGe
            | ir::Special::LaneMaskGt => true,
            ir::Special::Tid(_) => !self.allocation.tid_yz_uniform,
            _ => false,
        };
        self.initial_value(Special::Ptx(special), lanes)
    }

    /// The place of a value that frames hold from the start.
    fn initial_value(&mut self, special: Special, lanes: bool) -> Place {
        if let Some(&place) = self.specials.get(&special) {
            return place;
        }
        let place = if lanes {
            Place::Vector(self.layout.vector(false))
        } else {
            Place::Scalar(self.layout.scalar())
        };
        self.specials.insert(special, place);
        self.initial.specials.push((special, place));
        place
    }

    /// An element of the parameters as a register of `to` bytes.
    pub(super) fn parameter(&mut self, offset: u32, bytes: u32, signed: bool, to: u32) -> Place {
        self.initial_value(Special::Parameter { offset, bytes, signed, to }, false)
    }

    /// Sets the slot of a register that is a parameter's value from the start.
    pub(super) fn initial_parameter(&mut self, slot: Slot, special: Special) {
        self.initial.specials.push((special, Place::Scalar(slot)));
    }

    /// The vector of a place: itself, or one whose lanes all have the scalar.
    pub(super) fn vector(&mut self, place: Place, wide: bool) -> Slot {
        let scalar = match place {
            Place::Vector(slot) => return slot,
            Place::Scalar(slot) => slot,
        };
        if let Some(&value) = self.constants.get(&scalar) {
            let value = if wide { value } else { value & 0xffff_ffff };
            if let Some(&slot) = self.vectors.get(&(value, wide)) {
                return slot;
            }
            let slot = self.layout.vector(wide);
            self.vectors.insert((value, wide), slot);
            if wide {
                self.initial.wide_vectors.push((slot, value));
            } else {
                self.initial.narrow_vectors.push((slot, value as u32));
            }
            return slot;
        }
        let slot = self.temporary_vector(wide);
        self.splat(scalar, slot, wide, false);
        slot
    }

    /// The scalar of a place: itself, or the lowest active lane's value.
    pub(super) fn scalar(&mut self, place: Place) -> Slot {
        match place {
            Place::Scalar(slot) => slot,
            Place::Vector(slot) => {
                let mut step = self.common::<crate::ops::warps::Elect>();
                step.a = slot;
                step.d = self.temporary_scalar();
                let slot = step.d;
                self.push(step);
                slot
            }
        }
    }

    /// A list of slots in the tables.
    pub(super) fn slots(&mut self, slots: &[Slot]) -> u32 {
        let mut list = [Slot::NONE; 4];
        for (to, from) in list.iter_mut().zip(slots) {
            *to = *from;
        }
        self.tables.memory.push(MemoryStep { slots: list });
        self.tables.memory.len() as u32 - 1
    }
}
