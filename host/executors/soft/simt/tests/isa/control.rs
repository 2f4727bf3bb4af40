//! Tests of branches, loops, guards and early returns, after which the lanes reconverge.

use std::sync::Arc;

use crate::case::Case;
use crate::device::{Params, Shape, same};
use crate::programs::{ControlProgram, TABLE, VARIABLES};
use crate::values::Random;

/// Returns cases with several random programs each, in blocks of shapes for which `%tid.y` is the same for a
/// warp, and in others.
fn programs(
    name: &'static str,
    make: fn(u64) -> ControlProgram,
    blocks: &'static [[u32; 2]],
) -> impl Iterator<Item = Case> {
    (0..50).map(move |number| {
        let programs: Vec<ControlProgram> = (0..5).map(|index| make(1000 * number + index)).collect();
        let text: String = programs
            .iter()
            .enumerate()
            .map(|(index, program)| program.kernel(&format!("k{index}")))
            .collect();
        let programs = Arc::new(programs);
        Case::new(&format!("{name} {number}"), "", &text, move |device| {
            let mut random = Random::new(number);
            let table: Vec<u32> = (0..TABLE).map(|_| random.bits() as u32).collect();
            let words = device.upload_words(&table);
            for (index, program) in programs.iter().enumerate() {
                for &block in blocks {
                    let parameter = 11 + index as u32;
                    let wanted: Vec<u32> =
                        (0..3).flat_map(|ctaid| program.expected(block, ctaid, parameter, &table)).collect();
                    let results = device.allocate(4 * wanted.len() as u64);
                    let params = Params::new().u64(words).u64(results).u32(parameter);
                    let shape = Shape::new([3, 1, 1], [block[0], block[1], 1]);
                    device.launch(&format!("k{index}"), shape, &params)?;
                    let got = device.read_words(results, wanted.len() as u64);
                    same(&format!("k{index} in {block:?}, {VARIABLES} variables a thread"), &got, &wanted)?;
                }
            }
            Ok(())
        })
    })
}

fn case(
    name: &str,
    covers: &str,
    code: &str,
    parts: u32,
    wanted: impl Fn(u32, u32) -> u32 + Send + Sync + 'static,
) -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %l, %x, %y, %z, %i;\n.reg .pred %p, %q;\n\
         ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %l, %laneid;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\n{code}}}\n"
    );
    Case::new(name, covers, &text, move |device| {
        let wanted: Vec<u32> =
            (0..parts).flat_map(|part| (0..64).map(move |t| (part, t))).map(|(p, t)| wanted(p, t)).collect();
        device.expect_words("words", Shape::line(1, 64), Params::new(), &wanted)
    })
}

