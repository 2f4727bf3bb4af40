//! Random programs of matrix and shared-memory operations, which must leave the same bits on all engines:
//! products of arbitrary bits, loads of neighbouring words with stores between them, and matrices whose rows
//! are at arbitrary addresses.

use std::fmt::Write as _;

use libtest_mimic::Trial;
use vgpu_simt::Features;

use crate::device::{Device, Params, Shape};
use crate::differential;
use crate::values::{F32_EDGES, Random};

/// Number of random programs, unless `VGPU_ISA_SEEDS` gives a range of seeds.
const PROGRAMS: u64 = 64;
/// Number of launches of each program.
const LAUNCHES: u64 = 6;
/// Number of statements in a program.
const STATEMENTS: u64 = 40;
/// Number of registers, which contain arbitrary bits.
const REGISTERS: u64 = 20;
/// Size of shared memory in bytes.
const SHARED: u64 = 8192;
/// Size in bytes of each lane's own part of shared memory.
const OWN: u64 = 80;

struct TiledWriter {
    random: Random,
    text: String,
    ftz: &'static str,
}

impl TiledWriter {
    fn register(&mut self) -> String {
        format!("%r{}", self.random.below(REGISTERS))
    }

    /// Draws a list of `count` registers, consecutive or arbitrary ones.
    fn list(&mut self, count: u64) -> String {
        let first = self.random.below(REGISTERS - count);
        let together = self.random.below(2) == 0;
        let names: Vec<String> = (0..count)
            .map(|at| if together { format!("%r{}", first + at) } else { self.register() })
            .collect();
        format!("{{{}}}", names.join(", "))
    }

    /// Draws `count` different registers for results.
    fn results(&mut self, count: u64) -> String {
        let first = self.random.below(REGISTERS - count);
        let names: Vec<String> = (first..first + count).map(|at| format!("%r{at}")).collect();
        format!("{{{}}}", names.join(", "))
    }

    fn product(&mut self) {
        const FORMS: [(&str, [u64; 4]); 12] = [
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
        ];
        let (form, [d, a, b, c]) = FORMS[self.random.below(FORMS.len() as u64) as usize];
        let (d, a, b, c) = (self.results(d), self.list(a), self.list(b), self.list(c));
        writeln!(self.text, "mma.sync.aligned.{form} {d}, {a}, {b}, {c};").expect("a string");
    }

    fn statement(&mut self) {
        let (d, a, ftz) = (self.register(), self.register(), self.ftz);
        let by = 4 * self.random.below(OWN / 4 - 4);
        let base = ["%row", "%line", "%own", "%own"][self.random.below(4) as usize];
        let line = match self.random.below(12) {
            0 | 1 => return self.product(),
            2 => {
                let count = [1, 2, 4][self.random.below(3) as usize];
                let trans = ["", ".trans"][self.random.below(2) as usize];
                let (space, at) = [("", "%generic"), (".shared", "%tile")][self.random.below(2) as usize];
                let results = self.results(count);
                format!("ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {results}, [{at}];")
            }
            3 => match self.random.below(5) {
                0 => format!("st.shared.v2.u32 [%own+{}], {};", by / 8 * 8, self.list(2)),
                1 => format!("st.shared.v4.u32 [%own+{}], {};", by / 16 * 16, self.list(4)),
                // Each pair of adjacent lanes stores its own bytes, or all lanes store to one address.
                2 => format!("st.shared.v2.u32 [%pair], {};", self.list(2)),
                3 => format!("mov.b64 %x, {{{a}, {d}}};\nst.shared.u64 [%z+8], %x;"),
                _ => format!("st.shared.u32 [%own+{by}], {a};"),
            },
            4 => format!("add.rn{ftz}.f32 {d}, {a}, {d};\nmul.rn{ftz}.f32 {d}, {a}, {a};"),
            5 => {
                let [first, second] = [by / 8 * 8, by / 8 * 8 + 8];
                let (x, y) = (self.results(2), self.results(2));
                format!("ld.shared.v2.u32 {x}, [{base}+{first}];\nld.shared.v2.u32 {y}, [{base}+{second}];")
            }
            6 => format!("movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a};"),
            7 => {
                let mode = ["up", "down", "bfly", "idx"][self.random.below(4) as usize];
                let segments = [0, 0x1000, 0x1800][self.random.below(3) as usize];
                let clamp = if mode == "up" { 0 } else { 31 };
                format!("shfl.sync.{mode}.b32 {d}, {a}, {}, {}, -1;", self.random.below(32), segments + clamp)
            }
            8 => {
                let operation = ["add", "sub", "mul"][self.random.below(3) as usize];
                let pair = ["f16x2", "f16"][self.random.below(2) as usize];
                if pair == "f16" {
                    format!(
                        "cvt.u16.u32 %h0, {a};\ncvt.u16.u32 %h1, {d};\n{operation}.f16 %h0, %h0, %h1;\ncvt.u32.u16 {d}, %h0;"
                    )
                } else {
                    format!("{operation}.f16x2 {d}, {a}, {d};")
                }
            }
            // Loads of adjacent words, in any order.
            _ => {
                let mut order = [0, 4, 8, 12];
                order.swap(self.random.below(4) as usize, self.random.below(4) as usize);
                let mut lines = String::new();
                for more in &order[..2 + self.random.below(3) as usize] {
                    let d = self.register();
                    writeln!(lines, "ld.shared.u32 {d}, [{base}+{}];", by + more).expect("a string");
                }
                lines
            }
        };
        self.text.push_str(&line);
        self.text.push('\n');
    }
}

