//! Draws what surrounds the statements of a program: the launch, memory, registers and their first values.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::fuzz::calls;
use crate::fuzz::memory::{CONSTANTS, SHARED_SUMS};
use crate::fuzz::program::{Parts, Program, Statement, registers, text_of};
use crate::fuzz::writer::{Counts, Mask, Scope, Writer};
use crate::values::Random;

/// Shapes of blocks. The first ones have whole warps.
const WHOLE: [[u32; 3]; 11] = [
    [32, 1, 1],
    [32, 1, 1],
    [64, 1, 1],
    [32, 4, 1],
    [8, 4, 1],
    [4, 4, 4],
    [128, 1, 1],
    [16, 16, 1],
    [256, 1, 1],
    [512, 1, 1],
    [1024, 1, 1],
];
const PARTIAL: [[u32; 3]; 12] = [
    [1, 1, 1],
    [2, 1, 1],
    [5, 1, 1],
    [17, 1, 1],
    [31, 1, 1],
    [33, 1, 1],
    [7, 3, 2],
    [32, 3, 1],
    [100, 1, 1],
    [10, 10, 1],
    [3, 50, 2],
    [999, 1, 1],
];
/// Sizes of a thread's parts of memory.
const SIZES: [u64; 7] = [4, 8, 16, 16, 32, 48, 80];
/// Limit of the instructions that all warps of a program execute together, approximately.
const MOST: u64 = 20_000;

/// Draws a program.
pub fn draw(mut random: Random) -> Program {
    let block = if random.below(2) == 0 { random.pick(&WHOLE) } else { random.pick(&PARTIAL) };
    let threads: u32 = block.iter().product();
    let blocks = if threads <= 128 { random.pick(&[1, 1, 2, 3]) } else { 1 };
    // From 4 registers to 400.
    let most = (100_000 / u64::from(threads * blocks)).min(400);
    let total = random.pick(&[4_u64, 12, 24, 24, 40, 40, 64, 64, 100, 100, 160, 250, 400]).min(most);
    let total = total * (75 + random.below(26)) / 100;
    let counts = Counts {
        halves: (total * random.below(30) / 100).max(2),
        words: (total * (30 + random.below(40)) / 100).max(2),
        wides: (total * random.below(30) / 100).max(2),
        predicates: (total * random.below(12) / 100).clamp(2, 16),
    };
    let seed = random.bits() >> 32;
    let mut writer = Writer::new(random, counts, threads);
    let random = &mut writer.random;
    writer.parts = Parts { own: random.pick(&SIZES), out: 0, trace: 8 * random.below(2) };
    writer.shared = random.pick(&SIZES).min(40_000 / u64::from(threads) / 16 * 16).max(4);
    writer.local = random.pick(&SIZES).max(16);
    writer.leaves = random.below(4) == 0;
    if random.below(6) == 0 {
        writer.fault =
            Some((random.below(u64::from(threads.div_ceil(32))) as u32, random.below(blocks.into()) as u32));
    }
    let functions: Vec<(String, String)> = (0..random.below(4).saturating_sub(1))
        .map(|index| (format!("callee{index}"), calls::function(&format!("callee{index}"), random)))
        .collect();
    let dynamic = random.below(2) == 0;
    let statements = 12 + random.below(60);
    writer.functions = functions.iter().map(|(name, _)| name.clone()).collect();
    let whole = threads.is_multiple_of(32);
    let mask = match (writer.leaves, whole) {
        (true, _) => Mask::Unknown,
        (false, true) => Mask::All,
        (false, false) => Mask::Register("%members".into()),
    };
    let scope = Scope { mask, together: true, depth: 0, runs: u64::from(threads.div_ceil(32) * blocks) };
    let mut body = writer.statements(&scope, statements, MOST);
    finish(&mut writer, &mut body);
    let (variables, mut declarations) = memories(&mut writer, dynamic);
    declarations.extend(functions);
    let prologue = prologue(&mut writer, block);
    Program {
        grid: [blocks, 1, 1],
        block,
        dynamic: if dynamic { (writer.shared * u64::from(threads)) as u32 } else { 0 },
        seed,
        parts: writer.parts,
        declarations,
        variables,
        prologue,
        body,
    }
}

