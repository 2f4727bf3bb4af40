//! Random programs that must compute the same bits on all engines. They consist of long straight lines with
//! more values than a processor has registers, loops, divergent branches, early returns, loads and stores of
//! all widths, and shuffles of whole warps and of groups of lanes.

#![allow(clippy::many_single_char_names, reason = "operands have the names of the ISA")]

use libtest_mimic::Trial;
use vgpu_simt::Features;

use crate::device::{Device, Params, Shape};
use crate::differential;
use crate::values::{F32_EDGES, Random};

/// Number of random programs.
const PROGRAMS: u64 = 64;
/// Number of statements in the loop of a program; the next constant is the loop's number of iterations.
/// Together they make about a million warp instructions.
const STATEMENTS: usize = 320;
const ROUNDS: u32 = 12;
/// Number of words in the table that programs read.
const TABLE: usize = 1024;
/// Number of 32-bit integer registers; the next constants are the numbers of floats, 64-bit registers and
/// predicates.
const WORDS: u64 = 24;
const FLOATS: u64 = 16;
const WIDES: u64 = 8;
const PREDICATES: u64 = 4;
/// Size in bytes of the results that each thread stores.
const RESULT: u64 = 4 * WORDS + 4 * FLOATS + 8 * WIDES;
/// Distances in bytes between neighbouring threads in consecutive areas of memory. Each thread accesses only
/// its own part.
const STRIDES: [u64; 4] = [4, 8, 16, 48];
/// Maximum number of threads in a block; the next constant is the size of all these areas in bytes.
const THREADS: u64 = 128;
const AREAS: u64 = THREADS * (STRIDES[0] + STRIDES[1] + STRIDES[2] + STRIDES[3]);

struct ProgramWriter {
    random: Random,
    text: String,
    /// Modifiers of float instructions that a program may use: `.ftz`, none, or both.
    ftz: &'static [&'static str],
    /// Whether all lanes of all warps have threads, so that no shuffle reads from a missing lane.
    full: bool,
    /// Whether a program contains only arithmetic, which makes superblocks long and registers scarce.
    plain: bool,
    labels: usize,
}

impl ProgramWriter {
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

