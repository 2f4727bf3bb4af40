//! Programs at random, which must compute the same bits on all engines: long straight lines that keep more
//! values than a processor has registers, loops, branches that divide warps, loads, stores and shuffles.

#![allow(clippy::many_single_char_names, reason = "operands have the names of the ISA")]

use libtest_mimic::{Failed, Trial};
use vgpu_simt::Features;

use crate::device::{Device, Params, Shape};
use crate::values::{F32_EDGES, Random};

/// Programs.
const PROGRAMS: u64 = 64;
/// Statements of a program's loop, and how often it runs: about a million instructions of warps in all.
const STATEMENTS: usize = 320;
const ROUNDS: u32 = 12;
/// Words of the table that programs read.
const TABLE: usize = 1024;
/// Registers of 32 bits for integers and for floats, of 64 bits, and predicates.
const WORDS: u64 = 24;
const FLOATS: u64 = 16;
const WIDES: u64 = 8;
const PREDICATES: u64 = 4;
/// Bytes that each thread leaves.
const RESULT: u64 = 4 * WORDS + 4 * FLOATS + 8 * WIDES;

struct Writer {
    random: Random,
    text: String,
    /// `.ftz` or nothing.
    ftz: &'static str,
    /// Whether all lanes of all warps have threads, so that shuffles read no lane without one.
    full: bool,
    /// Whether nothing but arithmetic is written, so that pieces are long and registers few.
    plain: bool,
    labels: usize,
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.random.below(of.len() as u64) as usize]
    }

    fn word(&mut self) -> String {
        format!("%r{}", self.random.below(WORDS))
    }

    /// A register, or now and then a constant.
    fn operand(&mut self) -> String {
        match self.random.below(6) {
            0 => self.random.below(64).to_string(),
            1 => format!("{}", self.random.bits() as u32),
            _ => self.word(),
        }
    }

    fn float(&mut self) -> String {
        format!("%f{}", self.random.below(FLOATS))
    }

    fn wide(&mut self) -> String {
        format!("%d{}", self.random.below(WIDES))
    }

    fn predicate(&mut self) -> String {
        format!("%p{}", self.random.below(PREDICATES))
    }

    fn integers(&mut self) {
        const TWO: &[&str] = &[
            "add.s32",
            "sub.s32",
            "mul.lo.s32",
            "mul.hi.u32",
            "mul.hi.s32",
            "and.b32",
            "or.b32",
            "xor.b32",
            "min.s32",
            "max.s32",
            "min.u32",
            "max.u32",
            "shl.b32",
            "shr.u32",
            "shr.s32",
        ];
        let (d, a, b, c) = (self.word(), self.word(), self.operand(), self.word());
        let line = match self.random.below(10) {
            0 => format!("mad.lo.s32 {d}, {a}, {b}, {c};"),
            1 => format!("dp4a.s32.s32 {d}, {a}, {c}, {c};"),
            2 => format!(
                "{} {d}, {a};",
                self.pick(&["neg.s32", "abs.s32", "not.b32", "mov.b32", "cvt.u32.u8"])
            ),
            // The products of such bytes need not be split.
            3 => format!("and.b32 {d}, {a}, 252645135;\ndp4a.s32.s32 {c}, {d}, {a}, {c};"),
            _ => format!("{} {d}, {a}, {b};", self.pick(TWO)),
        };
        self.line(&line);
    }

    fn wides(&mut self) {
        let (d, a, b, x, y) = (self.wide(), self.wide(), self.wide(), self.word(), self.word());
        let line = match self.random.below(9) {
            0 => format!("mul.wide.s32 {d}, {x}, {y};"),
            1 => format!("mul.wide.u32 {d}, {x}, {y};"),
            2 => format!("cvt.s64.s32 {d}, {x};"),
            3 => format!("cvt.u32.u64 {x}, {a};"),
            4 => format!("mov.b64 {d}, {{{x}, {y}}};"),
            5 => format!("mov.b64 {{{x}, {y}}}, {a};"),
            6 => format!("{} {d}, {a}, {x};", self.pick(&["shl.b64", "shr.u64"])),
            _ => {
                let operation = self.pick(&["add.s64", "sub.s64", "mul.lo.s64", "and.b64", "xor.b64"]);
                format!("{operation} {d}, {a}, {b};")
            }
        };
        self.line(&line);
    }

    fn floats(&mut self) {
        let (d, a, b, c) = (self.float(), self.float(), self.float(), self.float());
        let (word, ftz) = (self.word(), self.ftz);
        let line = match self.random.below(12) {
            0 | 1 => format!("fma.rn{ftz}.f32 {d}, {a}, {b}, {c};"),
            2 => format!("mov.b32 {d}, {word};"),
            3 => format!("mov.b32 {word}, {a};"),
            4 => format!("cvt.rn.f32.s32 {d}, {word};"),
            5 => format!("cvt.rn.f16.f32 %h0, {a};\ncvt.f32.f16 {d}, %h0;"),
            6 => format!("{}{ftz}.f32 {d}, {a};", self.pick(&["ex2.approx", "rcp.approx", "sqrt.approx"])),
            7 => format!("div.approx{ftz}.f32 {d}, {a}, {b};"),
            8 => format!("{}{ftz}.f32 {d}, {a}, {b};", self.pick(&["min", "max"])),
            _ => format!("{}.rn{ftz}.f32 {d}, {a}, {b};", self.pick(&["add", "sub", "mul"])),
        };
        self.line(&line);
    }

    fn predicates(&mut self) {
        let (p, q, d, a, b) = (self.predicate(), self.predicate(), self.word(), self.word(), self.operand());
        let (x, y, ftz) = (self.float(), self.float(), self.ftz);
        let compare = self.pick(&["lt", "le", "eq", "ne", "gt", "ge"]);
        let line = match self.random.below(6) {
            0 => format!("setp.{compare}{ftz}.f32 {p}, {x}, {y};"),
            1 => format!("setp.{compare}.u32 {p}, {a}, {b};"),
            2 => format!("setp.{compare}.s32 {p}, {a}, {b};"),
            3 => format!("{} {p}, {p}, {q};", self.pick(&["and.pred", "or.pred", "xor.pred"])),
            4 => format!("selp.b32 {d}, {a}, {b}, {p};"),
            _ => format!("selp.f32 {x}, {x}, {y}, {p};"),
        };
        self.line(&line);
    }

    /// Accesses to the table, and to a word of shared memory that is the thread's own.
    fn memory(&mut self) {
        let (d, e, a, x) = (self.word(), self.word(), self.word(), self.float());
        match self.random.below(6) {
            0 => self.line(&format!("st.shared.b32 [%own], {a};")),
            1 => self.line(&format!("ld.shared.b32 {d}, [%own];")),
            kind => {
                self.line(&format!(
                    "and.b32 %at, {a}, 2040;\ncvt.u64.u32 %to, %at;\nadd.s64 %to, %to, %table;"
                ));
                let line = match kind {
                    2 => format!("ld.global.b32 {d}, [%to+16];"),
                    3 => format!("ld.global.v2.b32 {{{d}, {e}}}, [%to];"),
                    4 => format!("ld.global.u16 %h1, [%to+2];\ncvt.u32.u16 {d}, %h1;"),
                    _ => format!("ld.global.f32 {x}, [%to+4];"),
                };
                self.line(&line);
            }
        }
    }

    fn statement(&mut self) {
        match self.random.below(if self.plain { 14 } else { 20 }) {
            0..6 => self.integers(),
            6..8 => self.wides(),
            8..14 => self.floats(),
            14..16 => self.predicates(),
            16..18 => self.memory(),
            18 if self.full => {
                let (d, a) = (self.word(), self.word());
                let by = self.pick(&["1", "2", "4", "8", "16"]);
                self.line(&format!("shfl.sync.bfly.b32 {d}, {a}, {by}, 31, -1;"));
            }
            _ => self.part(),
        }
    }

    /// Statements that some lanes skip.
    fn part(&mut self) {
        let (label, p, full) = (self.labels, self.predicate(), self.full);
        self.labels += 1;
        self.line(&format!("@{p} bra $skip{label};"));
        // Lanes that are elsewhere cannot be shuffled with.
        self.full = false;
        for _ in 0..self.random.below(6) {
            match self.random.below(3) {
                0 => self.floats(),
                1 => self.wides(),
                _ => self.integers(),
            }
        }
        self.full = full;
        self.line(&format!("$skip{label}:"));
    }
}

