//! Stores of the operands and the result of an instruction, which are compared with a reference.

use std::fmt::Write as _;

use crate::fuzz::forms::Form;
use crate::fuzz::writer::Writer;

/// Limit of the bytes that a thread stores in `trace`.
const MOST: u64 = 8 * 64;

/// Returns the width in bits of a register for a letter of a form.
const fn width(letter: char) -> usize {
    match letter {
        'h' | 'H' => 16,
        'd' | 'D' | 'G' => 64,
        _ => 32,
    }
}

impl Writer {
    /// Adds stores of the operands before an instruction, and of its result after it. All of them have the
    /// instruction's guard, which is empty or ends with a space.
    pub(super) fn witness(
        &mut self,
        form: &Form,
        guard: &str,
        line: &str,
        dst: &str,
        sources: &[String],
    ) -> String {
        let bytes = 8 * (sources.len() as u64 + 2);
        // After the instruction, its guard must still be what it was before.
        let changed = guard.trim_start_matches(['@', '!']).trim_end() == dst;
        if form.dst == 'P' || changed || self.parts.trace + bytes > MOST {
            return format!("{guard}{line}");
        }
        let offset = self.parts.trace - 8;
        self.parts.trace += bytes;
        let store = |at: usize, letter: char, operand: &str| {
            let to = offset as usize + 8 * at;
            if matches!(letter, 'p' | 'o') {
                let (name, yes, no) = operand.strip_prefix('!').map_or((operand, 1, 0), |name| (name, 0, 1));
                return format!(
                    "{guard}selp.b32 %t9, {yes}, {no}, {name};\n{guard}st.global.b32 [%atrace+{to}], %t9;\n"
                );
            }
            format!("{guard}st.global.b{} [%atrace+{to}], {operand};\n", width(letter))
        };
        let bits = if form.dst == 'p' { 32 } else { width(form.dst) };
        let mut text = format!("// witness {offset} {} {} {}\n", form.spelling, sources.len(), bits / 8);
        for (at, (operand, letter)) in sources.iter().zip(form.sources.chars()).enumerate() {
            text += &store(1 + at, letter, operand);
        }
        let _ = write!(text, "{guard}{line}{}", store(1 + sources.len(), form.dst, dst));
        text + &format!("{guard}st.global.b64 [%atrace+{offset}], 1;\n")
    }
}
