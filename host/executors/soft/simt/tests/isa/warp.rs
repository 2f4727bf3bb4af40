//! Tests of instructions by which the lanes of a warp exchange values.

use std::fmt::Write as _;

use crate::case::Case;
use crate::device::{Params, Shape};
use crate::values::Random;

const THREADS: usize = 64;
const LANES: usize = 32;

/// Returns the source lane of `shfl` according to the ISA, and whether it is in range.
fn source(mode: &str, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let greatest = (lane & segment) | (clamp & !segment);
    let least = lane & segment;
    let (from, valid) = match mode {
        "up" => {
            let from = lane.wrapping_sub(b).cast_signed();
            (from, from >= greatest.cast_signed())
        }
        "down" => ((lane + b).cast_signed(), lane + b <= greatest),
        "bfly" => ((lane ^ b).cast_signed(), lane ^ b <= greatest),
        _ => {
            let from = least | (b & !segment);
            (from.cast_signed(), from <= greatest)
        }
    };
    if valid { (from.cast_unsigned(), true) } else { (lane, false) }
}

const MODES: [&str; 4] = ["up", "down", "bfly", "idx"];
/// Control operands of shuffles: segments of 32, 16, 8 and 4 lanes with both usual clamps, and unusual ones.
const CONTROLS: [u32; 10] = [0x1f, 0, 0x101f, 0x1000, 0x181f, 0x1800, 0x1c1f, 0x1c03, 0x0a15, 0xffff_e0ff];

/// Returns a test of shuffles with separate offsets and controls for each lane, from memory.
fn shuffle_by_registers(mode: &'static str) -> Case {
    let spelling = format!("shfl.sync.{mode}.b32");
    let rounds = 40_usize;
    let text = format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %in, %out, %a, %o;\n.reg .b32 %t, %i, %x, %b, %c, %d, %v;\n.reg .pred %p, %q;\n\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmad.lo.u32 %x, %t, 7, 1000;\nmov.u32 %i, 0;\n\
         LOOP:\nmad.lo.u32 %c, %i, {THREADS}, %t;\nmul.wide.u32 %o, %c, 8;\nadd.s64 %a, %in, %o;\n\
         ld.global.v2.u32 {{%b, %c}}, [%a];\n{spelling} %d|%p, %x, %b, %c, -1;\nselp.u32 %v, 1, 0, %p;\n\
         add.s64 %a, %out, %o;\nst.global.v2.u32 [%a], {{%d, %v}};\n\
         add.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, {rounds};\n@%q bra LOOP;\nret;\n}}\n"
    );
    Case::new(&format!("{spelling} by registers"), &spelling, &text, move |device| {
        let mut random = Random::new(3);
        let mut input = Vec::new();
        let mut wanted = Vec::new();
        for round in 0..rounds {
            // Half of the rounds have one offset for all lanes, as kernels do.
            let common = random.below(34) as u32;
            let control = CONTROLS[round % CONTROLS.len()];
            for thread in 0..THREADS as u32 {
                let b = if round % 2 == 0 { common } else { random.below(70) as u32 };
                input.extend([b, control]);
                let (lane, valid) = source(mode, thread % 32, b, control);
                wanted.extend([(thread / 32 * 32 + lane) * 7 + 1000, valid.into()]);
            }
        }
        let input = device.upload_words(&input);
        device.expect_words("value, valid", Shape::line(1, THREADS as u32), Params::new().u64(input), &wanted)
    })
}

