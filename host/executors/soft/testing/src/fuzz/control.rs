//! Branches and loops. Where the lanes that execute a statement are known, they are known inside, too: a vote
//! before a branch, and one at the end of each iteration, tell which lanes go on.

use std::fmt::Write as _;

use crate::fuzz::program::Statement;
use crate::fuzz::writer::{Mask, Scope, Writer};

impl Writer {
    /// Draws a branch that a whole block, a warp, or each lane decides.
    pub(super) fn branch(&mut self, scope: &Scope, limit: u64) -> Statement {
        let inner = Scope { depth: scope.depth + 1, ..scope.clone() };
        let (mut then, mut other) = (inner.clone(), inner);
        let end = self.label();
        let kind = if self.uniform { 0 } else { self.random.below(6) };
        let (open, otherwise) = match kind {
            // All threads of a block go the same way, which the text says or does not say.
            0 => {
                let uni = self.pick(&["", ".uni"]);
                let (by, less) = (self.random.below(3), self.pick(&["lt", "eq", "ne"]));
                (format!("setp.{less}.u32 %q1, %tblock, {by};\n@!%q1 bra{uni} "), true)
            }
            // All lanes of a warp go the same way.
            1 => {
                (then.together, other.together) = (false, false);
                let by = self.random.below(2);
                (format!("and.b32 %t0, %twarp, 1;\nsetp.eq.u32 %q1, %t0, {by};\n@!%q1 bra "), true)
            }
            _ => {
                (then.together, other.together) = (false, false);
                let p = if self.once_in(3) {
                    let lane = self.random.below(33);
                    ("%q1".to_owned(), format!("setp.lt.u32 %q1, %tlane, {lane};\n"))
                } else {
                    (self.register('p'), String::new())
                };
                let (p, before) = p;
                let mut open = before;
                if scope.mask == Mask::Unknown || self.once_in(3) {
                    (then.mask, other.mask) = (Mask::Unknown, Mask::Unknown);
                } else {
                    let mask = scope.mask.operand();
                    let (yes, no) = (self.new_mask(), self.new_mask());
                    let _ = write!(
                        open,
                        "vote.sync.ballot.b32 {yes}, {p}, {mask};\nnot.b32 {no}, {yes};\n\
                         and.b32 {no}, {no}, {mask};\n"
                    );
                    (then.mask, other.mask) = (Mask::Register(yes), Mask::Register(no));
                }
                (format!("{open}@!{p} bra "), self.random.below(2) == 0)
            }
        };
        let count = 1 + self.random.below(6);
        self.cost += 4 * scope.runs;
        if self.once_in(4) {
            let (join, body) = (self.label(), self.statements(&other, count, limit));
            return Statement::Far { open: format!("{open}{end};\n"), label: end, body, join };
        }
        let mut body = self.statements(&then, count, limit);
        if self.leaves && self.once_in(4) {
            body.push(Statement::Lines(format!("{};\n", self.pick(&["ret", "exit"]))));
        }
        if otherwise && self.random.below(2) == 0 {
            let join = self.label();
            let count = 1 + self.random.below(6);
            return Statement::Block {
                open: format!("{open}{end};\n"),
                body,
                middle: format!("bra {join};\n{end}:\n"),
                other: self.statements(&other, count, limit),
                close: format!("{join}:\n"),
            };
        }
        let close = format!("{end}:\n");
        Statement::Block {
            open: format!("{open}{end};\n"),
            body,
            middle: String::new(),
            other: Vec::new(),
            close,
        }
    }

    /// Draws a loop. Its bound is a constant, or each lane has its own.
    pub(super) fn repeat(&mut self, scope: &Scope, limit: u64) -> Statement {
        let head = self.label();
        let (counter, bound) = (format!("%c{}", self.labels), format!("%b{}", self.labels));
        let most = 1 + self.random.below(5);
        let mut inner = Scope { depth: scope.depth + 1, runs: scope.runs * most, ..scope.clone() };
        let mut open = format!("mov.u32 {counter}, 0;\n");
        let mut close = format!("add.u32 {counter}, {counter}, 1;\n");
        if self.uniform || self.once_in(2) {
            let _ = writeln!(open, "{head}:");
            let _ = writeln!(close, "setp.lt.u32 %q0, {counter}, {most};\n@%q0 bra {head};");
        } else {
            let bits = [0, 1, 1, 3, 3, 3][most as usize];
            let _ = writeln!(open, "and.b32 {bound}, {}, {bits};", self.register('r'));
            let _ = writeln!(close, "setp.le.u32 %q0, {counter}, {bound};");
            inner.together = false;
            if scope.mask == Mask::Unknown {
                let _ = writeln!(open, "{head}:");
            } else {
                let mask = self.new_mask();
                let _ = writeln!(open, "mov.b32 {mask}, {};\n{head}:", scope.mask.operand());
                let _ = writeln!(close, "vote.sync.ballot.b32 {mask}, %q0, {mask};");
                inner.mask = Mask::Register(mask);
            }
            let _ = writeln!(close, "@%q0 bra {head};");
        }
        let count = 1 + self.random.below(8);
        let body = self.statements(&inner, count, limit);
        self.cost += 4 * inner.runs;
        Statement::Block { open, body, middle: String::new(), other: Vec::new(), close }
    }
}
