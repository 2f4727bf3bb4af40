//! Assembles superblocks for AVX2.

use std::collections::HashMap;

use iced_x86::code_asm::{
    AsmRegister32, CodeAssembler, dword_ptr, eax, ebp, ecx, edx, esi, qword_ptr, r8d, r9d, r10d, r12, rbx,
    rsi, ymm13, ymm14, ymm15, ymmword_ptr,
};

use super::body::{Action, Template};
use super::cache::{Cache, Pair};
use super::memory::LaneAccess;
use super::superblock::{BlockPart, COMPARISONS, Superblock};
use super::{lanes, memory};
use crate::jit::code::Assembled;
use crate::jit::effects::{SIGNS, clears_signs, distance, effects, fields, slots};
use crate::jit::exits::{Exits, Targets};
use crate::jit::live::Liveness;
use crate::jit::pool::ConstantPool;
use crate::jit::uses::Uses;
use crate::jit::value::{Emit, SlotKind};
use crate::jit::{flow, predicate};
use crate::machine::{Context, Inst, LEAVE, Opcode, Slot, Tables, set};

/// Registers that collect the results of a superblock's comparisons.
const COLLECTORS: [AsmRegister32; COMPARISONS] = [r8d, r9d, r10d, ebp];

/// State of assembling one program.
pub(super) struct Emitter<'a> {
    asm: CodeAssembler,
    pool: ConstantPool,
    exits: Exits,
    targets: Targets,
    steps: &'a [Inst],
    tables: &'a Tables,
    /// Values of the scalars that are constant throughout the program.
    constants: &'a HashMap<Slot, u64>,
    flush: bool,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        steps: &'a [Inst],
        tables: &'a Tables,
        constants: &'a HashMap<Slot, u64>,
        (blocks, flush): (usize, bool),
    ) -> Emit<Self> {
        let mut asm = CodeAssembler::new(64)?;
        let schedule = asm.create_label();
        Ok(Self {
            asm,
            pool: ConstantPool::default(),
            exits: Exits::default(),
            targets: Targets { labels: HashMap::new(), schedule, blocks, masks: lanes::masks },
            steps,
            tables,
            constants,
            flush,
        })
    }

    /// Assembles all superblocks. Returns `None` if an instruction needs more registers than there are.
    pub(super) fn assemble(mut self, superblocks: &[Superblock], live: &Liveness) -> Emit<Option<Assembled>> {
        let leave = self.asm.create_label();
        for superblock in superblocks.iter().filter(|superblock| !superblock.interpreted) {
            let label = self.asm.create_label();
            self.targets.labels.insert(superblock.first as u32, label);
        }
        let mut start = self.asm.create_label();
        self.asm.set_label(&mut start)?;
        crate::jit::gate::enter(&mut self.asm, |_| Ok(()))?;
        for (number, superblock) in superblocks.iter().enumerate() {
            if superblock.interpreted {
                let exit = self.exits.at(&mut self.asm, superblock.first as u32);
                self.asm.jmp(exit)?;
                continue;
            }
            if let Some(label) = self.targets.labels.get_mut(&(superblock.first as u32)) {
                self.asm.set_label(label)?;
                self.asm.zero_bytes()?;
            }
            self.emit_superblock(superblock, number, live)?;
        }
        let end = self.exits.at(&mut self.asm, self.steps.len() as u32);
        self.asm.jmp(end)?;
        self.asm.set_label(&mut self.targets.schedule)?;
        let mut finish = self.asm.create_label();
        flow::schedule(&mut self.asm, &self.targets, start, (leave, finish))?;
        self.asm.set_label(&mut finish)?;
        self.asm.mov(eax, LEAVE)?;
        self.asm.jmp(leave)?;
        self.exits.emit(&mut self.asm, leave)?;
        let mut leave = leave;
        self.asm.set_label(&mut leave)?;
        crate::jit::gate::leave(&mut self.asm)?;
        let constants = self.pool.emit(&mut self.asm)?;
        let placed = self.targets.place(&mut self.asm, constants, start, self.steps.len())?;
        let whole = Assembled {
            placed,
            flush: self.flush,
            masks: true,
            schedules_warps: false,
            side_exits: Vec::new(),
        };
        Ok((!self.pool.lacking).then_some(whole))
    }

    fn access(&self, superblock: &Superblock, part: &BlockPart) -> Option<LaneAccess<'a>> {
        let (elements, write) = match part.entry {
            Action::Load(elements) | Action::LoadTwo(elements) | Action::LoadScalar(elements) => {
                (elements, false)
            }
            Action::Store(elements) => (elements, true),
            _ => return None,
        };
        let step = &self.steps[part.index];
        let group = superblock.groups.iter().find(|group| group.place == part.place);
        let by = group.map_or(0, |group| distance(step, elements.memory) - group.from) as i32;
        Some(LaneAccess { step, elements, write, place: part.place, by })
    }

    fn emit_superblock(&mut self, superblock: &Superblock, number: usize, live: &Liveness) -> Emit {
        self.checks(superblock)?;
        self.scalars(superblock)?;
        self.lanes(superblock, number, live)?;
        let Some(BlockPart { index, entry, .. }) = superblock.branch else { return Ok(()) };
        let (step, pc) = (&self.steps[index], index as u32);
        let Self { asm, targets, exits, .. } = self;
        match entry {
            Action::Goto { back } => flow::goto(asm, step, targets, exits, pc, back),
            Action::Return => flow::end(asm, targets),
            Action::Branch { negated, back } => flow::branch(asm, step, targets, exits, pc, (negated, back)),
            _ => Ok(()),
        }
    }

    /// Emits all checks of a superblock. If one fails, the interpreter runs the whole superblock.
    fn checks(&mut self, superblock: &Superblock) -> Emit {
        let restart = superblock.first as u32;
        for part in superblock.checked() {
            let step = &self.steps[part.index];
            let access = self.access(superblock, part);
            let Self { asm, exits, .. } = self;
            match (part.entry, access) {
                (Action::Butterfly { .. }, _) => {
                    flow::check_members(asm, step, exits, restart)?;
                    lanes::copy_exchanged(asm, step, part.place)?;
                }
                (Action::LoadScalar(_), Some(access)) => {
                    let miss = exits.at(asm, restart);
                    memory::check_scalar(asm, access, miss)?;
                }
                _ => {}
            }
        }
        if superblock.groups.is_empty() {
            return Ok(());
        }
        let Self { asm, pool, exits, steps, .. } = self;
        let miss = exits.at(asm, restart);
        for group in &superblock.groups {
            memory::prepare(asm, &steps[group.index], *group, miss)?;
        }
        let mut next = asm.create_label();
        asm.vpxor(ymm15, ymm15, ymm15)?;
        asm.mov(rsi, qword_ptr(r12 + Context::FIRST))?;
        asm.set_label(&mut next)?;
        asm.vmovdqu(ymm14, ymmword_ptr(r12 + rsi + Context::MASKS))?;
        asm.vpermq(ymm13, ymm14, 0b11_01_10_00)?;
        for group in &superblock.groups {
            memory::check(asm, pool, &steps[group.index], *group)?;
        }
        asm.add(rsi, 32)?;
        asm.cmp(rsi, qword_ptr(r12 + Context::END))?;
        asm.jb(next)?;
        asm.vptest(ymm15, ymm15)?;
        asm.jne(miss)
    }

    /// Emits the instructions whose results are scalars.
    fn scalars(&mut self, superblock: &Superblock) -> Emit {
        let mut uses = Uses::default();
        for part in &superblock.scalars {
            let effects = effects(&self.steps[part.index], self.tables);
            effects.scalar_reads.iter().for_each(|&slot| uses.reads(part.index, slot));
            effects.scalar_writes.iter().for_each(|&slot| uses.writes(part.index, slot));
        }
        let accesses: Vec<_> = superblock.scalars.iter().map(|part| self.access(superblock, part)).collect();
        let tables = self.tables;
        let mut e = Cache::new(&mut self.asm, &mut self.pool, &uses, self.flush);
        for (part, access) in superblock.scalars.iter().zip(accesses) {
            let step = &self.steps[part.index];
            e.begin(part.index);
            match (part.entry, access) {
                (Action::Lanes(template), _) => {
                    let (sources, d) = operands(&mut e, step, &template)?;
                    (template.body)(&mut e, step, d, sources)?;
                    if template.test {
                        invert(&mut e, step, d)?;
                    }
                    let wide = matches!(template.dst, SlotKind::Scalar { wide: true });
                    e.write_scalar(wide, step.d, d.low, template.float && !template.test)?;
                }
                (Action::LoadScalar(elements), Some(access)) => {
                    memory::load_scalar(&mut e, access, &slots(step, step.d, elements.count, tables))?;
                }
                (Action::Logic { shared }, _) => {
                    e.forget(step.d);
                    predicate::logic(e.asm, step, shared)?;
                }
                (Action::SelectScalar { wide }, _) => {
                    e.forget(step.d);
                    predicate::select(e.asm, step, wide)?;
                }
                _ => {}
            }
            e.end();
        }
        Ok(())
    }

    /// Emits a loop that executes the vector instructions of a superblock for eight lanes at a time.
    fn lanes(&mut self, superblock: &Superblock, number: usize, live: &Liveness) -> Emit {
        if superblock.lanes.is_empty() {
            return Ok(());
        }
        let mut uses = Uses::default();
        for part in &superblock.lanes {
            let effects = effects(&self.steps[part.index], self.tables);
            effects.reads.iter().chain(&effects.scalar_reads).for_each(|&slot| uses.reads(part.index, slot));
            effects
                .writes
                .iter()
                .chain(&effects.scalar_writes)
                .for_each(|&slot| uses.writes(part.index, slot));
            effects
                .writes
                .iter()
                .filter(|slot| live.behind(number, **slot))
                .for_each(|&slot| uses.lives(slot));
        }
        let accesses: Vec<_> = superblock.lanes.iter().map(|part| self.access(superblock, part)).collect();
        let mut collected: Vec<Slot> = Vec::new();
        let count = superblock.lanes.iter().filter(|part| collects(part.entry)).count();
        for collector in COLLECTORS.into_iter().take(count) {
            self.asm.xor(collector, collector)?;
        }
        let mut next = self.asm.create_label();
        self.asm.mov(rsi, qword_ptr(r12 + Context::FIRST))?;
        self.asm.set_label(&mut next)?;
        let (steps, tables, constants) = (self.steps, self.tables, self.constants);
        let mut e = Cache::new(&mut self.asm, &mut self.pool, &uses, self.flush);
        for (part, access) in superblock.lanes.iter().zip(accesses) {
            let step = &steps[part.index];
            e.begin(part.index);
            match (part.entry, access) {
                (Action::Lanes(template), _) => {
                    let (sources, d) = operands(&mut e, step, &template)?;
                    (template.body)(&mut e, step, d, sources)?;
                    if let SlotKind::Vector { wide } = template.dst {
                        e.write(wide, step.d, d, step.blend, template.float)?;
                        if !step.blend && clears_signs(step, |slot| constants.get(&slot).copied()) {
                            e.note_small(step.d);
                        }
                    } else {
                        let wide = template.sources[0] == (SlotKind::Vector { wide: true })
                            || template.sources[1] == (SlotKind::Vector { wide: true });
                        if wide {
                            super::convert::words(&mut e, false, d.low, d.low, d.high)?;
                        }
                        invert(&mut e, step, d)?;
                        collect(&mut e, COLLECTORS[collected.len()], step, d)?;
                        collected.push(step.d);
                    }
                }
                (Action::Logic { .. }, _) => {
                    let d = combine(&mut e, step)?;
                    collect(&mut e, COLLECTORS[collected.len()], step, d)?;
                    collected.push(step.d);
                }
                (Action::Dot4(template), _) => {
                    let ([a, b, c], d) = operands(&mut e, step, &template)?;
                    if e.is_small(step.a) {
                        super::integer::small_dot4(&mut e, d, [a, b, c])?;
                    } else if e.is_small(step.b) {
                        super::integer::small_dot4(&mut e, d, [b, a, c])?;
                    } else {
                        (template.body)(&mut e, step, d, [a, b, c])?;
                    }
                    e.write(false, step.d, d, step.blend, false)?;
                }
                (Action::Fields, _) => {
                    let fields = fields(step, tables);
                    super::integer::fields(&mut e, step, fields)?;
                    if !step.blend && fields.iter().all(|field| field.mask & SIGNS == 0) {
                        e.note_small(step.d);
                    }
                }
                (Action::Load(elements), Some(access)) => {
                    memory::load(&mut e, access, &slots(step, step.d, elements.count, tables))?;
                }
                (Action::LoadTwo(_), Some(access)) => memory::load(&mut e, access, &[step.d, step.c])?,
                (Action::Store(elements), Some(access)) => {
                    memory::store(&mut e, access, &slots(step, step.b, elements.count, tables))?;
                }
                (Action::Butterfly { by, then }, _) => {
                    lanes::butterfly(&mut e, step, (by, then), part.place)?;
                }
                _ => {}
            }
            e.end();
        }
        e.flush()?;
        let asm = &mut self.asm;
        asm.add(rsi, 32)?;
        asm.cmp(rsi, qword_ptr(r12 + Context::END))?;
        asm.jb(next)?;
        for (collector, slot) in COLLECTORS.into_iter().zip(collected) {
            // Inactive lanes keep their predicates.
            let to = dword_ptr(rbx + slot.offset() as i32);
            asm.xor(collector, to)?;
            asm.and(collector, dword_ptr(r12 + Context::MASK))?;
            asm.xor(to, collector)?;
        }
        Ok(())
    }
}

