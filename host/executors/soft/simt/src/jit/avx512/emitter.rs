//! Assembles superblocks for AVX-512.

use std::collections::HashMap;

use iced_x86::code_asm::{CodeAssembler, CodeLabel, dword_ptr, eax, k5, k7, r12, rbx, word_ptr, zmmword_ptr};

use super::body::{Action, Template};
use super::cache::Cache;
use super::exit_site::ExitSite;
use super::loops::Loops;
use super::registers::{Pair, ZMM};
use super::superblock::{BlockPart, CoalescedCheck, Superblock};
use super::{integer, lanes, load, matrices, memory, product, quads, scalar, scheduler, store};
use crate::jit::code::Assembled;
use crate::jit::effects::{clears_signs, effects, fields, list, slots};
use crate::jit::exits::{Exits, Targets};
use crate::jit::live::Liveness;
use crate::jit::pool::ConstantPool;
use crate::jit::side_exit::{SIDE_EXIT, SideExit};
use crate::jit::template::{Elements, MemSpace};
use crate::jit::uses::Uses;
use crate::jit::value::{Emit, SlotKind};
use crate::jit::{flow, gate, predicate};
use crate::machine::{Context, Inst, Slot, Tables, set};
use memory::LaneAccess;

/// State of assembling one program.
pub(super) struct Emitter<'a> {
    asm: CodeAssembler,
    pool: ConstantPool,
    exits: Exits,
    targets: Targets,
    /// Label of the code that lets the next warp run, after the current one has arrived at a barrier.
    over: CodeLabel,
    steps: &'a [Inst],
    tables: &'a Tables,
    /// Values of the scalars that are constant throughout the program.
    constants: &'a HashMap<Slot, u64>,
    flush: bool,
    exit_sites: Vec<ExitSite>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        steps: &'a [Inst],
        tables: &'a Tables,
        constants: &'a HashMap<Slot, u64>,
        (blocks, flush): (usize, bool),
    ) -> Emit<Self> {
        let mut asm = CodeAssembler::new(64)?;
        // The VEX encoding reaches only half of the registers.
        asm.set_prefer_vex(false);
        let schedule = asm.create_label();
        let targets = Targets { labels: HashMap::new(), schedule, blocks, masks: lanes::masks };
        let over = asm.create_label();
        Ok(Self {
            asm,
            pool: ConstantPool::default(),
            exits: Exits::default(),
            targets,
            over,
            steps,
            tables,
            constants,
            flush,
            exit_sites: Vec::new(),
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
        gate::enter(&mut self.asm, lanes::begin)?;
        let (loops, mut lows) = (Loops::find(superblocks, self.steps), Vec::new());
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
            if loops.contains(superblock) {
                let low = self.asm.create_label();
                self.asm.cmp(word_ptr(r12 + (Context::MASK + 2)), 0)?;
                self.asm.je(low)?;
                lows.push((low, number));
            }
            self.emit_superblock(superblock, number, live, 2)?;
        }
        let end = self.exits.at(&mut self.asm, self.steps.len() as u32);
        self.asm.jmp(end)?;
        for (mut low, number) in lows {
            self.asm.set_label(&mut low)?;
            self.emit_superblock(&superblocks[number], number, live, 1)?;
            // The next superblock continues with all lanes.
            let next = superblocks.get(number + 1).map_or(self.steps.len(), |next| next.first) as u32;
            let next = match self.targets.get(next) {
                Some(next) => next,
                None => self.exits.at(&mut self.asm, next),
            };
            self.asm.jmp(next)?;
        }
        self.asm.set_label(&mut self.targets.schedule)?;
        let finish = self.asm.create_label();
        flow::schedule(&mut self.asm, &self.targets, start, (leave, finish))?;
        scheduler::emit(&mut self.asm, start, leave, (finish, self.over))?;
        let side_exits = self.exit_sites(leave)?;
        self.exits.emit(&mut self.asm, leave)?;
        let mut leave = leave;
        self.asm.set_label(&mut leave)?;
        gate::leave(&mut self.asm)?;
        let constants = self.pool.emit(&mut self.asm)?;
        let placed = self.targets.place(&mut self.asm, constants, start, self.steps.len())?;
        let whole = Assembled { placed, flush: self.flush, masks: false, schedules_warps: true, side_exits };
        Ok((!self.pool.lacking).then_some(whole))
    }

    /// Records which instructions of a superblock read and write each slot.
    fn uses(&self, superblock: &Superblock, number: usize, live: &Liveness) -> Uses {
        let mut uses = Uses::default();
        for part in &superblock.parts {
            let effects = effects(&self.steps[part.index], self.tables);
            for root in superblock.roots.iter().filter(|root| root.index == part.index) {
                uses.reads(part.index, root.slot);
            }
            if let Some(access) = part.access {
                uses.reads_root(part.index, superblock.place(&superblock.groups[access.group]));
            }
            effects.reads.iter().chain(&effects.scalar_reads).for_each(|&slot| uses.reads(part.index, slot));
            for &slot in effects.writes.iter().chain(&effects.scalar_writes) {
                uses.writes(part.index, slot);
            }
            for &slot in effects.writes.iter().filter(|slot| live.behind(number, **slot)) {
                uses.lives(slot);
            }
        }
        uses
    }

    /// Assembles a superblock for one or both halves of the vectors.
    fn emit_superblock(
        &mut self,
        superblock: &Superblock,
        number: usize,
        live: &Liveness,
        halves: usize,
    ) -> Emit {
        let uses = self.uses(superblock, number, live);
        let mut exit_sites: Vec<ExitSite> = Vec::new();
        let Self { asm, pool, exits, targets, over, steps, tables, constants, flush, .. } = self;
        let mut e = Cache::new(asm, pool, &uses, &mut exit_sites, constants, (*flush, halves));
        for part in &superblock.parts {
            let step = &steps[part.index];
            e.begin(part.index);
            let group = part.access.map(|access| (access, &superblock.groups[access.group]));
            if let Some((access, group)) = group {
                check(&mut e, superblock, part.index, (access.group, group), steps)?;
            }
            match part.entry {
                _ if step.opcode.row().ends => {
                    e.flush()?;
                    let pc = part.index as u32;
                    match part.entry {
                        Action::Goto { back } => flow::goto(e.asm, step, targets, exits, pc, back)?,
                        Action::Branch { negated, back } => {
                            flow::branch(e.asm, step, targets, exits, pc, (negated, back))?;
                        }
                        Action::Arrive => {
                            let exit = exits.at(e.asm, pc);
                            scheduler::arrive(e.asm, exit, pc, *over)?;
                        }
                        _ => flow::end(e.asm, targets)?,
                    }
                }
                _ => {
                    let access = |elements| {
                        let (root, pointer, by) = match group {
                            Some((access, group)) if group.memory == MemSpace::Global => {
                                (superblock.place(group), access.group, access.by)
                            }
                            Some((access, group)) => {
                                (superblock.place(group), access.group, access.by - group.from)
                            }
                            None => (0, 0, 0),
                        };
                        let first = group.is_some_and(|(_, group)| group.index == part.index);
                        let combined = superblock.combined_loads.get(&part.index);
                        LaneAccess { step, elements, root, pointer, by: by as i32, first, combined }
                    };
                    emit_part(&mut e, part, step, tables, access)?;
                    if let Some(sum) = part.sum {
                        memory::add_up(&mut e, sum)?;
                    }
                }
            }
            e.end();
        }
        if !superblock.parts.last().is_some_and(|part| steps[part.index].opcode.row().ends) {
            e.flush()?;
        }
        self.exit_sites.append(&mut exit_sites);
        Ok(())
    }

    /// Assembles all side exits. A common routine stores all registers to the context, and [`SideExit`] lists
    /// the ones whose values the frame does not have.
    fn exit_sites(&mut self, leave: CodeLabel) -> Emit<Vec<SideExit>> {
        let mut side_exits = Vec::new();
        let mut all = self.asm.create_label();
        for ExitSite { mut label, pc, live } in std::mem::take(&mut self.exit_sites) {
            if live.is_empty() {
                let exit = self.exits.at(&mut self.asm, pc);
                self.asm.set_label(&mut label)?;
                self.asm.jmp(exit)?;
                continue;
            }
            self.asm.set_label(&mut label)?;
            self.asm.mov(eax, SIDE_EXIT | side_exits.len() as u32)?;
            self.asm.jmp(all)?;
            side_exits.push(SideExit { pc, live: live.into() });
        }
        self.asm.set_label(&mut all)?;
        for (number, register) in ZMM.into_iter().enumerate() {
            self.asm.vmovdqu64(zmmword_ptr(r12 + (Context::REGISTERS + 64 * number as i32)), register)?;
        }
        self.asm.jmp(leave)?;
        Ok(side_exits)
    }
}