/// Returns a test of shuffles with constant offset and control: without a predicate, with one, and with the
/// source as destination.
fn shuffle_by_constants(mode: &'static str) -> Case {
    let spelling = format!("shfl.sync.{mode}.b32");
    let mut code = String::new();
    let mut forms = Vec::new();
    for control in CONTROLS {
        for b in [0, 1, 2, 3, 4, 8, 16, 31, 32] {
            for form in 0..3 {
                let slot = forms.len() * THREADS * 8;
                let control = control.cast_signed();
                let (instruction, result) = match form {
                    0 => (format!("mov.u32 %v, 9;\n{spelling} %d, %x, {b}, {control}, -1;"), "%d"),
                    1 => (
                        format!("{spelling} %d|%p, %x, {b}, {control}, 0xffffffff;\nselp.u32 %v, 1, 0, %p;"),
                        "%d",
                    ),
                    _ => (
                        format!("mov.u32 %v, 9;\nmov.b32 %y, %x;\n{spelling} %y, %y, {b}, {control}, -1;"),
                        "%y",
                    ),
                };
                let _ = writeln!(code, "{instruction}\nst.global.v2.u32 [%a+{slot}], {{{result}, %v}};");
                forms.push((b, control.cast_unsigned(), form));
            }
        }
    }
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %x, %y, %d, %v;\n.reg .pred %p;\n\
         ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 8;\nadd.s64 %a, %a, %out;\nmad.lo.u32 %x, %t, 7, 1000;\n{code}ret;\n}}\n"
    );
    Case::new(&format!("{spelling} by constants"), &spelling, &text, move |device| {
        let mut wanted = Vec::new();
        for &(b, control, form) in &forms {
            for thread in 0..THREADS as u32 {
                let (lane, valid) = source(mode, thread % 32, b, control);
                wanted
                    .extend([(thread / 32 * 32 + lane) * 7 + 1000, if form == 1 { valid.into() } else { 9 }]);
            }
        }
        device.expect_words("value, valid", Shape::line(1, THREADS as u32), Params::new(), &wanted)
    })
}

/// Returns a test of the instruction forms without member masks, which apply to all active lanes.
fn without_masks() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %a;\n.reg .b32 %t, %x, %v;\n.reg .pred %p, %q;\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 16;\nadd.s64 %a, %a, %out;\nand.b32 %x, %t, 2;\nsetp.ne.u32 %p, %x, 0;\n\
        shfl.bfly.b32 %v, %t, 5, 31;\nst.global.u32 [%a], %v;\nvote.ballot.b32 %v, %p;\nst.global.u32 [%a+4], %v;\n\
        vote.all.pred %q, !%p;\nselp.u32 %v, 1, 0, %q;\nst.global.u32 [%a+8], %v;\nvote.any.pred %q, %p;\nselp.u32 %v, 1, 0, %q;\nst.global.u32 [%a+12], %v;\nret;\n}\n";
    let covers = "shfl.bfly.b32 vote.ballot.b32 vote.all.pred vote.any.pred";
    Case::new("shfl and vote without masks", covers, text, |device| {
        let wanted: Vec<u32> = (0..64).flat_map(|thread: u32| [thread ^ 5, 0xcccc_cccc, 0, 1]).collect();
        device.expect_words("values", Shape::line(1, 64), Params::new(), &wanted)
    })
}

/// Returns a test of shuffles among some lanes on both sides of a branch, and of a value that all lanes
/// share.
fn shuffle_in_branches() -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %x, %l;\n.reg .pred %p;\n\
         ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\nmov.u32 %x, %t;\n\
         mov.u32 %l, %laneid;\nsetp.lt.u32 %p, %l, 16;\n@%p bra LOW;\n\
         shfl.sync.bfly.b32 %x, %x, 3, 31, 0xffff0000;\nadd.u32 %x, %x, 100;\nbra JOIN;\n\
         LOW:\nshfl.sync.idx.b32 %x, %x, 5, 31, 0xffff;\nadd.u32 %x, %x, 200;\n\
         JOIN:\nshfl.sync.up.b32 %x, %x, 1, 0, -1;\nst.global.u32 [%a], %x;\n\
         mov.u32 %x, 77;\nshfl.sync.down.b32 %x, %x, 9, 31, -1;\nst.global.u32 [%a+{}], %x;\nret;\n}}\n",
        4 * THREADS
    );
    let covers = "shfl.sync.bfly.b32 shfl.sync.idx.b32 shfl.sync.up.b32 shfl.sync.down.b32";
    Case::new("shfl in branches", covers, &text, |device| {
        let inner = |thread: usize| {
            let (warp, lane) = (thread / LANES * LANES, thread % LANES);
            if lane < 16 { warp + 5 + 200 } else { warp + (lane ^ 3) + 100 }
        };
        let wanted: Vec<u32> = (0..THREADS)
            .map(|thread| inner(if thread % LANES == 0 { thread } else { thread - 1 }) as u32)
            .chain([77; THREADS])
            .collect();
        device.expect_words("values", Shape::line(1, THREADS as u32), Params::new(), &wanted)
    })
}

