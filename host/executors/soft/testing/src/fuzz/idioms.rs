//! Sequences that the engine lowers to one instruction: loads of neighbours, unions of bit fields, rounds of
//! a reduction, and conversions of packed numbers. Values between two instructions are read once.

use std::fmt::Write as _;

use crate::fuzz::case::TABLE;
use crate::fuzz::writer::{Mask, Scope, Writer};

impl Writer {
    /// Returns a new register that one sequence uses, whose name begins with `i` or, for 16 bits, `hi`.
    fn fresh(&mut self, class: &str) -> String {
        self.temporaries += 1;
        format!("%{class}{}", self.temporaries)
    }

    /// Draws a sequence.
    pub(super) fn idiom(&mut self, scope: &Scope) -> String {
        match self.random.below(8) {
            0 => self.neighbours(),
            1 => self.halves(),
            2 if scope.mask == Mask::All => self.round(),
            3 => {
                let (low, high) = (self.fresh("hi"), self.fresh("hi"));
                let (a, d, ty) = (self.register('r'), self.result('r'), self.pick(&["f16", "bf16"]));
                let taken = self.pick(&[&low, &high]);
                format!("mov.b32 {{{low}, {high}}}, {a};\ncvt.f32.{ty} {d}, {taken};\n")
            }
            4 => self.small_products(),
            5 => self.conditions(),
            _ => self.fields(),
        }
    }

    /// Draws an address in the table, at which a lane reads.
    fn place(&mut self, align: u64) -> String {
        let mask = 0xff0 | (16 - align);
        format!(
            "and.b32 %t0, {}, {mask};\ncvt.u64.u32 %a1, %t0;\nadd.s64 %a1, %a1, %atable;\n",
            self.register('r')
        )
    }

    /// Draws loads of two neighbouring words.
    fn neighbours(&mut self) -> String {
        let at = 4 * self.random.below((TABLE - 0x1000 - 8) / 4 + 1);
        let names = self.results('r', 2);
        let (first, second) = (&names[0], &names[names.len() - 1]);
        let space = self.pick(&["global", "global.nc"]);
        format!(
            "{}ld.{space}.b32 {first}, [%a1+{at}];\nld.{space}.b32 {second}, [%a1+{}];\n",
            self.place(4),
            at + 4
        )
    }

    /// Draws loads of two or four neighbouring halves, which are packed to words.
    fn halves(&mut self) -> String {
        let at = 2 * self.random.below((TABLE - 0x1000 - 8) / 2 + 1);
        let mut text = self.place(2);
        for pair in 0..=self.random.below(2) {
            let (low, high, d) = (self.fresh("hi"), self.fresh("hi"), self.result('r'));
            let at = at + 4 * pair;
            let _ = write!(
                text,
                "ld.global.u16 {low}, [%a1+{at}];\nld.global.u16 {high}, [%a1+{}];\nmov.b32 {d}, {{{low}, {high}}};\n",
                at + 2
            );
        }
        text
    }

    /// Draws rounds of a reduction over all lanes.
    fn round(&mut self) -> String {
        let mut text = String::new();
        let d = self.result('r');
        let op = self.pick(&[
            "add.f32",
            "add.ftz.f32",
            "add.rn.f32",
            "max.ftz.f32",
            "max.f32",
            "add.s32",
            "min.s32",
        ]);
        for _ in 0..=self.random.below(4) {
            let (other, moved) = (self.fresh("i"), self.fresh("i"));
            let (a, by) =
                (if self.once_in(4) { self.register('r') } else { d.clone() }, self.pick(&[1, 2, 4, 8, 16]));
            let _ = write!(
                text,
                "shfl.sync.bfly.b32 {other}, {a}, {by}, 31, -1;\nmov.b32 {moved}, {other};\n{op} {d}, {a}, {moved};\n"
            );
        }
        text
    }

    /// Draws products of bytes, of which one side is small.
    fn small_products(&mut self) -> String {
        let (small, a, b, c, d) =
            (self.fresh("i"), self.register('r'), self.register('r'), self.register('r'), self.result('r'));
        let mask = self.pick(&["252645135", "2139062143", "50529027", "4294967295"]);
        let (x, y) = self.pick(&[(&small, &b), (&b, &small)]);
        format!("and.b32 {small}, {a}, {mask};\ndp4a.s32.s32 {d}, {x}, {y}, {c};\n")
    }

    /// Draws comparisons and the logic of their results, which select a value.
    fn conditions(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..2 {
            let (p, a, b) = (self.result('p'), self.register('r'), self.register('r'));
            let compare = self.pick(&["lt.s32", "ge.u32", "eq.s32", "lt.f32", "geu.ftz.f32"]);
            let _ = writeln!(text, "setp.{compare} {p}, {a}, {b};");
        }
        for _ in 0..=self.random.below(3) {
            let (p, q, s) = (self.result('p'), self.register('p'), self.register('p'));
            let _ = writeln!(text, "{}.pred {p}, {q}, {s};", self.pick(&["and", "or", "xor"]));
        }
        let (d, a, b, p) = (self.result('r'), self.register('r'), self.register('r'), self.source('p'));
        text + &format!("selp.b32 {d}, {a}, {b}, {p};\n")
    }

    /// Draws a union of bit fields of a few registers.
    fn fields(&mut self) -> String {
        let mut text = String::new();
        let mut all = String::new();
        for number in 0..=1 + self.random.below(3) {
            let mut from = self.register('r');
            for _ in 0..=self.random.below(2) {
                let to = self.fresh("i");
                let step = match self.random.below(3) {
                    0 => format!("and.b32 {to}, {from}, {};\n", self.random.bits() as u32),
                    1 => format!("shl.b32 {to}, {from}, {};\n", self.random.below(32)),
                    _ => format!("shr.u32 {to}, {from}, {};\n", self.random.below(32)),
                };
                text += &step;
                from = to;
            }
            if number > 0 {
                let to = self.fresh("i");
                let _ = writeln!(text, "or.b32 {to}, {all}, {from};");
                from = to;
            }
            all = from;
        }
        let _ = writeln!(text, "and.b32 {}, {all}, {};", self.result('r'), self.random.bits() as u32);
        text
    }
}