/// Emits the checks that must precede an instruction and were not made earlier in the superblock.
fn check(
    e: &mut Cache<'_>,
    superblock: &Superblock,
    index: usize,
    (number, group): (usize, &CoalescedCheck),
    steps: &[Inst],
) -> Emit {
    let root = &superblock.roots[group.root];
    let step = &steps[group.index];
    if group.memory != MemSpace::Global {
        if group.index == index {
            memory::check_inner(e, step, root, group)?;
            e.unpin();
        }
        return Ok(());
    }
    if root.index == index {
        memory::summarize(e, root)?;
        e.unpin();
    }
    if group.index == index {
        memory::check_group(e, step, (number, group), root.place)?;
    }
    Ok(())
}

/// Assembles an instruction that does not end its superblock.
fn emit_part<'a>(
    e: &mut Cache<'_>,
    part: &BlockPart,
    step: &'a Inst,
    tables: &Tables,
    access: impl Fn(Elements) -> LaneAccess<'a>,
) -> Emit {
    match part.entry {
        Action::Lanes(template) if matches!(template.dst, SlotKind::Scalar { .. }) => {
            if !scalar::emit(e, step)? {
                scalar_of_lanes(e, step, &template)?;
            }
            Ok(())
        }
        Action::Lanes(template) | Action::Dot4(template) => {
            if template.dst == SlotKind::Predicate {
                return compare(e, step, &template);
            }
            for half in 0..e.halves {
                e.half = half;
                let (sources, d) = operands(e, step, &template)?;
                (template.body)(e, step, d, sources)?;
                let SlotKind::Vector { wide } = template.dst else { continue };
                e.write(wide, step.d, d, step.blend, template.float)?;
                if !step.blend && clears_signs(step, |slot| e.known(slot)) {
                    e.note_small(step.d);
                }
                // The other half needs the registers that this one used as temporaries.
                e.unpin();
            }
            Ok(())
        }
        Action::Fields => {
            for half in 0..e.halves {
                e.half = half;
                integer::fields(e, step, fields(step, tables))?;
                e.unpin();
            }
            Ok(())
        }
        Action::Load(elements) => {
            load::load(e, access(elements), &slots(step, step.d, elements.count, tables))
        }
        Action::LoadTwo(elements) => load::load(e, access(elements), &[step.d, step.c]),
        Action::Store(elements) => {
            store::store(e, access(elements), &slots(step, step.b, elements.count, tables))
        }
        Action::LoadScalar(elements) => {
            let slots = slots(step, step.d, elements.count, tables);
            memory::load_scalar(e, access(elements), &slots)
        }
        Action::Butterfly { by, then } => lanes::butterfly(e, step, (by, then)),
        Action::Shuffle { mode } => {
            let members = list(step, 1, tables).first().copied().unwrap_or(Slot::NONE);
            lanes::shuffle(e, step, mode, members)
        }
        Action::Transpose => matrices::transpose(e, step),
        Action::Product { halves } => {
            tables.products.get(step.x as usize).map_or(Ok(()), |it| product::multiply(e, halves, it))
        }
        Action::Quads => tables.quads.get(step.x as usize).map_or(Ok(()), |it| quads::multiply(e, it)),
        Action::Matrices { generic, trans, count } => {
            matrices::load(e, step, (generic, trans), &list(step, count, tables))
        }
        Action::Logic { shared } => {
            e.forget(step.d);
            predicate::logic(e.asm, step, shared)
        }
        Action::SelectScalar { wide } => {
            e.forget(step.d);
            predicate::select(e.asm, step, wide)
        }
        Action::Branch { .. } | Action::Goto { .. } | Action::Return | Action::Arrive => Ok(()),
    }
}