/// Returns whether a vector instruction produces a predicate.
fn collects(entry: Action) -> bool {
    matches!(entry, Action::Logic { .. } | Action::Lanes(Template { dst: SlotKind::Predicate, .. }))
}

/// Returns the operands of an instruction, and registers for its result.
fn operands(e: &mut Cache<'_>, step: &Inst, template: &Template) -> Emit<([Pair; 3], Pair)> {
    let [a, b, c] = template.sources;
    let sources = [
        e.read(a, step.a, template.float)?,
        e.read(b, step.b, template.float)?,
        e.read(c, step.c, template.float)?,
    ];
    let is_wide =
        |kind: SlotKind| matches!(kind, SlotKind::Vector { wide: true } | SlotKind::Scalar { wide: true });
    let wide = is_wide(template.dst) || (template.test && template.sources.into_iter().any(is_wide));
    Ok((sources, e.result(wide)?))
}

/// Inverts a mask if the instruction's form tells so.
fn invert(e: &mut Cache<'_>, step: &Inst, d: Pair) -> Emit {
    if step.form.inversion(set::D) == 0 {
        return Ok(());
    }
    let ones = e.constant(u32::MAX);
    e.asm.vpxor(d.low, d.low, ones)
}

/// Emits code that appends the bits of eight lanes to those in the collector.
fn collect(e: &mut Cache<'_>, collector: AsmRegister32, step: &Inst, d: Pair) -> Emit {
    e.asm.vmovmskps(ecx, d.low)?;
    e.asm.mov(edx, esi)?;
    e.asm.shr(edx, 2)?;
    e.asm.shlx(ecx, ecx, edx)?;
    e.asm.or(collector, ecx)?;
    e.cache_predicate(step.d, d.low);
    Ok(())
}

/// Emits the logic of predicates that this superblock has computed.
fn combine(e: &mut Cache<'_>, step: &Inst) -> Emit<Pair> {
    let a = e.read(SlotKind::Predicate, step.a, false)?;
    let b = e.read(SlotKind::Predicate, step.b, false)?;
    let (x, y) = (e.result(false)?, e.result(false)?);
    let ones = e.constant(u32::MAX);
    for (to, from, operand) in [(x.low, a.low, set::A), (y.low, b.low, set::B)] {
        if step.form.inversion(operand) == 0 {
            e.asm.vmovdqa(to, from)?;
        } else {
            e.asm.vpxor(to, from, ones)?;
        }
    }
    match step.opcode {
        Opcode::AndPred => e.asm.vpand(x.low, x.low, y.low)?,
        Opcode::OrPred => e.asm.vpor(x.low, x.low, y.low)?,
        _ => e.asm.vpxor(x.low, x.low, y.low)?,
    }
    Ok(x)
}
