//! Statements of several lanes or warps: shuffles, votes, reductions, products of matrices, and barriers.

use std::fmt::Write as _;

use crate::fuzz::writer::{Mask, Scope, Writer};

/// Matrix products, and the number of registers of D, A, B and C.
const PRODUCTS: [(&str, [usize; 4]); 14] = [
    ("m8n8k4.row.col.f32.f16.f16.f32", [8, 2, 2, 8]),
    ("m8n8k4.row.row.f16.f16.f16.f16", [4, 2, 2, 4]),
    ("m8n8k4.row.col.f16.f16.f16.f16", [4, 2, 2, 4]),
    ("m8n8k4.col.row.f32.f16.f16.f32", [8, 2, 2, 8]),
    ("m8n8k4.col.col.f32.f16.f16.f16", [8, 2, 2, 4]),
    ("m8n8k16.row.col.s32.s8.s8.s32", [2, 1, 1, 2]),
    ("m16n8k16.row.col.s32.s8.s8.s32", [4, 2, 1, 4]),
    ("m16n8k32.row.col.s32.s8.s8.s32", [4, 4, 2, 4]),
    ("m16n8k8.row.col.f32.f16.f16.f32", [4, 2, 1, 4]),
    ("m16n8k16.row.col.f32.f16.f16.f32", [4, 4, 2, 4]),
    ("m16n8k8.row.col.f16.f16.f16.f16", [2, 2, 1, 2]),
    ("m16n8k16.row.col.f16.f16.f16.f16", [2, 4, 2, 2]),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", [4, 4, 2, 4]),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", [4, 4, 2, 4]),
];

/// Products by `wmma`: shape, types and the number of registers of D, A, B and C.
const WMMA: [(&str, &str, [usize; 4]); 17] = [
    ("m16n16k16", "f32.f32", [8, 8, 8, 8]),
    ("m8n32k16", "f16.f16", [4, 8, 8, 4]),
    ("m32n8k16", "f32.f16", [8, 8, 8, 4]),
    ("m16n16k16", "f16.f32", [4, 8, 8, 8]),
    ("m8n32k16", "f32.f32", [8, 8, 8, 8]),
    ("m32n8k16", "f16.f16", [4, 8, 8, 4]),
    ("m16n16k16", "s32.s8.s8.s32", [8, 2, 2, 8]),
    ("m16n16k16", "s32.u8.u8.s32.satfinite", [8, 2, 2, 8]),
    ("m8n32k16", "s32.s8.s8.s32.satfinite", [8, 1, 4, 8]),
    ("m32n8k16", "s32.u8.u8.s32", [8, 4, 1, 8]),
    ("m8n8k32", "s32.s4.s4.s32", [2, 1, 1, 2]),
    ("m8n8k32", "s32.u4.u4.s32", [2, 1, 1, 2]),
    ("m8n8k32", "s32.s4.s4.s32.satfinite", [2, 1, 1, 2]),
    ("m16n16k16", "f32.bf16.bf16.f32", [8, 4, 4, 8]),
    ("m8n32k16", "f32.bf16.bf16.f32", [8, 2, 8, 8]),
    ("m32n8k16", "f32.bf16.bf16.f32", [8, 8, 2, 8]),
    ("m16n16k8", "f32.tf32.tf32.f32", [8, 4, 4, 8]),
];

/// Loads of matrices by `wmma`: what precedes and follows the layout, and the number of registers.
const WMMA_LOADS: [(&str, &str, usize); 8] = [
    ("a", "m16n16k16.global.f16", 8),
    ("b", "m8n32k16.global.u8", 4),
    ("a", "m32n8k16.s8", 4),
    ("b", "m16n16k16.global.bf16", 4),
    ("a", "m16n16k8.global.tf32", 4),
    ("c", "m8n32k16.f16", 4),
    ("c", "m16n16k16.global.s32", 8),
    ("c", "m8n8k32.global.s32", 2),
];

fn braces(names: &[String]) -> String {
    format!("{{{}}}", names.join(", "))
}