/// Returns the operands of half an instruction, and registers for its result.
fn operands(e: &mut Cache<'_>, step: &Inst, template: &Template) -> Emit<([Pair; 3], Pair)> {
    e.kinds = template.sources;
    let [a, b, c] = template.sources;
    let sources = [
        e.read(a, step.a, template.float)?,
        e.read(b, step.b, template.float)?,
        e.read(c, step.c, template.float)?,
    ];
    let wide = matches!(template.dst, SlotKind::Vector { wide: true } | SlotKind::Scalar { wide: true });
    if integer::sums_up(step) && e.may_change(step, sources) {
        return Ok((sources, e.change(sources[2])));
    }
    Ok((sources, e.result(wide)?))
}

/// Computes a scalar result with the template for vectors.
fn scalar_of_lanes(e: &mut Cache<'_>, step: &Inst, template: &Template) -> Emit {
    let (sources, d) = operands(e, step, template)?;
    (template.body)(e, step, d, sources)?;
    if template.test {
        e.asm.kmovw(eax, k5)?;
        e.asm.shl(eax, 31)?;
        e.asm.sar(eax, 31)?;
        if step.form.inversion(set::D) != 0 {
            e.asm.not(eax)?;
        }
        e.asm.mov(dword_ptr(rbx + step.d.offset() as i32), eax)?;
        e.forget(step.d);
        return Ok(());
    }
    let wide = matches!(template.dst, SlotKind::Scalar { wide: true });
    e.write_scalar(wide, step.d, d.low, template.float)
}

/// Emits a comparison. Inactive lanes keep their predicates.
fn compare(e: &mut Cache<'_>, step: &Inst, template: &Template) -> Emit {
    for half in 0..e.halves {
        e.half = half;
        let (sources, d) = operands(e, step, template)?;
        (template.body)(e, step, d, sources)?;
        if half == 0 && e.halves == 2 {
            e.asm.kmovw(k7, k5)?;
        }
        e.unpin();
    }
    if e.halves == 2 {
        e.asm.kunpckwd(k5, k5, k7)?;
        e.asm.kmovd(eax, k5)?;
    } else {
        e.asm.kmovw(eax, k5)?;
    }
    if step.form.inversion(set::D) != 0 {
        e.asm.not(eax)?;
    }
    predicate::merge(e.asm, step.d)
}