/// Adds stores of all registers, and of the block's sums.
fn finish(writer: &mut Writer, body: &mut Vec<Statement>) {
    let Counts { halves, words, wides, predicates } = writer.counts;
    let mut at = 0;
    let text = text_of(body, "");
    let used: BTreeSet<&str> = registers(&text).collect();
    let random = &mut writer.random;
    let mut store = |class: &str, name: String, bytes: u64, before: String| {
        // A register that no statement uses must keep its value, too.
        let named = if before.is_empty() { name.as_str() } else { before.trim_end_matches(";\n") };
        let named = named.rsplit('%').next().unwrap_or_default();
        if !used.contains(named) && random.below(8) != 0 {
            return;
        }
        body.push(Statement::Lines(format!("{before}st.global.{class} [%aout+{at}], {name};\n")));
        at += bytes;
    };
    for index in 0..wides {
        store("b64", format!("%d{index}"), 8, String::new());
    }
    for index in 0..words {
        store("b32", format!("%r{index}"), 4, String::new());
    }
    for index in 0..predicates {
        store("b32", "%t0".into(), 4, format!("selp.b32 %t0, 1, 0, %p{index};\n"));
    }
    for index in 0..halves {
        store("b16", format!("%h{index}"), 2, String::new());
    }
    writer.parts.out = at.next_multiple_of(8);
    for (space, base, bytes, names) in [
        ("shared", "%tsown", writer.shared, ["%tsown", "%agshared"]),
        ("local", "%alown", writer.local, ["%alown", "%aglocal"]),
    ] {
        if names.iter().any(|name| text.contains(name)) {
            for word in 0..bytes / 4 {
                let to = writer.parts.out;
                body.push(Statement::Lines(format!(
                    "ld.{space}.b32 %t0, [{base}+{}];\nst.global.b32 [%aout+{to}], %t0;\n",
                    4 * word
                )));
                writer.parts.out += 4;
            }
        }
    }
    writer.parts.out = writer.parts.out.next_multiple_of(8);
    if text.contains("%tsums") {
        let mut sums = String::from("bar.sync 0;\nsetp.ne.u32 %q1, %tme, 0;\n@%q1 bra $END;\n");
        for word in 0..SHARED_SUMS / 4 {
            let at = 4 * word;
            let _ = writeln!(
                sums,
                "ld.shared.b32 %t0, [%tsums+{at}];\nred.global.add.u32 [%asums+{}], %t0;",
                256 + at
            );
        }
        body.push(Statement::Lines(sums + "$END:\n"));
    }
}

/// Returns the variables of the kernel and of its module.
fn memories(writer: &mut Writer, dynamic: bool) -> (String, Vec<(String, String)>) {
    let threads = u64::from(writer.threads);
    let mut numbers = || {
        let all: Vec<String> =
            (0..CONSTANTS / 4).map(|_| (writer.random.bits() as u32).to_string()).collect();
        all.join(", ")
    };
    let words = CONSTANTS / 4;
    let mut declarations = vec![
        ("constants".into(), format!(".const .align 16 .b32 constants[{words}] = {{{}}};\n", numbers())),
        ("globals".into(), format!(".global .align 16 .b32 globals[{words}] = {{{}}};\n", numbers())),
    ];
    let mut variables = format!(
        ".shared .align 16 .b8 sums_of_block[{SHARED_SUMS}];\n.shared .align 16 .b8 bounce[{}];\n\
         .local .align 16 .b8 stack[{}];\n",
        4 * threads,
        writer.local
    );
    if dynamic {
        declarations.push(("parts".into(), ".extern .shared .align 16 .b8 parts[];\n".into()));
    } else {
        let _ = writeln!(variables, ".shared .align 16 .b8 parts[{}];", writer.shared * threads);
    }
    (variables, declarations)
}

