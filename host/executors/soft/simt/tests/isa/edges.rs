//! Random accesses at the edges of memory, which must have the same effect on all engines. The lanes access
//! memory consecutively, in pairs, at one address or anywhere, with some lanes inactive, just inside of an
//! allocation or just beyond it.

use std::fmt::Write as _;

use libtest_mimic::Trial;
use vgpu_simt::Features;

use crate::device::{Device, Params, Shape};
use crate::differential;
use crate::values::Random;

/// Number of programs. The next constant is the number of launches of each.
const PROGRAMS: u64 = 48;
const LAUNCHES: u64 = 24;
const LANES: u64 = 32;
/// Size in bytes of the allocation whose edges are accessed. It does not end at a page's end.
const BYTES: u64 = 4096 + 8 * 31;

/// Memory accesses: the instructions with `ADDRESS` for the address, the size of the element in bytes, and
/// whether it is a store.
const ACCESSES: [(&str, u64, bool); 13] = [
    ("ld.global.u32 %x, [ADDRESS];\nadd.u32 %sum, %sum, %x;", 4, false),
    (
        "ld.global.nc.u32 %x, [ADDRESS];\nld.global.nc.u32 %y, [ADDRESS+4];\nmad.lo.u32 %sum, %x, 3, %sum;\nadd.u32 %sum, %sum, %y;",
        8,
        false,
    ),
    (
        "ld.global.v2.u32 {%x, %y}, [ADDRESS];\nmad.lo.u32 %sum, %x, 5, %sum;\nadd.u32 %sum, %sum, %y;",
        8,
        false,
    ),
    (
        "ld.global.v4.u32 {%x, %y, %z, %w}, [ADDRESS];\nmad.lo.u32 %sum, %x, 7, %sum;\nadd.u32 %sum, %sum, %y;\nmad.lo.u32 %sum, %z, 9, %sum;\nadd.u32 %sum, %sum, %w;",
        16,
        false,
    ),
    (
        "ld.global.u64 %l, [ADDRESS];\ncvt.u32.u64 %x, %l;\nshr.u64 %l, %l, 32;\ncvt.u32.u64 %y, %l;\nmad.lo.u32 %sum, %x, 11, %sum;\nadd.u32 %sum, %sum, %y;",
        8,
        false,
    ),
    ("ld.global.u16 %h, [ADDRESS];\ncvt.u32.u16 %x, %h;\nadd.u32 %sum, %sum, %x;", 2, false),
    ("ld.global.u8 %h, [ADDRESS];\ncvt.u32.u16 %x, %h;\nadd.u32 %sum, %sum, %x;", 1, false),
    ("ld.u32 %x, [ADDRESS];\nadd.u32 %sum, %sum, %x;", 4, false),
    // The offset in the instruction is large, and the register is far from the address.
    (
        "add.s64 %l, ADDRESS;\nsub.s64 %l, %l, 3145728;\nld.global.u32 %x, [%l+3145728];\nadd.u32 %sum, %sum, %x;",
        4,
        false,
    ),
    ("st.global.u32 [ADDRESS], %sum;", 4, true),
    ("st.global.u8 [ADDRESS], %sum8;", 1, true),
    ("st.global.v2.u32 [ADDRESS], {%sum, %tid};", 8, true),
    ("st.global.v2.u16 [ADDRESS], {%sum8, %sum8};", 4, true),
];

/// A random program. `align` is its largest element, and `reach` is the number of bytes after its addresses
/// that it accesses.
struct Tried {
    seed: u64,
    text: String,
    align: u64,
    reach: u64,
}