impl Writer {
    fn list(&mut self, count: usize) -> String {
        let names: Vec<String> = if self.random.below(2) == 0 {
            self.results('r', count)
        } else {
            (0..count).map(|_| self.register('r')).collect()
        };
        braces(&names)
    }

    /// Draws an instruction of the lanes that execute the statement.
    pub(super) fn exchange(&mut self, scope: &Scope) -> String {
        let mask = scope.mask.operand().to_owned();
        match self.random.below(11) {
            10 => self.subgroups(&mask),
            0..=4 if scope.mask == Mask::All => match self.random.below(4) {
                0 => self.group(),
                _ => self.shuffle(32, "-1"),
            },
            0..=4 => self.shuffle_within(&mask),
            5 => {
                let (d, p) = (self.result('r'), self.source('p'));
                format!("vote.sync.ballot.b32 {d}, {p}, {mask};\n")
            }
            6 => {
                let (d, p, mode) = (self.result('p'), self.source('p'), self.pick(&["all", "any", "uni"]));
                format!("vote.sync.{mode}.pred {d}, {p}, {mask};\n")
            }
            7 => {
                let class = self.pick(&['r', 'd']);
                let (d, p, a) = (self.result('r'), self.result('p'), self.register(class));
                let bits = if class == 'r' { 32 } else { 64 };
                match self.random.below(3) {
                    0 => format!("match.any.sync.b{bits} {d}, {a}, {mask};\n"),
                    1 => format!("match.all.sync.b{bits} {d}|{p}, {a}, {mask};\n"),
                    // Few values, so that several lanes have the same.
                    _ => {
                        let a = self.register('r');
                        format!("and.b32 %t0, {a}, 3;\nmatch.any.sync.b32 {d}, %t0, {mask};\n")
                    }
                }
            }
            8 => {
                let (d, a) = (self.result('r'), self.register('r'));
                let op = self.pick(&[
                    "and.b32", "or.b32", "xor.b32", "add.u32", "add.s32", "min.u32", "max.s32", "min.s32",
                    "max.u32",
                ]);
                format!("redux.sync.{op} {d}, {a}, {mask};\n")
            }
            _ => format!("bar.warp.sync {mask};\n"),
        }
    }

    /// Draws a shuffle among `width` neighbouring lanes, all of which execute it.
    fn shuffle(&mut self, width: u64, mask: &str) -> String {
        let a = self.register('r');
        // In half of the cases the destination is the source, as in scans.
        let d = if self.random.below(2) == 0 { a.clone() } else { self.result('r') };
        let mode = self.pick(&["up", "down", "bfly", "idx"]);
        let segment = if width < 32 { width } else { self.pick(&[32, 32, 16, 8, 4, 2]) };
        let clamp = (32 - segment) << 8 | if mode == "up" { 0 } else { 31 };
        let by = match self.random.below(3) {
            0 if width == 32 => self.register('r'),
            1 => self.pick(&[0_u64, 1, 2, 4, 8, 16, 31]).min(segment - 1).to_string(),
            _ => self.random.below(segment).to_string(),
        };
        match self.random.below(4) {
            0 => {
                let (p, e) = (self.result('p'), self.result('r'));
                format!(
                    "shfl.sync.{mode}.b32 {d}|{p}, {a}, {by}, {clamp}, {mask};\n@{p} add.s32 {e}, {e}, {d};\n"
                )
            }
            1 => format!(
                "shfl.sync.{mode}.b32 {d}, {a}, {by}, {clamp}, {mask};\nadd.rn.ftz.f32 {a}, {a}, {d};\n"
            ),
            _ => format!("shfl.sync.{mode}.b32 {d}, {a}, {by}, {clamp}, {mask};\n"),
        }
    }

