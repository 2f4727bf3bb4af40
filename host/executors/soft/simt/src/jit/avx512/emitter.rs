//! Assembles runs.

use std::collections::HashMap;

use iced_x86::code_asm::{CodeAssembler, CodeLabel, dword_ptr, eax, k5, k7, r12, rbx, word_ptr, zmmword_ptr};

use super::body::{Entry, Template};
use super::cache::Cache;
use super::departure::Departure;
use super::loops::Loops;
use super::registers::{Pair, ZMM};
use super::run::{Group, Part, Run};
use super::{integer, lanes, load, matrices, memory, product, quads, scalar, scheduler, store};
use crate::jit::code::Assembled;
use crate::jit::departed::{DEPARTED, Departed};
use crate::jit::effects::{effects, fields, list, slots};
use crate::jit::exits::{Exits, Targets};
use crate::jit::live::Liveness;
use crate::jit::pool::Pool;
use crate::jit::template::{Elements, Memory};
use crate::jit::uses::Uses;
use crate::jit::value::{Emit, Kind};
use crate::jit::{flow, gate, predicate};
use crate::machine::{Context, Inst, Slot, Tables};
use memory::Access;

/// Machine code that is being made.
pub(super) struct Emitter<'a> {
    asm: CodeAssembler,
    pool: Pool,
    exits: Exits,
    targets: Targets,
    /// Where it is the turn of another part, since this one has arrived at a barrier.
    over: CodeLabel,
    steps: &'a [Inst],
    tables: &'a Tables,
    /// Scalars that always hold a constant.
    constants: &'a HashMap<Slot, u64>,
    flush: bool,
    departures: Vec<Departure>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        steps: &'a [Inst],
        tables: &'a Tables,
        constants: &'a HashMap<Slot, u64>,
        flush: bool,
    ) -> Emit<Self> {
        let mut asm = CodeAssembler::new(64)?;
        // The other encoding reaches half of the registers.
        asm.set_prefer_vex(false);
        let schedule = asm.create_label();
        let targets = Targets { labels: HashMap::new(), schedule, masks: lanes::masks };
        let over = asm.create_label();
        Ok(Self {
            asm,
            pool: Pool::default(),
            exits: Exits::default(),
            targets,
            over,
            steps,
            tables,
            constants,
            flush,
            departures: Vec::new(),
        })
    }

    /// Assembles all runs. `None`: a step would need more registers than there are.
    pub(super) fn assemble(mut self, runs: &[Run], live: &Liveness) -> Emit<Option<Assembled>> {
        let leave = self.asm.create_label();
        for run in runs.iter().filter(|run| !run.foreign) {
            let label = self.asm.create_label();
            self.targets.labels.insert(run.first as u32, label);
        }
        let mut start = self.asm.create_label();
        self.asm.set_label(&mut start)?;
        gate::enter(&mut self.asm, lanes::begin)?;
        let (loops, mut lows) = (Loops::find(runs, self.steps), Vec::new());
        for (number, run) in runs.iter().enumerate() {
            if run.foreign {
                let exit = self.exits.at(&mut self.asm, run.first as u32);
                self.asm.jmp(exit)?;
                continue;
            }
            if let Some(label) = self.targets.labels.get_mut(&(run.first as u32)) {
                self.asm.set_label(label)?;
                self.asm.zero_bytes()?;
            }
            if loops.contains(run) {
                let low = self.asm.create_label();
                self.asm.cmp(word_ptr(r12 + (Context::MASK + 2)), 0)?;
                self.asm.je(low)?;
                lows.push((low, number));
            }
            self.run(run, number, live, 2)?;
        }
        let end = self.exits.at(&mut self.asm, self.steps.len() as u32);
        self.asm.jmp(end)?;
        for (mut low, number) in lows {
            self.asm.set_label(&mut low)?;
            self.run(&runs[number], number, live, 1)?;
            // The next run follows, for all lanes.
            let next = runs.get(number + 1).map_or(self.steps.len(), |next| next.first) as u32;
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
        let departed = self.departures(leave)?;
        self.exits.emit(&mut self.asm, leave)?;
        let mut leave = leave;
        self.asm.set_label(&mut leave)?;
        gate::leave(&mut self.asm)?;
        let constants = self.pool.emit(&mut self.asm)?;
        let placed = self.targets.place(&mut self.asm, constants, start, self.steps.len())?;
        let whole = Assembled { placed, flush: self.flush, masks: false, turns: true, departed };
        Ok((!self.pool.lacking).then_some(whole))
    }

    /// When the slots of a run are read and written.
    fn uses(&self, run: &Run, number: usize, live: &Liveness) -> Uses {
        let mut uses = Uses::default();
        for part in &run.parts {
            let effects = effects(&self.steps[part.index], part.entry, self.tables);
            for root in run.roots.iter().filter(|root| root.index == part.index) {
                uses.reads(part.index, root.slot);
            }
            if let Some(access) = part.access {
                uses.reads_root(part.index, run.place(&run.groups[access.group]));
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

    /// Assembles a run for so many halves of vectors.
    fn run(&mut self, run: &Run, number: usize, live: &Liveness, halves: usize) -> Emit {
        let uses = self.uses(run, number, live);
        let mut departures: Vec<Departure> = Vec::new();
        let Self { asm, pool, exits, targets, over, steps, tables, constants, flush, .. } = self;
        let mut e = Cache::new(asm, pool, &uses, &mut departures, constants, (*flush, halves));
        for part in &run.parts {
            let step = &steps[part.index];
            e.begin(part.index);
            let group = part.access.map(|access| (access, &run.groups[access.group]));
            if let Some((access, group)) = group {
                check(&mut e, run, part.index, (access.group, group), steps)?;
            }
            match part.entry {
                entry if entry.ends() => {
                    e.flush()?;
                    let pc = part.index as u32;
                    match part.entry {
                        Entry::Goto { back } => flow::goto(e.asm, step, targets, exits, pc, back)?,
                        Entry::Branch { negated, back } => {
                            flow::branch(e.asm, step, targets, exits, pc, (negated, back))?;
                        }
                        Entry::Arrive => {
                            let exit = exits.at(e.asm, pc);
                            scheduler::arrive(e.asm, exit, pc, *over)?;
                        }
                        _ => flow::end(e.asm, targets)?,
                    }
                }
                _ => {
                    let access = |elements| {
                        let (root, pointer, by) = match group {
                            Some((access, group)) if group.memory == Memory::Global => {
                                (run.place(group), access.group, access.by)
                            }
                            Some((access, group)) => (run.place(group), access.group, access.by - group.from),
                            None => (0, 0, 0),
                        };
                        let first = group.is_some_and(|(_, group)| group.index == part.index);
                        let four = run.fours.get(&part.index);
                        Access { step, elements, root, pointer, by: by as i32, first, four }
                    };
                    part_of_run(&mut e, part, step, tables, access)?;
                    if let Some(sum) = part.sum {
                        memory::add_up(&mut e, sum)?;
                    }
                }
            }
            e.end();
        }
        if !run.parts.last().is_some_and(|part| part.entry.ends()) {
            e.flush()?;
        }
        self.departures.append(&mut departures);
        Ok(())
    }

    /// Assembles where runs are left with values in registers: all go to memory, and [`Departed`] says which
    /// of them the frame lacks.
    fn departures(&mut self, leave: CodeLabel) -> Emit<Vec<Departed>> {
        let mut departed = Vec::new();
        let mut all = self.asm.create_label();
        for Departure { mut label, pc, held } in std::mem::take(&mut self.departures) {
            if held.is_empty() {
                let exit = self.exits.at(&mut self.asm, pc);
                self.asm.set_label(&mut label)?;
                self.asm.jmp(exit)?;
                continue;
            }
            self.asm.set_label(&mut label)?;
            self.asm.mov(eax, DEPARTED | departed.len() as u32)?;
            self.asm.jmp(all)?;
            departed.push(Departed { pc, held: held.into() });
        }
        self.asm.set_label(&mut all)?;
        for (number, register) in ZMM.into_iter().enumerate() {
            self.asm.vmovdqu64(zmmword_ptr(r12 + (Context::REGISTERS + 64 * number as i32)), register)?;
        }
        self.asm.jmp(leave)?;
        Ok(departed)
    }
}

/// Checks the access of a step as far as nothing is known of it yet.
fn check(
    e: &mut Cache<'_>,
    run: &Run,
    index: usize,
    (number, group): (usize, &Group),
    steps: &[Inst],
) -> Emit {
    let root = &run.roots[group.root];
    let step = &steps[group.index];
    if group.memory != Memory::Global {
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

/// Assembles a step that does not end its run.
fn part_of_run<'a>(
    e: &mut Cache<'_>,
    part: &Part,
    step: &'a Inst,
    tables: &Tables,
    access: impl Fn(Elements) -> Access<'a>,
) -> Emit {
    match part.entry {
        Entry::Lanes(template) if matches!(template.dst, Kind::Scalar { .. }) => {
            if !scalar::emit(e, step)? {
                scalar_of_lanes(e, step, &template)?;
            }
            Ok(())
        }
        Entry::Lanes(template) | Entry::Dot4(template) => {
            if template.dst == Kind::Predicate {
                return compare(e, step, &template);
            }
            for half in 0..e.halves {
                e.half = half;
                let (sources, d) = operands(e, step, &template)?;
                (template.body)(e, step, d, sources)?;
                let Kind::Vector { wide } = template.dst else { continue };
                e.write(wide, step.d, d, step.blend, template.float)?;
                if !step.blend && integer::masks(step, |slot| e.known(slot)) {
                    e.note_small(step.d);
                }
                // The other half needs the registers that this one has used besides.
                e.unpin();
            }
            Ok(())
        }
        Entry::Fields => {
            for half in 0..e.halves {
                e.half = half;
                integer::fields(e, step, fields(step, tables))?;
                e.unpin();
            }
            Ok(())
        }
        Entry::Load(elements) => {
            load::load(e, access(elements), &slots(step, step.d, elements.count, tables))
        }
        Entry::LoadTwo(elements) => load::load(e, access(elements), &[step.d, step.c]),
        Entry::Store(elements) => {
            store::store(e, access(elements), &slots(step, step.b, elements.count, tables))
        }
        Entry::LoadScalar(elements) => {
            let slots = slots(step, step.d, elements.count, tables);
            memory::load_scalar(e, access(elements), &slots)
        }
        Entry::Butterfly { by, then } => lanes::butterfly(e, step, (by, then)),
        Entry::Shuffle { mode } => {
            let members = list(step, 1, tables).first().copied().unwrap_or(Slot::NONE);
            lanes::shuffle(e, step, mode, members)
        }
        Entry::Transpose => matrices::transpose(e, step),
        Entry::Product { halves } => {
            tables.products.get(step.x as usize).map_or(Ok(()), |it| product::multiply(e, halves, it))
        }
        Entry::Quads => tables.quads.get(step.x as usize).map_or(Ok(()), |it| quads::multiply(e, it)),
        Entry::Matrices { generic, trans, count } => {
            matrices::load(e, step, (generic, trans), &list(step, count, tables))
        }
        Entry::Logic { shared } => {
            e.forget(step.d);
            predicate::logic(e.asm, step, shared)
        }
        Entry::SelectScalar { wide } => {
            e.forget(step.d);
            predicate::select(e.asm, step, wide)
        }
        Entry::Branch { .. } | Entry::Goto { .. } | Entry::Return | Entry::Arrive => Ok(()),
    }
}

/// Reads the operands of half a step, and finds registers for its result.
fn operands(e: &mut Cache<'_>, step: &Inst, template: &Template) -> Emit<([Pair; 3], Pair)> {
    e.kinds = template.sources;
    let [a, b, c] = template.sources;
    let sources = [
        e.read(a, step.a, template.float)?,
        e.read(b, step.b, template.float)?,
        e.read(c, step.c, template.float)?,
    ];
    let wide = matches!(template.dst, Kind::Vector { wide: true } | Kind::Scalar { wide: true });
    if integer::sums_up(step) && e.may_change(step, sources) {
        return Ok((sources, e.change(sources[2])));
    }
    Ok((sources, e.result(wide)?))
}

/// Computes a scalar as vectors are computed.
fn scalar_of_lanes(e: &mut Cache<'_>, step: &Inst, template: &Template) -> Emit {
    let (sources, d) = operands(e, step, template)?;
    (template.body)(e, step, d, sources)?;
    if template.test {
        e.asm.kmovw(eax, k5)?;
        e.asm.shl(eax, 31)?;
        e.asm.sar(eax, 31)?;
        if step.y != 0 {
            e.asm.not(eax)?;
        }
        e.asm.mov(dword_ptr(rbx + step.d.offset() as i32), eax)?;
        e.forget(step.d);
        return Ok(());
    }
    let wide = matches!(template.dst, Kind::Scalar { wide: true });
    e.write_scalar(wide, step.d, d.low, template.float)
}

/// Compares lanes. Inactive ones keep their predicates.
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
    if step.y != 0 {
        e.asm.not(eax)?;
    }
    predicate::merge(e.asm, step.d)
}