    /// Draws a source operand, which is a register or sometimes a constant.
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
            // The bytes of one operand are below 16, so that a translator need not split the products.
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
        let (word, ftz) = (self.word(), self.pick(self.ftz));
        let sat = self.pick(&["", "", ".sat"]);
        let line = match self.random.below(16) {
            0 | 1 => format!("fma.rn{ftz}{sat}.f32 {d}, {a}, {b}, {c};"),
            2 => format!("mov.b32 {d}, {word};"),
            3 => format!("mov.b32 {word}, {a};"),
            4 => format!("cvt.rn.f32.s32 {d}, {word};"),
            5 => format!("cvt.rn{ftz}.f16.f32 %h0, {a};\ncvt.f32.f16 {d}, %h0;"),
            6 => format!(
                "{}{ftz}.f32 {d}, {a};",
                self.pick(&["ex2.approx", "rcp.approx", "sqrt.approx", "rsqrt.approx"])
            ),
            7 => format!("div.approx{ftz}.f32 {d}, {a}, {b};"),
            8 => format!("{}{ftz}.f32 {d}, {a}, {b};", self.pick(&["min", "max"])),
            9 => format!("{}{ftz}.f32 {d}, {a};", self.pick(&["abs", "neg"])),
            10 => format!("cvt.{}{ftz}.f32.f32 {d}, {a};", self.pick(&["rzi", "rni", "rmi"])),
            11 => format!("cvt.rzi{ftz}.s32.f32 {word}, {a};"),
            12 => format!("cvt{ftz}.sat.f32.f32 {d}, {a};"),
            _ => format!("{}.rn{ftz}{sat}.f32 {d}, {a}, {b};", self.pick(&["add", "sub", "mul"])),
        };
        self.line(&line);
    }

    fn predicates(&mut self) {
        let (p, q, d, a, b) = (self.predicate(), self.predicate(), self.word(), self.word(), self.operand());
        let (x, y, ftz, wide) = (self.float(), self.float(), self.pick(self.ftz), self.wide());
        let compare = self.pick(&["lt", "le", "eq", "ne", "gt", "ge"]);
        let line = match self.random.below(8) {
            0 => format!("setp.{compare}{ftz}.f32 {p}, {x}, {y};"),
            1 => format!("setp.{compare}.u32 {p}, {a}, {b};"),
            2 => format!("setp.{compare}.s32 {p}, {a}, {b};"),
            3 => format!("{} {p}, {p}, {q};", self.pick(&["and.pred", "or.pred", "xor.pred"])),
            4 => format!("selp.b32 {d}, {a}, {b}, {p};"),
            5 => format!("selp.b64 {wide}, {wide}, {}, {p};", self.wide()),
            6 => format!("setp.{compare}.s64 {p}, {wide}, {};", self.wide()),
            _ => format!("selp.f32 {x}, {x}, {y}, {p};"),
        };
        self.line(&line);
    }

    /// Writes an access to the table.
    fn lookup(&mut self) {
        let (d, e, a, x) = (self.word(), self.word(), self.word(), self.float());
        self.line(&format!("and.b32 %at, {a}, 2032;\ncvt.u64.u32 %to, %at;\nadd.s64 %to, %to, %table;"));
        let line = match self.random.below(6) {
            0 => format!("ld.global.b32 {d}, [%to+20];"),
            1 => format!("ld.global.v2.b32 {{{d}, {e}}}, [%to+8];"),
            2 => format!("ld.global.u16 %h1, [%to+2];\ncvt.u32.u16 {d}, %h1;"),
            3 => format!("ld.global.b64 {}, [%to+24];", self.wide()),
            4 => format!("ld.global.v4.b32 {}, [%to];", self.words(4)),
            _ => format!("ld.global.f32 {x}, [%to+4];"),
        };
        self.line(&line);
    }

    /// Draws `count` different registers for the results of a load.
    fn words(&mut self, count: u64) -> String {
        let first = self.random.below(WORDS - count);
        let names: Vec<String> = (first..first + count).map(|at| format!("%r{at}")).collect();
        format!("{{{}}}", names.join(", "))
    }

    /// Writes an access to the thread's own part of global or shared memory.
    fn own(&mut self) {
        let kind = self.random.below(9);
        let (bytes, ty) = [
            (1, "u8"),
            (2, "u16"),
            (4, "b32"),
            (4, "b32"),
            (8, "b64"),
            (4, "v2.u16"),
            (8, "v2.b32"),
            (16, "v4.b32"),
            (16, "v2.b64"),
        ][kind as usize];
        let fitting = STRIDES.iter().filter(|stride| **stride >= bytes).count() as u64;
        let stride = STRIDES[STRIDES.len() - 1 - self.random.below(fitting) as usize];
        let at = bytes * self.random.below(stride / bytes);
        let space = self.pick(&["global", "shared"]);
        let address = format!("[%{space}{stride}+{at}]");
        let (w, x) = (self.word(), self.word());
        let line = match (ty, self.random.below(2)) {
            ("u8" | "u16", 0) => format!("cvt.u16.u32 %h0, {w};\nst.{space}.{ty} {address}, %h0;"),
            ("u8" | "u16", _) => format!("ld.{space}.{ty} %h0, {address};\ncvt.u32.u16 {w}, %h0;"),
            ("v2.u16", 0) => format!(
                "cvt.u16.u32 %h0, {w};\ncvt.u16.u32 %h1, {x};\nst.{space}.{ty} {address}, {{%h0, %h1}};"
            ),
            ("v2.u16", _) => format!(
                "ld.{space}.{ty} {{%h0, %h1}}, {address};\ncvt.u32.u16 {w}, %h1;\ncvt.u32.u16 {w}, %h0;"
            ),
            ("b64", 0) => format!("st.{space}.{ty} {address}, {};", self.wide()),
            ("b64", _) => format!("ld.{space}.{ty} {}, {address};", self.wide()),
            ("v2.b64", 0) => format!("st.{space}.{ty} {address}, {{{}, {}}};", self.wide(), self.wide()),
            ("v2.b64", _) => {
                let first = self.random.below(WIDES - 1);
                format!("ld.{space}.{ty} {{%d{first}, %d{}}}, {address};", first + 1)
            }
            ("v2.b32", 0) => format!("st.{space}.{ty} {address}, {{{w}, {x}}};"),
            ("v2.b32", _) => format!("ld.{space}.{ty} {}, {address};", self.words(2)),
            ("v4.b32", 0) => {
                format!("st.{space}.{ty} {address}, {{{w}, {x}, {}, {}}};", self.word(), self.word())
            }
            ("v4.b32", _) => format!("ld.{space}.{ty} {}, {address};", self.words(4)),
            (_, 0) => format!("st.{space}.{ty} {address}, {w};"),
            _ => format!("ld.{space}.{ty} {w}, {address};"),
        };
        self.line(&line);
    }

    fn memory(&mut self) {
        match self.random.below(8) {
            0..3 => self.lookup(),
            3 => {
                let (w, at) = (self.word(), 4 * self.random.below(8));
                let line = match self.random.below(3) {
                    0 => format!("st.local.b32 [%stack+{at}], {w};"),
                    1 => format!("ld.local.b32 {w}, [%stack+{at}];"),
                    _ => format!("atom.shared.add.u32 {w}, [%shared4], {};", self.word()),
                };
                self.line(&line);
            }
            _ => self.own(),
        }
    }

    /// Writes a shuffle among the lanes of the mask `members`, in groups of `width` lanes.
    fn shuffle(&mut self, members: u32, width: u64) {
        let a = self.word();
        // In half of the cases the destination is the source, as in scans.
        let d = if self.random.below(2) == 0 { a.clone() } else { self.word() };
        let mode = self.pick(&["up", "down", "bfly", "idx"]);
        let by = self.random.below(width);
        let clamp = (32 - width) << 8 | if mode == "up" { 0 } else { 31 };
        let line = match self.random.below(4) {
            0 => format!(
                "shfl.sync.{mode}.b32 {d}|%more, {a}, {by}, {clamp}, {members};\n@%more add.s32 {d}, {d}, {a};"
            ),
            1 => format!(
                "shfl.sync.up.b32 {d}, {a}, {by}, {}, {members};\nadd.s32 {d}, {d}, {a};",
                clamp & !31
            ),
            _ => format!("shfl.sync.{mode}.b32 {d}, {a}, {by}, {clamp}, {members};"),
        };
        self.line(&line);
    }

    /// Writes shuffles of whole warps, or of half or a quarter of the lanes while the others are in another
    /// branch.
    fn exchange(&mut self) {
        match self.random.below(5) {
            0 => {
                let (d, a) = (self.word(), self.word());
                let by = self.pick(&["1", "2", "4", "8", "16"]);
                self.line(&format!("shfl.sync.bfly.b32 {d}, {a}, {by}, 31, -1;"));
            }
            1 => {
                let (x, y, z, ftz) = (self.float(), self.float(), self.float(), self.pick(self.ftz));
                let by = self.pick(&["1", "2", "4", "8", "16"]);
                self.line(&format!(
                    "shfl.sync.bfly.b32 {x}, {y}, {by}, 31, -1;\nadd{ftz}.f32 {z}, {y}, {x};"
                ));
            }
            2 => {
                let (label, part, width) =
                    (self.labels, self.random.below(3), [16, 8, 4][self.random.below(3) as usize]);
                self.labels += 1;
                let first = part * width;
                self.line(&format!(
                    "and.b32 %at, %tid, 31;\nsub.s32 %at, %at, {first};\nsetp.ge.u32 %more, %at, {width};\n@%more bra $other{label};"
                ));
                let members = ((1u32 << width) - 1) << first;
                for _ in 0..=self.random.below(3) {
                    self.shuffle(members, width);
                    self.integers();
                }
                self.line(&format!("$other{label}:"));
            }
            3 => {
                let (d, p) = (self.word(), self.predicate());
                self.line(&format!("vote.sync.ballot.b32 {d}, {p}, -1;"));
            }
            _ => {
                let width = [32, 16, 8][self.random.below(3) as usize];
                self.shuffle(u32::MAX, width);
            }
        }
    }

    fn statement(&mut self) {
        match self.random.below(if self.plain { 14 } else { 24 }) {
            0..6 => self.integers(),
            6..8 => self.wides(),
            8..14 => self.floats(),
            14..16 => self.predicates(),
            16..20 => self.memory(),
            20 | 21 if self.full => self.exchange(),
            _ => self.part(),
        }
    }

    /// Writes statements that some lanes skip.
    fn part(&mut self) {
        let (label, p, full) = (self.labels, self.predicate(), self.full);
        self.labels += 1;
        self.line(&format!("@{p} bra $skip{label};"));
        // A shuffle must not read from lanes that skip these statements.
        self.full = false;
        for _ in 0..self.random.below(6) {
            match self.random.below(5) {
                0 => self.floats(),
                1 => self.wides(),
                2 if !self.plain => self.memory(),
                3 => self.predicates(),
                _ => self.integers(),
            }
        }
        self.full = full;
        self.line(&format!("$skip{label}:"));
    }
}