/// Returns the definitions of the registers that statements use.
fn prologue(writer: &mut Writer, block: [u32; 3]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut define = |name: &str, lines: String| all.push((name.into(), lines));
    define(
        "tme",
        if block[1] * block[2] == 1 {
            "mov.u32 %tme, %tid.x;\n".into()
        } else {
            "mov.u32 %tme, %tid.z;\nmov.u32 %t0, %ntid.y;\nmov.u32 %t1, %tid.y;\nmad.lo.u32 %tme, %tme, %t0, %t1;\n\
             mov.u32 %t0, %ntid.x;\nmov.u32 %t1, %tid.x;\nmad.lo.u32 %tme, %tme, %t0, %t1;\n"
                .into()
        },
    );
    define("tblock", "mov.u32 %tblock, %ctaid.x;\n".into());
    // No number of threads is a constant, so that the reducer can change it.
    define(
        "tcount",
        "mov.u32 %tcount, %ntid.x;\nmov.u32 %t0, %ntid.y;\nmul.lo.u32 %tcount, %tcount, %t0;\nmov.u32 %t0, %ntid.z;\n\
         mul.lo.u32 %tcount, %tcount, %t0;\n"
            .into(),
    );
    define("tall", "mad.lo.u32 %tall, %tblock, %tcount, %tme;\n".into());
    define("tlane", "and.b32 %tlane, %tme, 31;\n".into());
    define("twarp", "shr.u32 %twarp, %tme, 5;\n".into());
    define(
        "members",
        "shl.b32 %members, %twarp, 5;\nsub.u32 %members, %tcount, %members;\nmin.u32 %members, %members, 32;\n\
         shl.b32 %members, -1, %members;\nnot.b32 %members, %members;\n"
            .into(),
    );
    for (name, param, part) in [
        ("own", "own", writer.parts.own),
        ("out", "out", writer.parts.out),
        ("trace", "trace", writer.parts.trace),
    ] {
        define(
            &format!("a{name}"),
            format!("ld.param.u64 %a{name}, [{param}];\nmad.wide.u32 %a{name}, %tall, {part}, %a{name};\n"),
        );
    }
    define("atable", "ld.param.u64 %atable, [table];\n".into());
    define("asums", "ld.param.u64 %asums, [sums];\n".into());
    let mut clear = String::from("mov.u32 %tsums, sums_of_block;\nsetp.ne.u32 %q0, %tme, 0;\n");
    for word in 0..SHARED_SUMS / 4 {
        let _ = writeln!(clear, "@!%q0 st.shared.b32 [%tsums+{}], {word};", 4 * word);
    }
    define("tsums", clear + "bar.sync 0;\n");
    define("tbounce", "mov.u32 %tbounce, bounce;\nmad.lo.u32 %tbounce, %tme, 4, %tbounce;\n".into());
    let mut own = format!("mov.u32 %tsown, parts;\nmad.lo.u32 %tsown, %tme, {}, %tsown;\n", writer.shared);
    for word in 0..writer.shared / 4 {
        let _ = writeln!(own, "st.shared.b32 [%tsown+{}], %tall;", 4 * word);
    }
    define("tsown", own);
    define("agshared", "cvt.u64.u32 %agshared, %tsown;\ncvta.shared.u64 %agshared, %agshared;\n".into());
    let mut own = String::from("mov.u64 %alown, stack;\n");
    for word in 0..writer.local / 4 {
        let _ = writeln!(own, "st.local.b32 [%alown+{}], {word};", 4 * word);
    }
    define("alown", own);
    define("aglocal", "cvta.local.u64 %aglocal, %alown;\n".into());
    define(
        "ain",
        "and.b32 %t0, %tall, 255;\nmul.wide.u32 %ain, %t0, 8;\nadd.s64 %ain, %ain, %atable;\n".into(),
    );
    values(writer, &mut all);
    all
}

/// Adds the first values of the registers: of the table at an address of each lane's own, and for the first
/// quarter values that all threads share.
fn values(writer: &mut Writer, all: &mut Vec<(String, String)>) {
    let Counts { halves, words, wides, predicates } = writer.counts;
    for (class, count, width) in [("d", wides, 64), ("r", words, 32), ("h", halves, 16)] {
        for index in 0..count {
            let at = 8 * writer.random.below(280);
            let line = match writer.random.below(6) {
                _ if index >= count / 4 => format!("ld.global.b{width} %{class}{index}, [%ain+{at}];\n"),
                0 | 1 => format!("ld.global.b{width} %{class}{index}, [%atable+{at}];\n"),
                2 | 3 => format!("ld.param.b{width} %{class}{index}, [data+{}];\n", at % 64),
                4 if width == 32 => format!("mov.u32 %{class}{index}, %tblock;\n"),
                _ => format!("mov.b{width} %{class}{index}, {};\n", writer.random.below(1 << 15)),
            };
            all.push((format!("{class}{index}"), line));
        }
    }
    for index in 0..predicates {
        let line = if index < predicates / 4 {
            format!("setp.eq.u32 %p{index}, %tblock, {};\n", index % 2)
        } else {
            let at = 4 * writer.random.below(500);
            format!("ld.global.b32 %t0, [%ain+{at}];\nand.b32 %t0, %t0, 1;\nsetp.ne.u32 %p{index}, %t0, 0;\n")
        };
        all.push((format!("p{index}"), line));
    }
}
