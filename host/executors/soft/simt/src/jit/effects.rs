//! Determines the slots that instructions read and write, and the floating-point mode that they require.

use super::template::{Action, Flush, MemSpace, Template};
use super::value::SlotKind;
use crate::machine::{Field, Inst, Opcode, Slot, SlotList, Tables, set};

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
    let by = match step.form.shared {
        set::A => step.a,
        set::B => step.b,
        _ => return false,
    };
    step.opcode == Opcode::And32 && constant(by).is_some_and(|mask| mask as u32 & SIGNS == 0)
}

/// Collects the slots that an instruction reads and writes, as its row describes them.
pub(super) fn effects(step: &Inst, tables: &Tables) -> Effects {
    let mut found = Effects::default();
    step.operands(tables, |slot, kind, written| {
        let list = match (kind, written) {
            (SlotKind::Vector { .. }, false) => &mut found.reads,
            (SlotKind::Vector { .. }, true) => &mut found.writes,
            (_, false) => &mut found.scalar_reads,
            (_, true) => &mut found.scalar_writes,
        };
        list.push(slot);
    });
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