/// A form of `vote`: its spelling, whether its result is a predicate, and a function of the votes and the
/// mask for the result.
type Vote = (&'static str, bool, fn(u32, u32) -> u32);

/// Returns tests of votes on the bits of a word by all lanes, with the predicate negated, and by the odd
/// lanes alone.
fn votes() -> Vec<Case> {
    let words = [0, u32::MAX, 1, 0x8000_0000, 0x5555_5555, 0xaaaa_aaaa, 0x7fff_ffff, 0x0f0f_1234];
    let forms: [Vote; 5] = [
        ("vote.sync.all.pred", true, |votes, lanes| u32::from(votes & lanes == lanes)),
        ("vote.sync.any.pred", true, |votes, lanes| u32::from(votes & lanes != 0)),
        ("vote.sync.uni.pred", true, |votes, lanes| u32::from(votes & lanes == lanes || votes & lanes == 0)),
        ("vote.sync.ballot.b32", false, |votes, lanes| votes & lanes),
        ("vote.ballot.sync.b32", false, |votes, lanes| votes & lanes),
    ];
    let case = |(spelling, predicate, count): Vote| {
        let vote = |source: &str, mask: &str| {
            if predicate {
                format!("{spelling} %q, {source}, {mask};\nselp.u32 %v, 1, 0, %q;\n")
            } else {
                format!("{spelling} %v, {source}, {mask};\n")
            }
        };
        let store = |slot: usize| format!("st.global.u32 [%a+{}], %v;\n", 4 * THREADS * slot);
        let mut code = String::new();
        for (index, word) in words.iter().enumerate() {
            let _ = write!(
                code,
                "mov.u32 %x, {word:#x};\nshr.u32 %x, %x, %l;\nand.b32 %x, %x, 1;\nsetp.eq.u32 %p, %x, 1;\n{}{}{}{}\
                 and.b32 %x, %l, 1;\nsetp.eq.u32 %q, %x, 0;\n@%q bra EVEN{index};\n{}{}EVEN{index}:\n",
                vote("%p", "-1"),
                store(3 * index),
                vote("!%p", "0xffffffff"),
                store(3 * index + 1),
                vote("%p", "0xaaaaaaaa"),
                store(3 * index + 2),
            );
        }
        let text = format!(
            ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %x, %v, %l;\n.reg .pred %p, %q;\n\
             ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %l, %laneid;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\n{code}ret;\n}}\n"
        );
        Case::new(spelling, spelling, &text, move |device| {
            let mut wanted = Vec::new();
            for word in words {
                wanted.extend([count(word, u32::MAX); THREADS]);
                wanted.extend([count(!word, u32::MAX); THREADS]);
                wanted.extend((0..THREADS).map(|t| if t % 2 == 1 { count(word, 0xaaaa_aaaa) } else { 0 }));
            }
            device.expect_words("votes", Shape::line(1, THREADS as u32), Params::new(), &wanted)
        })
    };
    forms.into_iter().map(case).collect()
}

/// Returns a test that lanes which do not exist or have returned do not vote.
fn votes_of_some() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %a;\n.reg .b32 %t, %x, %v;\n.reg .pred %p, %q;\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 16;\nadd.s64 %a, %a, %out;\n\
        setp.lt.u32 %p, %t, 4;\n@%p ret;\nsetp.ge.u32 %p, %t, 4;\n\
        vote.sync.ballot.b32 %v, %p, -1;\nst.global.u32 [%a], %v;\nvote.sync.all.pred %q, %p, -1;\nselp.u32 %v, 1, 0, %q;\nst.global.u32 [%a+4], %v;\n\
        activemask.b32 %v;\nst.global.u32 [%a+8], %v;\nret;\n}\n";
    Case::new("votes of lanes that are there", "activemask.b32 vote.sync.all.pred", text, |device| {
        let wanted: Vec<u32> = (0..40)
            .flat_map(|thread| match thread {
                0..4 => [0; 4],
                4..32 => [0xffff_fff0, 1, 0xffff_fff0, 0],
                _ => [0xff, 1, 0xff, 0],
            })
            .collect();
        device.expect_words("votes", Shape::line(1, 40), Params::new(), &wanted)
    })
}