/// Returns the PTX text of the program for a seed.
fn program(seed: u64, full: bool) -> String {
    const MODIFIERS: [&[&str]; 3] = [&[".ftz"], &[""], &["", ".ftz", ".ftz"]];
    let (ftz, plain) = (MODIFIERS[seed as usize % 3], seed % 8 >= 4);
    let mut it =
        ProgramWriter { random: Random::new(seed), text: String::new(), ftz, full, plain, labels: 0 };
    it.line(&format!(
        ".visible .entry k(.param .u64 table, .param .u64 areas, .param .u64 out)\n{{\n.shared .align 16 .b8 shared[{AREAS}];\n\
         .local .align 16 .b8 stack[32];\n.reg .b32 %r<{WORDS}>, %at, %tid, %n, %shared<49>;\n.reg .f32 %f<{FLOATS}>;\n\
         .reg .b64 %d<{WIDES}>, %to, %table, %areas, %stack, %global<49>;\n\
         .reg .b16 %h<2>;\n.reg .pred %p<{PREDICATES}>, %more;\n\
         ld.param.u64 %table, [table];\nld.param.u64 %areas, [areas];\nmov.u32 %tid, %tid.x;\nmov.u64 %stack, stack;\n\
         and.b32 %at, %tid, 31;\nmul.wide.u32 %to, %at, 4;\nadd.s64 %to, %to, %table;"
    ));
    let mut area = 0;
    for stride in STRIDES {
        it.line(&format!(
            "mov.u32 %at, shared;\nadd.u32 %at, %at, {area};\nmad.lo.u32 %shared{stride}, %tid, {stride}, %at;\n\
             mul.wide.u32 %global{stride}, %tid, {stride};\nadd.s64 %global{stride}, %global{stride}, {area};\n\
             add.s64 %global{stride}, %global{stride}, %areas;"
        ));
        for word in 0..stride / 4 {
            it.line(&format!("st.shared.u32 [%shared{stride}+{}], %tid;", 4 * word));
        }
        area += THREADS * stride;
    }
    for word in 0..8 {
        it.line(&format!("st.local.u32 [%stack+{}], {word};", 4 * word));
    }
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
    // Statements at which some threads return before the others.
    let ends = [it.random.below(STATEMENTS as u64), it.random.below(STATEMENTS as u64)];
    for statement in 0..STATEMENTS as u64 {
        if !full && ends.contains(&statement) {
            let (thread, round) = (it.random.below(100), it.random.below(u64::from(ROUNDS)));
            it.line(&format!("mad.lo.u32 %at, %n, 1024, %tid;\nsub.u32 %at, %at, {};\nsetp.lt.u32 %more, %at, 9;\n@%more ret;", 1024 * round + thread));
        }
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

/// Returns the final registers and memory areas of all threads of a program.
fn leaves(text: &str, features: Features, threads: u32) -> Result<Vec<u8>, String> {
    let mut device = Device::new(text, features)?;
    let mut random = Random::new(7);
    let word = |index: usize| F32_EDGES.get(index / 3).copied().filter(|_| index.is_multiple_of(3));
    let words: Vec<u32> = (0..TABLE).map(|index| word(index).unwrap_or(random.bits() as u32)).collect();
    let table = device.upload_words(&words);
    let bytes = u64::from(threads) * RESULT;
    let (areas, out) = (device.allocate(AREAS), device.allocate(bytes));
    device.launch("k", Shape::line(1, threads), &Params::new().u64(table).u64(areas).u64(out))?;
    Ok([device.read(out, bytes), device.read(areas, AREAS)].concat())
}

/// Text of a program, and the number of threads that run it.
struct EngineProgram {
    text: String,
    threads: u32,
}

impl differential::RandomProgram for EngineProgram {
    fn new(seed: u64) -> Self {
        // Every other pair of programs has a warp of a few threads.
        let full = seed % 4 < 2;
        Self { text: program(seed, full), threads: if full { 128 } else { 100 } }
    }

    fn text(&self) -> &str {
        &self.text
    }

    /// Returns the registers of each thread, followed by the threads' areas of memory.
    fn outcomes(&self, features: Features) -> Result<Vec<String>, String> {
        let left = leaves(&self.text, features, self.threads)?;
        Ok(left.chunks(RESULT as usize).map(|bytes| format!("{bytes:x?}")).collect())
    }
}

/// Returns the tests of this file.
pub fn trials() -> Vec<Trial> {
    differential::trials::<EngineProgram>("engines", PROGRAMS)
}
