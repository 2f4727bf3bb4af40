//! Functions of a program, and calls of them: by name, through an address, and of themselves.

use std::fmt::Write as _;

use crate::fuzz::program::text_of;
use crate::fuzz::writer::{Counts, Kind, Mask, Scope, Writer};
use crate::values::Random;

/// Registers that the statements of a function may use besides those of its own count.
const TEMPORARIES: &str = ".reg .b32 %t<10>, %result, %more;\n.reg .b64 %a<10>;\n.reg .pred %q<3>;\n";

/// Draws a function of two values and the depth of its recursion.
pub fn function(name: &str, random: &mut Random) -> String {
    let counts = Counts {
        halves: 2 + random.below(4),
        words: 3 + random.below(30),
        wides: 2 + random.below(12),
        predicates: 3 + random.below(3),
    };
    let mut writer = Writer::new(Random::new(random.bits()), counts, 32);
    // What needs the kernel's memory or all lanes is not for functions.
    writer.only(&[Kind::Arithmetic, Kind::Common, Kind::Branch, Kind::Loop]);
    let scope = Scope { mask: Mask::Unknown, together: false, depth: 1, runs: 1 };
    let count = 2 + random.below(12);
    let statements = writer.statements(&scope, count, 400);
    // The counter and the bound of a loop have the number of its label. Labels start at 1.
    let labels = writer.labels + 1;
    let mut text = format!(
        ".func (.param .b32 result) {name}(.param .b32 x, .param .b64 y, .param .b32 n)\n{{\n{TEMPORARIES}\
         .reg .b16 %h<{}>;\n.reg .b32 %r<{}>, %c<{labels}>, %b<{labels}>, %tlane, %twarp, %tblock;\n.reg .b64 %d<{}>;\n.reg .pred %p<{}>;\n\
         mov.u32 %tlane, %laneid;\nmov.u32 %twarp, %warpid;\nmov.u32 %tblock, %ctaid.x;\n\
         ld.param.b32 %r0, [x];\nld.param.b64 %d0, [y];\nld.param.b32 %more, [n];\n",
        counts.halves, counts.words, counts.wides, counts.predicates
    );
    for index in 1..counts.words {
        let _ =
            writeln!(text, "mad.lo.s32 %r{index}, %r{}, {}, {index};", index - 1, random.bits() as u16 | 1);
    }
    for index in 1..counts.wides {
        let _ = writeln!(text, "mul.wide.s32 %d{index}, %r{}, %r{};", index % counts.words, counts.words - 1);
    }
    for index in 0..counts.halves {
        let _ = writeln!(text, "cvt.u16.u32 %h{index}, %r{};", index % counts.words);
    }
    for index in 0..counts.predicates {
        let _ = writeln!(text, "setp.lt.s32 %p{index}, %r{}, {index};", index % counts.words);
    }
    let (a, d) = (writer.register('r'), writer.register('d'));
    let end = format!(
        "mov.u32 %result, {a};\nsetp.eq.u32 %q0, %more, 0;\n@%q0 bra $DONE;\nsub.u32 %more, %more, 1;\n\
         {{\n.param .b32 px;\n.param .b64 py;\n.param .b32 pn;\n.param .b32 pr;\nst.param.b32 [px], {a};\n\
         st.param.b64 [py], {d};\nst.param.b32 [pn], %more;\ncall (pr), {name}, (px, py, pn);\n\
         ld.param.b32 %result, [pr];\n}}\nxor.b32 %result, %result, {a};\ncvt.u32.u16 %t0, %h0;\n\
         add.u32 %result, %result, %t0;\n$DONE:\nst.param.b32 [result], %result;\nret;\n"
    );
    text + &text_of(&statements, &end) + "}\n"
}

impl Writer {
    /// Draws a call whose recursion is at most three deep.
    pub(super) fn call(&mut self) -> String {
        match self.random.below(3) {
            0 => {
                let depth = self.random.below(4).to_string();
                self.call_function(&depth)
            }
            1 => self.call_function("0"),
            _ => {
                let register = self.register('r');
                format!("and.b32 %t0, {register}, 3;\n{}", self.call_function("%t0"))
            }
        }
    }

    /// Draws a call with an operand for the depth of the recursion.
    pub(super) fn call_function(&mut self, depth: &str) -> String {
        let index = self.random.below(self.functions.len() as u64) as usize;
        let name = self.functions[index].clone();
        let (a, b, d) = (self.register('r'), self.register('d'), self.result('r'));
        let (before, callee, prototype) = if self.once_in(3) {
            // Lanes call different functions.
            let other = self.functions[self.random.below(self.functions.len() as u64) as usize].clone();
            let (p, label) = (self.register('p'), self.label().replace('$', ""));
            (
                format!(
                    "mov.u64 %a3, {name};\nmov.u64 %a4, {other};\nselp.b64 %a3, %a3, %a4, {p};\n\
                     proto{label}: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b64 _, .param .b32 _);\n"
                ),
                "%a3".to_owned(),
                format!(", proto{label}"),
            )
        } else {
            (String::new(), name, String::new())
        };
        format!(
            "{before}{{\n.param .b32 px;\n.param .b64 py;\n.param .b32 pn;\n.param .b32 pr;\nst.param.b32 [px], {a};\n\
             st.param.b64 [py], {b};\nst.param.b32 [pn], {depth};\ncall (pr), {callee}, (px, py, pn){prototype};\n\
             ld.param.b32 {d}, [pr];\n}}\n"
        )
    }
}