/// Draws a program of a few accesses at an address of each lane. Some accesses add a scalar to the address.
fn program(seed: u64) -> Tried {
    let mut random = Random::new(seed);
    let mut body = String::new();
    let (mut align, mut reach) = (1, 1);
    for _ in 0..=random.below(3) {
        let (code, bytes, _) = ACCESSES[random.below(ACCESSES.len() as u64) as usize];
        let by = bytes * random.below(3);
        let base = if random.below(2) == 0 { "%a" } else { "%b" };
        let at = |extra: u64| format!("{base}+{}", by + extra);
        let code = code.replace("%l, ADDRESS;", &format!("%l, {base}, {by};"));
        let code = code.replace("ADDRESS+4", &at(4)).replace("ADDRESS", &at(0));
        writeln!(body, "cvt.u16.u32 %sum8, %sum;\n{code}").expect("a string");
        (align, reach) = (align.max(bytes), reach.max(by + bytes));
    }
    let text = format!(
        "{}.visible .entry k(.param .u64 table, .param .u64 out, .param .u64 by)\n{{\n\
         .reg .b64 %table, %out, %by, %a, %b, %l;\n.reg .b32 %tid, %x, %y, %z, %w, %sum, %active;\n\
         .reg .b16 %h, %sum8;\n.reg .pred %p;\n\
         ld.param.u64 %table, [table];\nld.param.u64 %out, [out];\nld.param.u64 %by, [by];\nmov.u32 %tid, %tid.x;\n\
         mov.u32 %sum, %tid;\nmul.wide.u32 %l, %tid, 16;\nadd.s64 %table, %table, %l;\nld.global.u64 %a, [%table];\n\
         ld.global.u32 %active, [%table+8];\nadd.s64 %b, %a, %by;\nsetp.eq.u32 %p, %active, 0;\n@%p bra SKIP;\n{body}SKIP:\n\
         mul.wide.u32 %l, %tid, 4;\nadd.s64 %out, %out, %l;\nst.global.u32 [%out], %sum;\nret;\n}}\n",
        crate::case::HEADER
    );
    Tried { seed, text, align, reach }
}

/// Draws the offset of each lane from the start of the allocation. Most offsets are inside, and some slightly
/// beyond its end.
fn places(random: &mut Random, align: u64, reach: u64) -> Vec<i64> {
    let span = random.below(3);
    let kind = random.below(6);
    let words = align.max(4);
    let within = |lane: u64| match kind {
        0 => words * lane,
        1 => words * (lane / 2 * 3 + lane % 2),
        2 => words * (lane / 2),
        3 => words * (lane / 4 * 5 + lane % 4),
        4 => 0,
        _ => words * (lane * 7 % 32),
    };
    let most = (0..LANES).map(within).max().unwrap_or(0) + reach;
    let last = (BYTES - most) / align * align;
    let first = match span {
        0 => random.below(last / align + 1) as i64 * align as i64,
        // The last lane's element is the last of the allocation, or near it.
        1 => last as i64 + (random.below(5) as i64 - 2) * align as i64,
        _ => (random.below(5) as i64 - 2) * align as i64,
    };
    (0..LANES).map(|lane| first + within(lane) as i64).collect()
}

/// Returns the outcome of each launch: its fault, or the content of memory afterwards.
fn outcome(tried: &Tried, features: Features) -> Result<Vec<String>, String> {
    let mut device = Device::new(&tried.text, features)?;
    let mut random = Random::new(tried.seed);
    let memory: Vec<u8> = (0..BYTES).map(|_| random.bits() as u8).collect();
    let at = device.upload(&memory);
    let table = device.allocate(16 * LANES);
    let out = device.allocate(4 * LANES);
    let mut outcomes = Vec::new();
    for _ in 0..LAUNCHES {
        device.write(at, &memory);
        let by = tried.align * random.below(4);
        let places = places(&mut random, tried.align, tried.reach + by);
        let mask = match random.below(4) {
            0 => u64::from(u32::MAX),
            1 => (1 << random.below(32)) - 1,
            2 => u64::from(random.bits() as u32),
            _ => 1 << random.below(32),
        };
        let mut rows = Vec::new();
        for (lane, place) in places.iter().enumerate() {
            rows.extend(at.wrapping_add_signed(*place).to_le_bytes());
            rows.extend((mask >> lane & 1).to_le_bytes());
        }
        device.write(table, &rows);
        let params = Params::new().u64(table).u64(out).u64(by);
        outcomes.push(match device.try_launch("k", Shape::line(1, LANES as u32), &params)? {
            Ok(()) => format!("{:?} {:?}", device.read(out, 4 * LANES), device.read(at, BYTES)),
            Err(fault) => format!("{fault:?}"),
        });
    }
    Ok(outcomes)
}

impl differential::RandomProgram for Tried {
    fn new(seed: u64) -> Self {
        program(seed)
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn outcomes(&self, features: Features) -> Result<Vec<String>, String> {
        outcome(self, features)
    }
}

/// Returns the tests of this file.
pub fn trials() -> Vec<Trial> {
    differential::trials::<Tried>("edges", PROGRAMS)
}