/// The text of a program.
fn program(seed: u64, full: bool) -> String {
    let ftz = if seed.is_multiple_of(2) { ".ftz" } else { "" };
    let plain = seed % 8 >= 4;
    let mut it = Writer { random: Random::new(seed), text: String::new(), ftz, full, plain, labels: 0 };
    it.line(&format!(
        ".visible .entry k(.param .u64 table, .param .u64 out)\n{{\n.shared .align 4 .b8 mine[1024];\n\
         .reg .b32 %r<{WORDS}>, %own, %at, %tid, %n, %base;\n.reg .f32 %f<{FLOATS}>;\n.reg .b64 %d<{WIDES}>, %to, %table;\n\
         .reg .b16 %h<2>;\n.reg .pred %p<{PREDICATES}>, %more;\n\
         ld.param.u64 %table, [table];\nmov.u32 %tid, %tid.x;\nmov.u32 %own, mine;\nmad.lo.s32 %own, %tid, 4, %own;\n\
         st.shared.b32 [%own], %tid;\nand.b32 %at, %tid, 31;\nmul.wide.u32 %to, %at, 4;\nadd.s64 %to, %to, %table;"
    ));
    for index in 0..WORDS {
        it.line(&format!("ld.global.b32 %r{index}, [%to+{}];", 128 * index));
    }
    for index in 0..FLOATS {
        it.line(&format!("ld.global.f32 %f{index}, [%to+{}];", 64 * index));
    }
    for index in 0..WIDES {
        it.line(&format!("mul.wide.s32 %d{index}, %r{index}, %r{};", index + 8));
    }
    for index in 0..PREDICATES {
        it.line(&format!("setp.lt.s32 %p{index}, %r{index}, %r{};", index + 4));
    }
    it.line("mov.u32 %n, 0;\n$loop:");
    for _ in 0..STATEMENTS {
        it.statement();
    }
    it.line(&format!("add.s32 %n, %n, 1;\nsetp.lt.u32 %more, %n, {ROUNDS};\n@%more bra $loop;"));
    it.line(&format!(
        "ld.param.u64 %to, [out];\nmul.wide.u32 %table, %tid, {RESULT};\nadd.s64 %to, %to, %table;"
    ));
    for index in 0..WORDS {
        it.line(&format!("st.global.b32 [%to+{}], %r{index};", 4 * index));
    }
    for index in 0..FLOATS {
        it.line(&format!("st.global.f32 [%to+{}], %f{index};", 4 * (WORDS + index)));
    }
    for index in 0..WIDES {
        it.line(&format!("st.global.b64 [%to+{}], %d{index};", 4 * (WORDS + FLOATS) + 8 * index));
    }
    it.line("ret;\n}");
    format!("{}{}", crate::case::HEADER, it.text)
}

