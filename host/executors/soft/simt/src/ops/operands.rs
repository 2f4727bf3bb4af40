//! Slots that an instruction reads and writes, as its row describes them. Registers that do not fit into an
//! instruction are in its record.

use crate::machine::{
    AtomicOperands, Inst, Opcode, OperandPlace, ProductOperands, QuadsOperands, RareOperand, Slot, SlotKind,
    Tables,
};

const NARROW: SlotKind = SlotKind::Vector { wide: false };

/// Returns class and width of an operand of a rare instruction.
const fn rare_kind(operand: RareOperand) -> SlotKind {
    match (operand.bytes, operand.scalar) {
        (1, false) => SlotKind::Predicate,
        (bytes, true) => SlotKind::Scalar { wide: bytes == 8 },
        (bytes, false) => SlotKind::Vector { wide: bytes == 8 },
    }
}

impl Inst {
    /// Calls `visit` with the slot of each operand, its class and width, and whether the instruction writes
    /// it.
    pub(crate) fn operands(&self, tables: &Tables, mut visit: impl FnMut(Slot, SlotKind, bool)) {
        let count = usize::from(self.form.count);
        let list = || tables.memory.get(self.x as usize).map_or(&[][..], |list| &list.slots);
        for operand in self.opcode.row().operands {
            let (kind, written) = (operand.kind(self.form), operand.written);
            let mut each = |slots: &[Slot]| slots.iter().for_each(|&slot| visit(slot, kind, written));
            match operand.place {
                OperandPlace::A => each(&[self.a]),
                OperandPlace::B => each(&[self.b]),
                OperandPlace::C => each(&[self.c]),
                OperandPlace::D => each(&[self.d]),
                OperandPlace::Ds if count == 1 => each(&[self.d]),
                OperandPlace::Bs if count == 1 => each(&[self.b]),
                OperandPlace::Ds | OperandPlace::Bs | OperandPlace::List => {
                    each(list().get(..count).unwrap_or_default());
                }
                OperandPlace::First => each(list().get(..1).unwrap_or_default()),
                OperandPlace::Second if count == 2 => each(list().get(1..2).unwrap_or_default()),
                OperandPlace::Second => {}
                OperandPlace::Record => self.recorded(tables, &mut visit),
            }
        }
    }

    /// Visits the operands in the instruction's record.
    fn recorded(&self, tables: &Tables, visit: &mut impl FnMut(Slot, SlotKind, bool)) {
        let index = self.x as usize;
        let mut matrices = |[a, b, c, d]: [&[Slot]; 4], members, kind| {
            visit(members, SlotKind::Scalar { wide: false }, false);
            for &slot in [a, b, c].into_iter().flatten() {
                visit(slot, kind, false);
            }
            for &slot in d {
                visit(slot, kind, true);
            }
        };
        match self.opcode {
            Opcode::Fields => {
                let fields = tables.fields.get(index..index + self.y as usize).unwrap_or_default();
                for field in fields {
                    visit(field.at, NARROW, false);
                }
            }
            Opcode::Rare => {
                let Some(rare) = tables.rare.get(index) else { return };
                for &source in &rare.sources {
                    visit(source.at, rare_kind(source), false);
                }
                visit(rare.dst.at, rare_kind(rare.dst), true);
            }
            Opcode::Atomic => {
                let Some(AtomicOperands { bytes, base, b, c, dst, .. }) = tables.atomics.get(index) else {
                    return;
                };
                let kind = SlotKind::Vector { wide: *bytes == 8 };
                visit(*base, SlotKind::Vector { wide: true }, false);
                for slot in [*b, *c] {
                    visit(slot, kind, false);
                }
                if let &Some(slot) = dst {
                    visit(slot, kind, true);
                }
            }
            Opcode::Print => {
                let Some(print) = tables.prints.get(index) else { return };
                for slot in [print.format, print.arguments] {
                    visit(slot, SlotKind::Vector { wide: true }, false);
                }
                if let Some(slot) = print.dst {
                    visit(slot, NARROW, true);
                }
            }
            Opcode::MmaQuads => {
                let Some(QuadsOperands { a, b, c, d, members, .. }) = tables.quads.get(index) else { return };
                matrices([a, b, c, d], *members, NARROW);
            }
            Opcode::MmaF16
            | Opcode::MmaBf16
            | Opcode::MmaTf32
            | Opcode::MmaF64
            | Opcode::MmaS8
            | Opcode::MmaS8U8
            | Opcode::MmaU8S8
            | Opcode::MmaU8 => {
                let Some(ProductOperands { a, b, c, d, members, .. }) = tables.products.get(index) else {
                    return;
                };
                let wide = self.opcode == Opcode::MmaF64;
                matrices([a, b, c, d], *members, SlotKind::Vector { wide });
            }
            _ => unreachable!("{:?} has no record", self.opcode),
        }
    }
}