/// Adds tests that all lanes reconverge after branches and loops, so that a shuffle of all lanes works.
fn reconvergence(cases: &mut Vec<Case>) {
    let code = "and.b32 %x, %t, 1;\nsetp.eq.u32 %p, %x, 0;\n@%p bra EVEN;\nadd.u32 %y, %t, 100;\nbra.uni JOIN;\nEVEN:\nand.b32 %x, %t, 2;\nsetp.eq.u32 %q, %x, 0;\n@%q bra FOUR;\nadd.u32 %y, %t, 200;\nbra JOIN;\nFOUR:\nadd.u32 %y, %t, 400;\nJOIN:\n\
        shfl.sync.bfly.b32 %y, %y, 3, 31, -1;\nst.global.u32 [%a], %y;\nret;\n";
    cases.push(case("reconvergence after branches", "bra bra.uni", code, 1, |_, t| {
        let other = t ^ 3;
        other + [400, 100, 200, 100][other as usize % 4]
    }));
    // Lanes leave the loop after different numbers of steps, by the condition or by a break.
    let code = "mov.u32 %i, 0;\nmov.u32 %y, 1;\nLOOP:\nmul.lo.u32 %y, %y, 3;\nadd.u32 %y, %y, %l;\nsetp.gt.u32 %p, %y, 5000;\n@%p bra BREAK;\nadd.u32 %i, %i, 1;\nand.b32 %x, %l, 7;\nsetp.le.u32 %q, %i, %x;\n@%q bra LOOP;\nBREAK:\n\
        mad.lo.u32 %y, %i, 100000, %y;\nshfl.sync.idx.b32 %x, %y, 7, 31, -1;\nshfl.sync.up.b32 %y, %y, 1, 0, -1;\nst.global.u32 [%a], %y;\nst.global.u32 [%a+256], %x;\nret;\n";
    cases.push(case("reconvergence after a loop", "bra", code, 2, |part, t| {
        let end = |lane: u32| {
            let (mut i, mut y) = (0, 1);
            loop {
                y = y * 3 + lane;
                if y > 5000 {
                    break;
                }
                i += 1;
                if i > lane & 7 {
                    break;
                }
            }
            i * 100_000 + y
        };
        let lane = t % 32;
        if part == 1 { end(7) } else { end(lane.max(1) - 1) }
    }));
    // A counter that is uniform within the loop and varies after it, because lanes leave the loop at
    // different times.
    let code = "mov.u32 %i, 0;\nLOOP:\nadd.u32 %i, %i, 1;\nand.b32 %x, %t, 15;\nsetp.lt.u32 %p, %i, %x;\n@%p bra LOOP;\nmul.lo.u32 %y, %i, 10;\nst.global.u32 [%a], %y;\nret;\n";
    cases.push(case("a uniform counter behind its loop", "bra", code, 1, |_, t| (t & 15).max(1) * 10));
    // As above, for a value that a single instruction in the loop computes from the counter, with a second
    // loop around.
    let code = "mov.u32 %z, 0;\nmov.u32 %y, 0;\nOUTER:\nmov.u32 %i, 0;\nLOOP:\nadd.u32 %i, %i, 1;\nshl.b32 %x, %i, 1;\nsetp.lt.u32 %p, %i, %l;\n@%p bra LOOP;\nadd.u32 %y, %y, %x;\nadd.u32 %z, %z, 1;\nsetp.lt.u32 %q, %z, 3;\n@%q bra OUTER;\nst.global.u32 [%a], %y;\nret;\n";
    cases.push(case("a uniform value behind its loop", "bra", code, 1, |_, t| (t % 32).max(1) * 6));
}

/// Adds tests of guards before instructions of all kinds.
fn guards(cases: &mut Vec<Case>) {
    let code = "rem.u32 %x, %t, 3;\nsetp.eq.u32 %p, %x, 1;\nmov.u32 %y, 1;\n@%p mov.u32 %y, 2;\n@!%p add.u32 %y, %y, 10;\n\
        @%p setp.eq.u32 %q, %t, %t;\n@!%p setp.ne.u32 %q, %t, %t;\n@%q shl.b32 %y, %y, 4;\n\
        @%p st.global.u32 [%a+256], %y;\n@%p ld.global.u32 %z, [%a+256];\n@!%p mov.u32 %z, 9;\nadd.u32 %y, %y, %z;\nst.global.u32 [%a], %y;\n\
        @%p ret;\nst.global.u32 [%a+512], %t;\n@!%p exit;\nst.global.u32 [%a+512], 0;\nret;\n";
    cases.push(case("guards", "ret exit", code, 3, |part, t| match (part, t % 3) {
        (0, 1) => 64,
        (0, _) => 20,
        (1, 1) => 32,
        (2, 0 | 2) => t,
        _ => 0,
    }));
    // A guard that is false for all lanes must suppress the access to a null pointer.
    let code = "setp.gt.u32 %p, %t, 1000;\nmov.u64 %out, 0;\n@%p st.global.u32 [%out], %t;\n@%p bra OUT;\nst.global.u32 [%a], %t;\nOUT:\nret;\n";
    cases.push(case("a guard that is false", "ret", code, 1, |_, t| t));
    let code = "setp.gt.u32 %p, %t, 1000;\n@!%p bra OUT;\ntrap;\nOUT:\nst.global.u32 [%a], %t;\nexit;\n";
    cases.push(case("a trap that is not reached", "exit trap", code, 1, |_, t| t));
}