    /// Draws a shuffle of the lanes in a mask. What comes from another lane is replaced by 0.
    fn shuffle_within(&mut self, mask: &str) -> String {
        let a = self.register('r');
        let d = if self.random.below(2) == 0 { a.clone() } else { self.result('r') };
        let by = 1 + self.random.below(31);
        // The lane from which the value comes, which is this lane where the index is out of range.
        let (mode, from) = match self.random.below(4) {
            0 => (
                "up",
                format!(
                    "sub.s32 %t1, %tlane, {by};\nsetp.lt.s32 %q1, %t1, 0;\nselp.b32 %t1, %tlane, %t1, %q1;\n"
                ),
            ),
            1 => (
                "down",
                format!(
                    "add.s32 %t1, %tlane, {by};\nsetp.gt.s32 %q1, %t1, 31;\nselp.b32 %t1, %tlane, %t1, %q1;\n"
                ),
            ),
            2 => ("bfly", format!("xor.b32 %t1, %tlane, {by};\n")),
            _ => ("idx", format!("mov.u32 %t1, {by};\n")),
        };
        let clamp = if mode == "up" { 0 } else { 31 };
        let p = if self.once_in(3) { format!("|{}", self.result('p')) } else { String::new() };
        format!(
            "{from}shr.u32 %t1, {mask}, %t1;\nand.b32 %t1, %t1, 1;\nsetp.ne.u32 %q1, %t1, 0;\n\
             shfl.sync.{mode}.b32 {d}{p}, {a}, {by}, {clamp}, {mask};\nselp.b32 {d}, {d}, 0, %q1;\n"
        )
    }

    /// Draws instructions of groups of lanes with equal values. Each lane names its own group.
    fn subgroups(&mut self, mask: &str) -> String {
        let (few, a) = (self.pick(&[1, 3, 31]), self.register('r'));
        let mut text = format!("and.b32 %t0, {a}, {few};\nmatch.any.sync.b32 %t1, %t0, {mask};\n");
        for _ in 0..=self.random.below(3) {
            let (d, p, a) = (self.result('r'), self.source('p'), self.register('r'));
            let _ = match self.random.below(6) {
                0 => writeln!(text, "vote.sync.ballot.b32 {d}, {p}, %t1;"),
                1 => {
                    let (d, mode) = (self.result('p'), self.pick(&["all", "any", "uni"]));
                    writeln!(text, "vote.sync.{mode}.pred {d}, {p}, %t1;")
                }
                2 => {
                    let op = self.pick(&["xor.b32", "add.u32", "min.s32"]);
                    writeln!(text, "redux.sync.{op} {d}, {a}, %t1;")
                }
                3 => writeln!(text, "match.any.sync.b32 {d}, {a}, %t1;"),
                4 => writeln!(text, "bar.warp.sync %t1;"),
                _ => writeln!(text, "bfind.u32 %t0, %t1;\nshfl.sync.idx.b32 {d}, {a}, %t0, 31, %t1;"),
            };
        }
        text
    }

    /// Draws shuffles of a group of lanes while the others are elsewhere.
    fn group(&mut self) -> String {
        let (label, width) = (self.label(), self.pick(&[16, 8, 4]));
        let first = width * self.random.below(32 / width);
        let mask = (((1_u64 << width) - 1) << first).to_string();
        let mut text =
            format!("sub.s32 %t0, %tlane, {first};\nsetp.ge.u32 %q1, %t0, {width};\n@%q1 bra {label};\n");
        for _ in 0..=self.random.below(3) {
            text += &self.shuffle(width, &mask);
            let (d, a) = (self.result('r'), self.register('r'));
            let _ = writeln!(text, "add.s32 {d}, {a}, {d};");
        }
        text + &format!("{label}:\n")
    }

