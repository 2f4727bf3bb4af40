//! Determines the slots that instructions read and write, and the floating-point mode that they require.

use std::any::TypeId;

use super::template::{Action, Flush, MemSpace, Template};
use super::value::SlotKind;
use crate::machine::{Field, Inst, ProductOperands, QuadsOperands, Slot, SlotList, Tables};
use crate::ops::Vector2;
use crate::ops::bits::And32;

/// Mask of the sign bits of the four bytes of a word.
pub(super) const SIGNS: u32 = 0x8080_8080;

/// Slots that an instruction reads and writes.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Vectors that the instruction reads, with lanes of 32 or 64 bits.
    pub(super) reads: Vec<Slot>,
    pub(super) writes: Vec<Slot>,
    /// Scalars and predicates that the instruction reads.
    pub(super) scalar_reads: Vec<Slot>,
    pub(super) scalar_writes: Vec<Slot>,
}

/// Returns the slots of a memory access: `one` if `count` is 1, otherwise those of the instruction's record.
pub(super) fn slots(step: &Inst, one: Slot, count: usize, tables: &Tables) -> Vec<Slot> {
    if count == 1 { vec![one] } else { list(step, count, tables) }
}

/// Returns the first `count` slots in the instruction's record.
pub(super) fn list(step: &Inst, count: usize, tables: &Tables) -> Vec<Slot> {
    let none = SlotList { slots: [Slot::NONE; 4] };
    let SlotList { slots } = tables.memory.get(step.x as usize).unwrap_or(&none);
    slots.iter().take(count).copied().collect()
}

/// Returns the bit fields that an instruction combines.
pub(super) fn fields<'a>(step: &Inst, tables: &'a Tables) -> &'a [Field] {
    let first = step.x as usize;
    tables.fields.get(first..first + step.y as usize).unwrap_or_default()
}

/// Returns whether an instruction applies a constant mask that clears the sign bits of all bytes.
pub(super) fn clears_signs(step: &Inst, constant: impl Fn(Slot) -> Option<u64>) -> bool {
    let by = if step.opcode == TypeId::of::<Vector2<And32, false, true>>() {
        step.b
    } else if step.opcode == TypeId::of::<Vector2<And32, true, false>>() {
        step.a
    } else {
        return false;
    };
    constant(by).is_some_and(|mask| mask as u32 & SIGNS == 0)
}

/// Collects the slots that an instruction reads and writes.
pub(super) fn effects<B: Copy>(step: &Inst, entry: Action<B>, tables: &Tables) -> Effects {
    let mut found = Effects::default();
    match entry {
        Action::Lanes(Template { sources, dst, .. }) | Action::Dot4(Template { sources, dst, .. }) => {
            for (kind, slot) in sources.into_iter().zip([step.a, step.b, step.c]) {
                match kind {
                    SlotKind::None => {}
                    SlotKind::Scalar { .. } | SlotKind::Predicate => found.scalar_reads.push(slot),
                    SlotKind::Vector { .. } => found.reads.push(slot),
                }
            }
            match dst {
                SlotKind::Vector { .. } => found.writes.push(step.d),
                _ => found.scalar_writes.push(step.d),
            }
        }
        Action::Fields => {
            found.reads = fields(step, tables).iter().map(|field| field.at).collect();
            found.writes.push(step.d);
        }
        Action::Load(elements) => {
            found.reads.push(step.a);
            found.writes = slots(step, step.d, elements.count, tables);
        }
        Action::LoadTwo(_) => {
            found.reads.push(step.a);
            found.writes = vec![step.d, step.c];
        }
        Action::LoadScalar(elements) => {
            found.scalar_reads.push(step.a);
            found.scalar_writes = slots(step, step.d, elements.count, tables);
        }
        Action::Store(elements) => {
            found.reads = slots(step, step.b, elements.count, tables);
            found.reads.push(step.a);
        }
        Action::Product { .. } => {
            if let Some(ProductOperands { a, b, c, d, .. }) = tables.products.get(step.x as usize) {
                found.reads = [&a[..], b, c].concat();
                found.writes.clone_from(d);
            }
        }
        Action::Quads => {
            if let Some(QuadsOperands { a, b, c, d, .. }) = tables.quads.get(step.x as usize) {
                found.reads = [&a[..], b, c].concat();
                found.writes.clone_from(d);
            }
        }
        Action::Matrices { count, .. } => {
            found.reads.push(step.a);
            found.writes = list(step, count, tables);
        }
        Action::Transpose => {
            found.reads.push(step.a);
            found.writes.push(step.d);
        }
        Action::Shuffle { .. } => {
            found.reads.push(step.a);
            found.scalar_reads = list(step, 1, tables);
            found.writes.push(step.d);
        }
        Action::Butterfly { then, .. } => {
            found.reads.push(step.a);
            if then.is_some() {
                found.reads.push(step.c);
            }
            found.scalar_reads.push(step.b);
            found.writes.push(step.d);
        }
        Action::Logic { .. } => {
            found.scalar_reads = vec![step.a, step.b];
            found.scalar_writes.push(step.d);
        }
        Action::SelectScalar { .. } => {
            found.scalar_reads = vec![step.a, step.b, step.c];
            found.scalar_writes.push(step.d);
        }
        Action::Branch { .. } => found.scalar_reads.push(step.a),
        Action::Goto { .. } | Action::Return | Action::Arrive => {}
    }
    if step.blend {
        found.reads.extend_from_slice(&found.writes);
    }
    found
}

/// Returns the constant offset of a memory access, in bytes.
pub(super) fn distance(step: &Inst, memory: MemSpace) -> i64 {
    match memory {
        MemSpace::Global => step.imm.cast_signed(),
        MemSpace::Shared | MemSpace::Local { .. } => i64::from((step.imm as u32).cast_signed()),
    }
}

/// Returns the denormal mode that the instruction requires.
pub(super) fn flushing<B: Copy>(entry: Action<B>) -> Flush {
    match entry {
        Action::Lanes(Template { flush, .. })
        | Action::Butterfly { then: Some(Template { flush, .. }), .. } => flush,
        _ => Flush::Whatever,
    }
}

/// Returns whether the code of these instructions runs with subnormal floats flushed. Instructions that
/// require the other mode are interpreted.
pub(super) fn flushes<B: Copy>(entries: impl Iterator<Item = Action<B>>) -> bool {
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