/// Returns a test of `activemask` within branches.
fn active_lanes() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %a;\n.reg .b32 %t, %x, %v;\n.reg .pred %p;\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\n\
        rem.u32 %x, %t, 3;\nsetp.eq.u32 %p, %x, 1;\n@%p bra ONE;\nactivemask.b32 %v;\nbra JOIN;\nONE:\nactivemask.b32 %v;\nJOIN:\n\
        st.global.u32 [%a], %v;\nret;\n}\n";
    Case::new("activemask.b32", "activemask.b32", text, |device| {
        let ones: u32 = (0..32).filter(|lane| lane % 3 == 1).map(|lane| 1 << lane).sum();
        let wanted: Vec<u32> = (0..32).map(|lane| if lane % 3 == 1 { ones } else { !ones }).collect();
        device.expect_words("masks", Shape::line(1, 32), Params::new(), &wanted)
    })
}

/// Returns a case for a kernel that loads 64 bits for each thread into `%w`, with the lower word in `%x`, and
/// stores `parts` words.
fn exchange(
    name: &str,
    code: &str,
    spread: u64,
    parts: usize,
    wanted: impl Fn(&[u64], usize, usize) -> Option<u32> + Send + Sync + 'static,
) -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %in, %out, %a, %w;\n.reg .b32 %t, %x, %v, %u, %l;\n.reg .pred %p, %q;\n\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %l, %laneid;\nmul.wide.u32 %a, %t, 8;\nadd.s64 %a, %a, %in;\n\
         ld.global.u64 %w, [%a];\ncvt.u32.u64 %x, %w;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\nmov.u32 %u, 0;\n{code}ret;\n}}\n"
    );
    Case::new(name, name, &text, move |device| {
        for seed in 0..8 {
            let mut random = Random::new(seed);
            let inputs: Vec<u64> = (0..THREADS)
                .map(|thread| match seed {
                    // All lanes of the first warp agree, and of the second all but one.
                    0 => u64::from(thread == 40),
                    1 => random.bits(),
                    // Nearly all bits are ones.
                    2 | 3 => !(1 << random.below(64)),
                    _ => random.below(spread) * 0x1_0000_0001,
                })
                .collect();
            let input =
                device.upload(&inputs.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
            let got = device.words(
                Shape::line(1, THREADS as u32),
                Params::new().u64(input),
                (THREADS * parts) as u64,
            )?;
            for part in 0..parts {
                for thread in 0..THREADS {
                    let warp = &inputs[thread / LANES * LANES..][..LANES];
                    let got = got[part * THREADS + thread];
                    if let Some(wanted) = wanted(warp, thread % LANES, part)
                        && got != wanted
                    {
                        return Err(format!("part {part}, thread {thread}: {got:#x}, should be {wanted:#x}"));
                    }
                }
            }
        }
        Ok(())
    })
}

/// Adds tests of `match`, which finds lanes with equal values.
fn matches(cases: &mut Vec<Case>) {
    for (ty, register, bits) in [("b32", "%x", 32), ("b64", "%w", 64)] {
        let key = move |value: u64| value & (u64::MAX >> (64 - bits));
        let code = format!(
            "match.any.sync.{ty} %v, {register}, -1;\nst.global.u32 [%a], %v;\n\
             and.b32 %v, %l, 1;\nsetp.eq.u32 %p, %v, 0;\n@%p bra EVEN;\nmatch.any.sync.{ty} %u, {register}, 0xaaaaaaaa;\nEVEN:\nst.global.u32 [%a+256], %u;\n"
        );
        cases.push(exchange(&format!("match.any.sync.{ty}"), &code, 4, 2, move |warp, lane, part| {
            if part == 1 && lane % 2 == 0 {
                return Some(0);
            }
            let lanes = if part == 0 { u32::MAX } else { 0xaaaa_aaaa };
            let equal = (0..LANES).filter(|&other| key(warp[other]) == key(warp[lane]));
            Some(equal.map(|other| 1 << other).sum::<u32>() & lanes)
        }));
        let code = format!(
            "match.all.sync.{ty} %v|%p, {register}, -1;\nst.global.u32 [%a], %v;\nselp.u32 %v, 1, 0, %p;\nst.global.u32 [%a+256], %v;\n"
        );
        cases.push(exchange(&format!("match.all.sync.{ty}"), &code, 1, 2, move |warp, _, part| {
            let all = warp.iter().all(|&value| key(value) == key(warp[0]));
            Some(match (all, part) {
                (true, 0) => u32::MAX,
                (all, _) => all.into(),
            })
        }));
    }
}