/// Adds tests of unstructured control flow: a loop with two entries, a branch into the other branch, and text
/// out of order.
fn unstructured(cases: &mut Vec<Case>) {
    let code = "mov.u32 %i, 0;\nmov.u32 %y, 0;\nand.b32 %x, %t, 1;\nsetp.eq.u32 %p, %x, 1;\n@%p bra MIDDLE;\nTOP:\nadd.u32 %y, %y, 1;\nMIDDLE:\nadd.u32 %y, %y, 100;\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, 4;\n@%q bra TOP;\nst.global.u32 [%a], %y;\nret;\n";
    cases.push(case("a loop with two entries", "bra", code, 1, |_, t| 400 + 4 - (t & 1)));
    let code = "bra START;\nLAST:\nst.global.u32 [%a], %y;\nret;\nTWO:\nadd.u32 %y, %y, 7;\nsetp.lt.u32 %p, %y, 50;\n@%p bra TWO;\nbra LAST;\n\
        START:\nmov.u32 %y, %t;\nand.b32 %x, %t, 3;\nsetp.eq.u32 %p, %x, 0;\n@%p bra TWO;\nsetp.eq.u32 %p, %x, 1;\n@%p bra THREE;\nadd.u32 %y, %y, 1000;\nbra LAST;\nTHREE:\nmul.lo.u32 %y, %y, 2;\nsetp.gt.u32 %q, %y, 60;\n@%q bra LAST;\nbra TWO;\n";
    cases.push(case("text out of order", "bra", code, 1, |_, t| {
        let two = |mut y: u32| {
            loop {
                y += 7;
                if y >= 50 {
                    return y;
                }
            }
        };
        match t & 3 {
            0 => two(t),
            1 if 2 * t > 60 => 2 * t,
            1 => two(2 * t),
            _ => t + 1000,
        }
    }));
    // A branch to the next instruction, an empty loop body, and a block that is unreachable.
    let code = "setp.eq.u32 %p, %l, 3;\n@%p bra HERE;\nHERE:\nmov.u32 %i, 0;\nAGAIN:\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, %l;\n@%p bra AGAIN;\nbra OUT;\ntrap;\nOUT:\nst.global.u32 [%a], %i;\nret;\n";
    cases.push(case("odd branches", "bra", code, 1, |_, t| (t % 32).max(1)));
}

/// Adds tests of branches through lists of one to 33 labels, with and without guards, after which all lanes
/// reconverge.
fn lists(cases: &mut Vec<Case>) {
    for count in [1, 2, 3, 5, 16, 33] {
        let list: Vec<String> = (0..count).map(|label| format!("L{label}")).collect();
        let ends: String = (0..count)
            .map(|label| format!("L{label}:\nmad.lo.u32 %y, %y, 31, {};\nbra JOIN;\n", 7 * label + 1))
            .collect();
        for (guard, uniform) in [("", ""), ("@%p ", ""), ("@!%p ", ""), ("", ".uni")] {
            // For `.uni`, all lanes of the warp have the same number.
            let number = if uniform.is_empty() { "mul.lo.u32 %x, %t, 7;" } else { "shr.u32 %x, %t, 5;" };
            let code = format!(
                "{number}\nrem.u32 %x, %x, {count};\nand.b32 %z, %t, 1;\nsetp.eq.u32 %p, %z, 1;\n\
                 mov.u32 %y, %t;\n\
                 TS: .branchtargets {};\n{guard}brx.idx{uniform} %x, TS;\n\
                 add.u32 %y, %y, 5000;\nbra JOIN;\n{ends}\
                 JOIN:\nshfl.sync.bfly.b32 %y, %y, 1, 31, -1;\nst.global.u32 [%a], %y;\nret;\n",
                list.join(", ")
            );
            let (spare, odd) = (!guard.is_empty(), !guard.contains('!'));
            let name = format!("a branch through {count} labels {guard}{uniform}");
            cases.push(case(&name, &format!("brx.idx{uniform}"), &code, 1, move |_, t| {
                let t = t ^ 1;
                let x = if uniform.is_empty() { 7 * t } else { t / 32 } % count;
                if spare && (t & 1 == 1) != odd { t + 5000 } else { t * 31 + 7 * x + 1 }
            }));
        }
    }
}

pub fn cases(cases: &mut Vec<Case>) {
    lists(cases);
    reconvergence(cases);
    guards(cases);
    unstructured(cases);
    cases.extend(programs("programs", ControlProgram::new, &[[64, 1], [32, 2], [16, 4], [7, 5]]));
    // No warp has missing lanes, and a block has as many threads as there are shared words.
    cases.extend(programs("meetings", ControlProgram::with_meetings, &[[64, 1], [32, 2], [16, 4]]));
}
