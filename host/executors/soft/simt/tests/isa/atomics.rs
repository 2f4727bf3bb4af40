//! Tests of `atom` and `red`, with lanes that access the same address and lanes that do not.

use rustc_apfloat::ieee::Single;

use crate::case::Case;
use crate::device::{Params, Shape, same};
use crate::expect::Expect;
use crate::floats::{self, Mode};
use crate::values::Random;

/// Number of threads. Each of the groups below shares one word.
const THREADS: u32 = 96;
const GROUPS: u64 = 8;

/// An operation on the old value and the operand. The order of the lanes is not defined, so the old values
/// vary, but the last value and the set of steps that lead to it do not.
#[derive(Clone, Copy)]
struct Operation {
    name: &'static str,
    bytes: u64,
    apply: fn(u64, u64) -> u64,
}

const fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

const fn operation(name: &'static str, bytes: u64, apply: fn(u64, u64) -> u64) -> Operation {
    Operation { name, bytes, apply }
}

const OPERATIONS: [Operation; 25] = [
    operation("add.u32", 4, |r, b| low(r.wrapping_add(b))),
    operation("add.s32", 4, |r, b| low(r.wrapping_add(b))),
    operation("add.u64", 8, u64::wrapping_add),
    operation("and.b32", 4, |r, b| r & b),
    operation("or.b32", 4, |r, b| r | b),
    operation("xor.b32", 4, |r, b| r ^ b),
    operation("and.b64", 8, |r, b| r & b),
    operation("or.b64", 8, |r, b| r | b),
    operation("xor.b64", 8, |r, b| r ^ b),
    operation("exch.b32", 4, |_, b| b),
    operation("exch.b64", 8, |_, b| b),
    operation("min.u32", 4, |r, b| if r < b { r } else { b }),
    operation("max.u32", 4, |r, b| if r > b { r } else { b }),
    operation("min.s32", 4, |r, b| low((r as i32).min(b as i32) as u64)),
    operation("max.s32", 4, |r, b| low((r as i32).max(b as i32) as u64)),
    operation("min.u64", 8, |r, b| if r < b { r } else { b }),
    operation("max.u64", 8, |r, b| if r > b { r } else { b }),
    operation("min.s64", 8, |r, b| (r as i64).min(b as i64) as u64),
    operation("max.s64", 8, |r, b| (r as i64).max(b as i64) as u64),
    // Operands are kept small for these two, so that both branches are taken.
    operation("inc.u32", 4, |r, b| if r >= b { 0 } else { r + 1 }),
    operation("dec.u32", 4, |r, b| if r == 0 || r > b { b } else { r - 1 }),
    // Sums of whole numbers are exact in any order.
    operation("add.f32", 4, single_sum),
    operation("add.f64", 8, |r, b| (f64::from_bits(r) + f64::from_bits(b)).to_bits()),
    operation("add.noftz.f16x2", 4, half_sums),
    operation("add.noftz.f16", 2, half_sum),
];

fn single_sum(r: u64, b: u64) -> u64 {
    match floats::add::<Single>(r, b, Mode::NEAREST) {
        Expect::Bits(bits) => bits,
        // The operands here are whole numbers.
        _ => u64::MAX,
    }
}

fn half_sum(r: u64, b: u64) -> u64 {
    match floats::add::<rustc_apfloat::ieee::Half>(r, b, Mode::NEAREST) {
        Expect::Bits(bits) => bits,
        _ => u64::MAX,
    }
}

fn half_sums(r: u64, b: u64) -> u64 {
    half_sum(r & 0xffff, b & 0xffff) | half_sum(r >> 16, b >> 16) << 16
}

/// Draws a value for `operation`. Floating-point sums get whole numbers, so that they are exact.
fn value(operation: Operation, random: &mut Random) -> u64 {
    let small = random.below(17) as i32 - 8;
    match operation.name {
        "add.f32" => f32::to_bits(small as f32).into(),
        "add.f64" => f64::from(small).to_bits(),
        "add.noftz.f16" => HALVES[random.below(4) as usize],
        "add.noftz.f16x2" => HALVES[random.below(4) as usize] | HALVES[random.below(4) as usize] << 16,
        "inc.u32" | "dec.u32" => random.below(12),
        _ if operation.bytes == 4 => low(random.bits()),
        _ => random.bits(),
    }
}

/// Bits of the halves -1, 1, 2 and 3.
const HALVES: [u64; 4] = [0xbc00, 0x3c00, 0x4000, 0x4200];