    /// Draws a product of matrices, or loads, stores and transpositions of them.
    pub(super) fn matrix(&mut self) -> String {
        if self.counts.words < 10 {
            return self.arithmetic();
        }
        match self.random.below(9) {
            8 => {
                let (matrix, form, count) = self.pick(&WMMA_LOADS);
                let layout = self.pick(&["row", "col"]);
                let (at, stride) = (16 * self.random.below(64), self.pick(&["", ", 16", ", 32"]));
                let stride = if form.starts_with("m8n32") || form.starts_with("m32") { "" } else { stride };
                let d = braces(&self.results('r', count));
                format!("wmma.load.{matrix}.sync.aligned.{layout}.{form} {d}, [%atable+{at}]{stride};\n")
            }
            0..=3 => {
                let (form, [d, a, b, c]) = self.pick(&PRODUCTS);
                let d = braces(&self.results('r', d));
                let (a, b, c) = (self.list(a), self.list(b), self.list(c));
                format!("mma.sync.aligned.{form} {d}, {a}, {b}, {c};\n")
            }
            4 => {
                let (d, a) = (self.result('r'), self.register('r'));
                format!("movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a};\n")
            }
            5 => {
                let (shape, types, [d, a, b, c]) = self.pick(&WMMA);
                let layouts = [self.pick(&["row", "col"]), self.pick(&["row", "col"])];
                let layouts = if shape == "m8n8k32" { ["row", "col"] } else { layouts };
                let d = braces(&self.results('r', d));
                let (a, b, c) = (self.list(a), self.list(b), self.list(c));
                format!(
                    "wmma.mma.sync.aligned.{}.{}.{shape}.{types} {d}, {a}, {b}, {c};\n",
                    layouts[0], layouts[1]
                )
            }
            kind => {
                // Each lane's own 16 bytes are a row.
                if self.shared < 16 {
                    return self.arithmetic();
                }
                let count = self.pick(&[1, 2, 4]);
                let trans = self.pick(&["", ".trans"]);
                let at = 16 * self.random.below(self.shared / 16);
                let (space, base) = self.pick(&[(".shared", "%tsown"), ("", "%agshared")]);
                if kind == 6 {
                    let d = braces(&self.results('r', count));
                    format!("ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {d}, [{base}+{at}];\n")
                } else {
                    let a = self.list(count);
                    format!("stmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 [{base}+{at}], {a};\n")
                }
            }
        }
    }

    /// Draws barriers that all threads of the block reach, most with an exchange of values through shared
    /// memory between them.
    pub(super) fn barrier(&mut self) -> String {
        let sync = self.pick(&["bar.sync 0", "barrier.sync 0", "barrier.sync.aligned 3", "bar.cta.sync 1"]);
        let threads = self.threads;
        if self.leaves {
            return format!("{sync};\n");
        }
        match self.random.below(6) {
            0 => format!("{sync};\n"),
            1 => {
                let (p, q, d) = (self.result('p'), self.source('p'), self.result('r'));
                match self.random.below(3) {
                    0 => format!("bar.red.popc.u32 {d}, 0, {q};\n"),
                    1 => format!("bar.red.and.pred {p}, 2, {q};\n"),
                    _ => format!("bar.red.or.pred {p}, 0, {q};\n"),
                }
            }
            // Some warps arrive without waiting, and the others wait for them.
            2 if threads.is_multiple_of(64) => {
                let (label, join) = (self.label(), self.label());
                // No number of threads is a constant, so that the reducer can change it.
                format!(
                    "shr.u32 %t0, %tcount, 6;\nshl.b32 %t0, %t0, 5;\nsetp.lt.u32 %q1, %tme, %t0;\n\
                     @%q1 bra {label};\nbar.sync 5, %tcount;\nbra {join};\n{label}:\n\
                     bar.arrive 5, %tcount;\n{join}:\nbar.sync 0;\n"
                )
            }
            _ => {
                let (a, d, by) = (self.register('r'), self.result('r'), self.random.below(threads.into()));
                format!(
                    "st.shared.b32 [%tbounce], {a};\n{sync};\nadd.u32 %t0, %tme, {by};\nrem.u32 %t0, %t0, %tcount;\n\
                     mov.u32 %t1, bounce;\nmad.lo.u32 %t0, %t0, 4, %t1;\nld.shared.b32 {d}, [%t0];\n{sync};\n"
                )
            }
        }
    }
}