/// Returns the PTX text of a program. Each lane writes its own part of shared memory, and reads it, a row of
/// words, or words that it shares with other lanes.
fn program(seed: u64) -> String {
    let random = Random::new(seed);
    let ftz = if seed.is_multiple_of(2) { ".ftz" } else { "" };
    let mut writer = TiledWriter { random, text: String::new(), ftz };
    for _ in 0..STATEMENTS {
        writer.statement();
    }
    let each = |format: fn(u64) -> String| (0..REGISTERS).map(format).collect::<String>();
    format!(
        "{}.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 by, .param .u32 last)\n{{\n\
         .reg .b64 %i, %o, %x, %generic;\n.reg .b32 %t, %z, %by, %last, %row, %line, %own, %pair, %tile, %r<{REGISTERS}>;\n.reg .b16 %h<2>;\n.reg .pred %p;\n\
         .shared .align 16 .b8 tile[{SHARED}];\n\
         ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nld.param.u32 %by, [by];\nld.param.u32 %last, [last];\n\
         mov.u32 %t, %tid.x;\nmov.u32 %z, tile;\n\
         mad.lo.u32 %own, %t, {OWN}, %z;\nmad.lo.u32 %row, %t, 4, %z;\nshl.b32 %pair, %t, 3;\nadd.u32 %pair, %pair, %z;\nshr.u32 %line, %t, 1;\nmad.lo.u32 %line, %line, {OWN}, %z;\n\
         mad.lo.u32 %tile, %t, {OWN}, %z;\nadd.u32 %tile, %tile, %by;\ncvt.u64.u32 %generic, %tile;\ncvta.shared.u64 %generic, %generic;\n\
         mul.wide.u32 %x, %t, {};\nadd.s64 %i, %i, %x;\nadd.s64 %o, %o, %x;\n{}{}\
         setp.gt.u32 %p, %t, %last;\n@%p ret;\n{}{}ret;\n}}\n",
        crate::case::HEADER,
        4 * REGISTERS,
        each(|at| format!("ld.global.u32 %r{at}, [%i+{}];\n", 4 * at)),
        each(|at| format!("st.shared.u32 [%own+{}], %r{at};\n", 4 * at)),
        writer.text,
        each(|at| format!("st.global.u32 [%o+{}], %r{at};\n", 4 * at)),
    )
}

/// Draws the bits of small bytes, of halves, of edge values of singles, or random bits.
fn bits(random: &mut Random) -> u32 {
    match random.below(5) {
        0 => F32_EDGES[random.below(F32_EDGES.len() as u64) as usize],
        1 => random.bits() as u32 & 0x0f0f_0f0f,
        // Subnormal singles, and zeros.
        2 => random.bits() as u32 & 0x8000_ffff & 0u32.wrapping_sub(random.below(2) as u32),
        3 => random.bits() as u32 & 0x3bff_3bff,
        _ => random.bits() as u32,
    }
}

/// Returns the outcome of each launch of a program: the stored words, or a fault.
fn outcome(text: &str, seed: u64, features: Features) -> Result<Vec<String>, String> {
    let mut device = Device::new(text, features)?;
    let mut random = Random::new(seed);
    let mut outcomes = Vec::new();
    // Machine code knows the windows of memory from the previous launch, and exits to the interpreter without
    // them.
    let (input, out) = (device.allocate(32 * 4 * REGISTERS), device.allocate(32 * 4 * REGISTERS));
    for launch in 0..LAUNCHES {
        // The last launches have a partial warp, lanes that have returned, or row addresses beyond shared
        // memory.
        let lanes = if launch == LAUNCHES - 1 { 20 } else { 32 };
        let last = if launch == LAUNCHES - 2 { random.below(32) as u32 } else { 31 };
        let by = match launch {
            2 => 4 * random.below(8) as u32,
            3 => SHARED as u32 - (31 * OWN) as u32 - 16 + 16 * random.below(2) as u32,
            _ => 0,
        };
        let words: Vec<u8> = (0..32 * REGISTERS).flat_map(|_| bits(&mut random).to_le_bytes()).collect();
        device.write(input, &words);
        let params = Params::new().u64(input).u64(out).u32(by).u32(last);
        outcomes.push(match device.try_launch("k", Shape::line(1, lanes), &params)? {
            // The elements of a matrix that missing threads hold are undefined, so results are not compared.
            Ok(()) if lanes < 32 || last < 31 => String::new(),
            Ok(()) => format!("{:x?}", device.read_words(out, u64::from(lanes) * REGISTERS)),
            Err(fault) => format!("{fault:?}"),
        });
    }
    Ok(outcomes)
}

/// The text of a program and its seed.
struct TiledProgram {
    seed: u64,
    text: String,
}

impl differential::RandomProgram for TiledProgram {
    fn new(seed: u64) -> Self {
        Self { seed, text: program(seed) }
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn outcomes(&self, features: Features) -> Result<Vec<String>, String> {
        outcome(&self.text, self.seed, features)
    }
}

/// Returns the tests of this file.
pub fn trials() -> Vec<Trial> {
    differential::trials::<TiledProgram>("tiled", PROGRAMS)
}
