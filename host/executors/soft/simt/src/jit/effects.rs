//! What steps read and write, for all translators.

use super::template::{Entry, Flush, Memory, Template};
use super::value::Kind;
use crate::machine::{Field, Inst, ProductOperands, QuadsOperands, Slot, SlotList, Tables};

/// The slots that a step reads and writes.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Vectors, which may have lanes of 64 bits.
    pub(super) reads: Vec<Slot>,
    pub(super) writes: Vec<Slot>,
    /// Scalars and predicates.
    pub(super) scalar_reads: Vec<Slot>,
    pub(super) scalar_writes: Vec<Slot>,
}

/// The slots of an access: one, or those of its record.
pub(super) fn slots(step: &Inst, one: Slot, count: usize, tables: &Tables) -> Vec<Slot> {
    if count == 1 { vec![one] } else { list(step, count, tables) }
}

/// The slots of a step's record.
pub(super) fn list(step: &Inst, count: usize, tables: &Tables) -> Vec<Slot> {
    let none = SlotList { slots: [Slot::NONE; 4] };
    let SlotList { slots } = tables.memory.get(step.x as usize).unwrap_or(&none);
    slots.iter().take(count).copied().collect()
}

/// The bit fields that a step unites.
pub(super) fn fields<'a>(step: &Inst, tables: &'a Tables) -> &'a [Field] {
    let first = step.x as usize;
    tables.fields.get(first..first + step.y as usize).unwrap_or_default()
}

/// What a step reads and writes.
pub(super) fn effects<B: Copy>(step: &Inst, entry: Entry<B>, tables: &Tables) -> Effects {
    let mut found = Effects::default();
    match entry {
        Entry::Lanes(Template { sources, dst, .. }) | Entry::Dot4(Template { sources, dst, .. }) => {
            for (kind, slot) in sources.into_iter().zip([step.a, step.b, step.c]) {
                match kind {
                    Kind::None => {}
                    Kind::Scalar { .. } | Kind::Predicate => found.scalar_reads.push(slot),
                    Kind::Vector { .. } => found.reads.push(slot),
                }
            }
            match dst {
                Kind::Vector { .. } => found.writes.push(step.d),
                _ => found.scalar_writes.push(step.d),
            }
        }
        Entry::Fields => {
            found.reads = fields(step, tables).iter().map(|field| field.at).collect();
            found.writes.push(step.d);
        }
        Entry::Load(elements) => {
            found.reads.push(step.a);
            found.writes = slots(step, step.d, elements.count, tables);
        }
        Entry::LoadTwo(_) => {
            found.reads.push(step.a);
            found.writes = vec![step.d, step.c];
        }
        Entry::LoadScalar(elements) => {
            found.scalar_reads.push(step.a);
            found.scalar_writes = slots(step, step.d, elements.count, tables);
        }
        Entry::Store(elements) => {
            found.reads = slots(step, step.b, elements.count, tables);
            found.reads.push(step.a);
        }
        Entry::Product { .. } => {
            if let Some(ProductOperands { a, b, c, d, .. }) = tables.products.get(step.x as usize) {
                found.reads = [&a[..], b, c].concat();
                found.writes.clone_from(d);
            }
        }
        Entry::Quads => {
            if let Some(QuadsOperands { a, b, c, d, .. }) = tables.quads.get(step.x as usize) {
                found.reads = [&a[..], b, c].concat();
                found.writes.clone_from(d);
            }
        }
        Entry::Matrices { count, .. } => {
            found.reads.push(step.a);
            found.writes = list(step, count, tables);
        }
        Entry::Transpose => {
            found.reads.push(step.a);
            found.writes.push(step.d);
        }
        Entry::Shuffle { .. } => {
            found.reads.push(step.a);
            found.scalar_reads = list(step, 1, tables);
            found.writes.push(step.d);
        }
        Entry::Butterfly { then, .. } => {
            found.reads.push(step.a);
            if then.is_some() {
                found.reads.push(step.c);
            }
            found.scalar_reads.push(step.b);
            found.writes.push(step.d);
        }
        Entry::Logic { .. } => {
            found.scalar_reads = vec![step.a, step.b];
            found.scalar_writes.push(step.d);
        }
        Entry::SelectScalar { .. } => {
            found.scalar_reads = vec![step.a, step.b, step.c];
            found.scalar_writes.push(step.d);
        }
        Entry::Branch { .. } => found.scalar_reads.push(step.a),
        Entry::Goto { .. } | Entry::Return | Entry::Arrive => {}
    }
    if step.blend {
        found.reads.extend_from_slice(&found.writes);
    }
    found
}

/// The distance of an access from the address in its register.
pub(super) fn distance(step: &Inst, memory: Memory) -> i64 {
    match memory {
        Memory::Global => step.imm.cast_signed(),
        Memory::Shared | Memory::Local { .. } => i64::from((step.imm as u32).cast_signed()),
    }
}

/// What a step has to do with subnormal numbers.
pub(super) fn flushing<B: Copy>(entry: Entry<B>) -> Flush {
    match entry {
        Entry::Lanes(Template { flush, .. })
        | Entry::Butterfly { then: Some(Template { flush, .. }), .. } => flush,
        _ => Flush::Whatever,
    }
}

/// Whether code of such steps is made with floats flushed: the steps that ask for the other are interpreted.
pub(super) fn flushes<B: Copy>(entries: impl Iterator<Item = Entry<B>>) -> bool {
    let (mut always, mut never) = (0usize, 0usize);
    for entry in entries {
        match flushing(entry) {
            Flush::Always => always += 1,
            Flush::Never => never += 1,
            Flush::Whatever => {}
        }
    }
    always > never
}