/// Returns the bytes of values that are stored in slots of 8 bytes.
fn bytes_of(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns a kernel whose threads apply the operation to the slot of their group. With `dst`, old values are
/// stored to `old`.
fn text(operation: Operation, spelling: &str, space: &str, dst: bool) -> String {
    let ty = match operation.bytes {
        2 => "b16",
        4 => "b32",
        _ => "b64",
    };
    let (before, at, after) = match space {
        "shared" => (
            "setp.lt.u32 %p, %t, 8;\n@!%p bra FILLED;\nadd.u64 %a, %mem, %m;\nld.global.b64 %v, [%a];\nmov.u64 %b, memory;\n\
             add.u64 %b, %b, %m;\nst.shared.b64 [%b], %v;\nFILLED:\nbar.sync 0;\nmov.u64 %b, memory;\n",
            "%b",
            "bar.sync 0;\n@!%p bra DRAINED;\nadd.u64 %a, %mem, %m;\nmov.u64 %b, memory;\nadd.u64 %b, %b, %m;\n\
             ld.shared.b64 %v, [%b];\nst.global.b64 [%a], %v;\nDRAINED:\n",
        ),
        _ => ("", "%mem", ""),
    };
    let destination = if dst { "%d, " } else { "" };
    let keep = if dst { format!("add.u64 %a, %old, %m;\nst.global.{ty} [%a], %d;\n") } else { String::new() };
    format!(
        ".visible .entry k(.param .u64 mem, .param .u64 in, .param .u64 old)\n{{\n\
         .reg .b64 %mem, %in, %old, %a, %b, %m, %v;\n.reg .b32 %t, %g;\n.reg .pred %p;\n.reg .{ty} %d, %x;\n\
         .shared .align 8 .b8 memory[64];\n\
         ld.param.u64 %mem, [mem];\nld.param.u64 %in, [in];\nld.param.u64 %old, [old];\nmov.u32 %t, %tid.x;\n\
         mul.wide.u32 %m, %t, 8;\n{before}\
         add.u64 %a, %in, %m;\nld.global.{ty} %x, [%a];\nand.b32 %g, %t, 7;\nmul.wide.u32 %a, %g, 8;\nadd.u64 %a, %a, {at};\n\
         {spelling} {destination}[%a], %x;\n{keep}{after}ret;\n}}\n"
    )
}

/// Returns whether the old values and operands of a group are the steps of a single chain from the first to
/// the last value.
fn is_chain(first: u64, last: u64, steps: &mut Vec<(u64, u64)>, apply: fn(u64, u64) -> u64) -> bool {
    if steps.is_empty() {
        return first == last;
    }
    // The operations are tried in the order of the lanes first, because engines mostly execute them so.
    for index in 0..steps.len() {
        if steps[index].0 == first {
            let step = steps.remove(index);
            if is_chain(apply(first, step.1), last, steps, apply) {
                return true;
            }
            steps.insert(index, step);
        }
    }
    false
}

fn case(operation: Operation, head: &str, space: &'static str) -> Case {
    let dst = head.starts_with("atom");
    let spelling = format!("{head}.{}", operation.name);
    let mut text = text(operation, &spelling, space, dst);
    let mut name = spelling.clone();
    if !spelling.contains("global") && !spelling.contains("shared") {
        name = format!("{spelling} of {space}");
        if space == "shared" {
            text = text.replace(
                "mov.u64 %b, memory;\nadd.u64 %a, %in",
                "mov.u64 %b, memory;\ncvta.shared.u64 %b, %b;\nadd.u64 %a, %in",
            );
        }
    }
    Case::new(&name, &spelling, &text, move |device| {
        let mut random = Random::new(operation.bytes);
        let before: Vec<u64> = (0..GROUPS).map(|_| value(operation, &mut random)).collect();
        let mut operands: Vec<u64> = (0..THREADS).map(|_| value(operation, &mut random)).collect();
        if matches!(operation.name, "inc.u32" | "dec.u32") && !dst {
            // If the operands of a group are equal, the last value does not depend on the order of the lanes.
            let groups = operands[..GROUPS as usize].to_vec();
            operands = groups.into_iter().cycle().take(THREADS as usize).collect();
        }
        let memory = device.upload(&bytes_of(&before));
        let input = device.upload(&bytes_of(&operands));
        let old = device.allocate(8 * u64::from(THREADS));
        let params = Params::new().u64(memory).u64(input).u64(old);
        device.launch("k", Shape::line(1, THREADS), &params)?;
        let after = device.read_longs(memory, GROUPS);
        let old = device.read_longs(old, THREADS.into());
        for group in 0..GROUPS {
            let threads =
                || (group..u64::from(THREADS)).step_by(GROUPS as usize).map(|thread| thread as usize);
            let (first, last) = (before[group as usize], after[group as usize]);
            if dst {
                let mut steps = threads().map(|thread| (old[thread], operands[thread])).collect();
                if !is_chain(first, last, &mut steps, operation.apply) {
                    return Err(format!(
                        "group {group}: no order of {steps:x?} leads from {first:#x} to {last:#x}"
                    ));
                }
            } else {
                let folded =
                    threads().fold(first, |value, thread| (operation.apply)(value, operands[thread]));
                if last != folded {
                    return Err(format!("group {group}: {last:#x}, should be {folded:#x}"));
                }
            }
        }
        Ok(())
    })
}

/// Returns a test that no count is lost between host threads that run blocks of the same grid.
fn many_blocks() -> Case {
    let text = ".visible .entry k(.param .u64 mem)\n{\n.reg .b64 %mem;\n.reg .b32 %r;\n.reg .f32 %f;\n\
        ld.param.u64 %mem, [mem];\natom.global.add.u32 %r, [%mem], 1;\nred.global.add.u32 [%mem+4], %r;\n\
        mov.f32 %f, 0f3F800000;\nred.global.add.f32 [%mem+8], %f;\nred.global.max.u32 [%mem+12], %r;\nret;\n}\n";
    Case::new("atomics of many blocks", "atom.global.add.u32 red.global.add.u32", text, |device| {
        let memory = device.allocate(16);
        device.launch("k", Shape::line(100, 96), &Params::new().u64(memory))?;
        let threads: u32 = 9600;
        let wanted = [threads, (0..threads).sum(), (threads as f32).to_bits(), threads - 1];
        same("counters", &device.read_words(memory, 4), &wanted)
    })
}

/// Returns a test of compare-and-swap in a lock-free maximum, whose loop the lanes leave one after another.
fn compare_and_swap(bits: u32) -> Case {
    let spelling = format!("atom.global.cas.b{bits}");
    let text = format!(
        ".visible .entry k(.param .u64 mem, .param .u64 fails)\n{{\n.reg .b64 %mem, %fails;\n.reg .b32 %t, %u;\n.reg .b{bits} %v, %old, %got;\n.reg .pred %p;\n\
         ld.param.u64 %mem, [mem];\nld.param.u64 %fails, [fails];\nmov.u32 %t, %tid.x;\nxor.b32 %u, %t, 21;\nadd.u32 %u, %u, 3;\ncvt.u{bits}.u32 %v, %u;\n\
         ld.global.b{bits} %old, [%mem];\nAGAIN:\nsetp.ge.u{bits} %p, %old, %v;\n@%p bra DONE;\n\
         {spelling} %got, [%mem], %old, %v;\nsetp.eq.b{bits} %p, %got, %old;\n@%p bra DONE;\nmov.b{bits} %old, %got;\nbra AGAIN;\n\
         DONE:\nmov.u32 %u, 1;\nred.global.add.u32 [%fails], %u;\nret;\n}}\n"
    );
    Case::new(&spelling, &spelling, &text, |device| {
        let memory = device.allocate(8);
        let count = device.allocate(4);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(memory).u64(count))?;
        same("maximum", &device.read_longs(memory, 1), &[66])?;
        same("threads", &device.read_words(count, 1), &[64])
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    for operation in OPERATIONS {
        for space in ["global", "shared"] {
            cases.push(case(operation, &format!("atom.{space}"), space));
            if !operation.name.starts_with("exch") {
                cases.push(case(operation, &format!("red.{space}"), space));
            }
        }
    }
    for (head, space) in [
        ("atom", "global"),
        ("atom", "shared"),
        ("red", "global"),
        ("atom.add.release.gpu", "global"),
        ("atom.relaxed.gpu.global", "global"),
    ] {
        // The order of qualifiers is the library's.
        let add =
            if head.contains(".add") { Operation { name: "u32", ..OPERATIONS[0] } } else { OPERATIONS[0] };
        cases.push(case(add, head, space));
    }
    cases.push(many_blocks());
    cases.push(compare_and_swap(32));
    cases.push(compare_and_swap(64));
}