/// What all threads of a program leave.
fn leaves(text: &str, features: Features, threads: u32) -> Result<Vec<u8>, String> {
    let mut device = Device::new(text, features)?;
    let mut random = Random::new(7);
    let word = |index: usize| F32_EDGES.get(index / 3).copied().filter(|_| index.is_multiple_of(3));
    let words: Vec<u32> = (0..TABLE).map(|index| word(index).unwrap_or(random.bits() as u32)).collect();
    let table = device.upload_words(&words);
    let bytes = u64::from(threads) * RESULT;
    let out = device.allocate(bytes);
    device.launch("k", Shape::line(1, threads), &Params::new().u64(table).u64(out))?;
    Ok(device.read(out, bytes))
}

/// Runs a program on all engines.
fn compare(seed: u64) -> Result<(), String> {
    // Every other pair of programs has a warp of a few threads.
    let full = seed % 4 < 2;
    let (text, threads) = (program(seed, full), if full { 128 } else { 100 });
    let mut first: Option<Vec<u8>> = None;
    for &features in Features::available() {
        let got = leaves(&text, features, threads)?;
        let wanted = first.get_or_insert_with(|| got.clone());
        if let Some(at) = got.iter().zip(wanted.iter()).position(|(got, wanted)| got != wanted) {
            let (thread, byte) = (at as u64 / RESULT, at as u64 % RESULT);
            return Err(format!(
                "program {seed}, {features:?}: thread {thread} has another byte {byte}\n{text}"
            ));
        }
    }
    Ok(())
}

/// The trials of this file.
pub fn trials() -> Vec<Trial> {
    let trial =
        |seed| Trial::test(format!("engines::program_{seed}"), move || compare(seed).map_err(Failed::from));
    (0..PROGRAMS).map(trial).collect()
}
