//! The instruction table as text.

use std::fmt::Write as _;

use crate::jit;
use crate::machine::{Opcode, OperandClass, OperandPlace, OperandRow};
use crate::ops::{DenormalMode, Row};

/// Returns an operand as text: place, class, and width of a lane in bits.
fn operand(row: OperandRow) -> String {
    let place = match row.place {
        OperandPlace::A => "a",
        OperandPlace::B => "b",
        OperandPlace::C => "c",
        OperandPlace::D => "d",
        OperandPlace::Ds => "d...",
        OperandPlace::Bs => "b...",
        OperandPlace::List => "list",
        OperandPlace::First => "list[0]",
        OperandPlace::Second => "list[1]",
        OperandPlace::Record => return "record".to_owned(),
    };
    let width = if row.wide { 64 } else { 32 };
    match row.class {
        OperandClass::Lanes => format!("{place}.{width}"),
        OperandClass::Vector => format!("{place}:vector.{width}"),
        OperandClass::Scalar => format!("{place}:scalar.{width}"),
        OperandClass::Predicate => format!("{place}:predicate"),
    }
}

/// Returns what an instruction writes and reads.
fn operands(row: &Row) -> String {
    let those = |written| {
        let operands = row.operands.iter().copied().filter(|operand| operand.written == written).map(operand);
        operands.collect::<Vec<_>>().join(", ")
    };
    match (those(true), those(false)) {
        (written, read) if written.is_empty() => read,
        (written, read) => format!("{written} = {read}"),
    }
}

/// Returns the properties of an instruction, and the translators that have no template for it.
fn properties(opcode: Opcode) -> String {
    let row = opcode.row();
    let [avx2, avx512] = jit::translates(opcode);
    let all = [
        (row.denormals == DenormalMode::OfForm, "subnormals flushed by .ftz"),
        (row.denormals == DenormalMode::Keep, "subnormals kept"),
        (row.faults, "may fault"),
        (row.leaves, "may leave"),
        (row.ends, "ends its block"),
        (!avx2, "no template for AVX2"),
        (!avx512, "no template for AVX-512"),
    ];
    let those: Vec<_> = all.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text).collect();
    those.join("; ")
}

/// Returns the instruction table as text, with a line for each opcode: its name, the PTX instruction that it
/// executes, what it writes and reads, its properties, and whether the translators have templates for it. An
/// operand without a class is a vector, or a scalar that all lanes share.
#[must_use]
pub fn instruction_table() -> String {
    let mut text = String::new();
    for &opcode in Opcode::ALL {
        let row = opcode.row();
        let (name, operands) = (format!("{opcode:?}"), operands(row));
        let line = format!("{name:<20} {:<44} {operands:<48} {}", row.ptx, properties(opcode));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let without =
        |index: usize| Opcode::ALL.iter().filter(|opcode| !jit::translates(**opcode)[index]).count();
    let _ = writeln!(
        text,
        "{} opcodes; {} without a template for AVX2, {} without one for AVX-512. A template may lack some forms.",
        Opcode::ALL.len(),
        without(0),
        without(1)
    );
    text
}