/// Adds tests of `redux` over a warp, and over its odd lanes.
fn reductions(cases: &mut Vec<Case>) {
    type Fold = fn(u32, u32) -> u32;
    let operations: [(&str, Fold); 9] = [
        ("add.u32", u32::wrapping_add),
        ("add.s32", u32::wrapping_add),
        ("min.u32", u32::min),
        ("max.u32", u32::max),
        ("min.s32", |a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned()),
        ("max.s32", |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
    ];
    for (name, fold) in operations {
        let spelling = format!("redux.sync.{name}");
        let code = format!(
            "{spelling} %v, %x, -1;\nst.global.u32 [%a], %v;\n\
             and.b32 %v, %l, 1;\nsetp.eq.u32 %p, %v, 0;\n@%p bra EVEN;\n{spelling} %u, %x, 0xaaaaaaaa;\nEVEN:\nst.global.u32 [%a+256], %u;\n"
        );
        cases.push(exchange(&spelling, &code, 9, 2, move |warp, lane, part| {
            if part == 1 && lane % 2 == 0 {
                return Some(0);
            }
            warp.iter().skip(part).step_by(part + 1).map(|&value| value as u32).reduce(fold)
        }));
    }
}

/// Returns a test in which lanes exchange words in shared memory, as a whole warp and as halves in separate
/// branches.
fn warp_barriers() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %a;\n.reg .b32 %t, %x, %l, %m, %o;\n.reg .pred %p;\n.shared .align 4 .b8 words[256];\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\nmov.u32 %l, %laneid;\n\
        shl.b32 %o, %t, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nadd.u32 %x, %t, 500;\nst.shared.u32 [%m], %x;\nbar.warp.sync -1;\n\
        xor.b32 %o, %t, 31;\nshl.b32 %o, %o, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nld.shared.u32 %x, [%m];\nst.global.u32 [%a], %x;\nbar.warp.sync 0xffffffff;\n\
        setp.lt.u32 %p, %l, 16;\n@%p bra LOW;\nadd.u32 %x, %x, 1000;\nst.shared.u32 [%m], %x;\nbar.warp.sync 0xffff0000;\nbra JOIN;\n\
        LOW:\nadd.u32 %x, %x, 2000;\nst.shared.u32 [%m], %x;\nbar.warp.sync 65535;\nJOIN:\nbar.warp.sync -1;\n\
        xor.b32 %o, %t, 1;\nshl.b32 %o, %o, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nld.shared.u32 %x, [%m];\nst.global.u32 [%a+256], %x;\nret;\n}\n";
    Case::new("bar.warp.sync", "bar.warp.sync", text, |device| {
        let first = (0..64).map(|t: u32| (t ^ 31) + 500);
        // The word at index w is written by thread w ^ 31. It has read the word that thread w had written
        // first.
        let second = (0..64).map(|t: u32| {
            let at = t ^ 1;
            at + 500 + if (at ^ 31) % 32 < 16 { 2000 } else { 1000 }
        });
        device.expect_words(
            "words",
            Shape::line(1, 64),
            Params::new(),
            &first.chain(second).collect::<Vec<u32>>(),
        )
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    for mode in MODES {
        cases.push(shuffle_by_registers(mode));
        cases.push(shuffle_by_constants(mode));
    }
    cases.push(shuffle_in_branches());
    cases.push(without_masks());
    cases.extend(votes());
    cases.push(votes_of_some());
    cases.push(active_lanes());
    matches(cases);
    reductions(cases);
    cases.push(warp_barriers());
}
