//! Tests of barriers for all warps of a block or some of them, in loops and in branches, with reductions; and
//! of fences.

use crate::case::Case;
use crate::device::{Params, Shape, same};

/// Returns a kernel in which `%t` is the thread's index, `%a` the address of its result, and `%m` the address
/// of its word in shared memory.
fn kernel(code: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 out, .param .u32 n)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %n, %x, %y, %i, %m, %o, %w;\n.reg .pred %p, %q, %r;\n\
         .shared .align 4 .b8 words[4096];\n\
         ld.param.u64 %out, [out];\nld.param.u32 %n, [n];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\n\
         shl.b32 %o, %t, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nshr.u32 %w, %t, 5;\n{code}ret;\n}}\n"
    )
}

fn case(
    name: &str,
    covers: &str,
    code: &str,
    threads: u32,
    n: u32,
    wanted: impl Fn(u32) -> u32 + Send + Sync + 'static,
) -> Case {
    Case::new(name, covers, &kernel(code), move |device| {
        let results = device.allocate(4 * u64::from(threads));
        device.launch("k", Shape::line(1, threads), &Params::new().u64(results).u32(n))?;
        same(
            "words",
            &device.read_words(results, threads.into()),
            &(0..threads).map(&wanted).collect::<Vec<_>>(),
        )
    })
}

/// Adds tests in which each thread reads a word that a thread of another warp has written before the barrier.
fn reversals(cases: &mut Vec<Case>) {
    for (spelling, operands) in [
        ("bar.sync", "0"),
        ("bar.sync", "3"),
        ("bar.sync", "0, 256"),
        ("bar.sync", "%x"),
        ("bar.cta.sync", "0"),
        ("barrier.sync", "0"),
        ("barrier.sync", "1, 256"),
        ("barrier.sync.aligned", "0"),
        ("barrier.cta.sync", "0"),
    ] {
        let code = format!(
            "mad.lo.u32 %x, %t, 3, 1;\nst.shared.u32 [%m], %x;\nmov.u32 %x, 5;\n{spelling} {operands};\n\
             xor.b32 %o, %t, 255;\nshl.b32 %o, %o, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nld.shared.u32 %x, [%m];\nst.global.u32 [%a], %x;\n"
        );
        let name = format!("{spelling} {}", operands.replace('%', ""));
        cases.push(case(&name, spelling, &code, 256, 0, |thread| 3 * (thread ^ 255) + 1));
    }
}

/// Returns a test with a prefix sum, in whose loop threads take two paths and pass two barriers.
fn scan() -> Case {
    let code = "add.u32 %x, %t, 1;\nst.shared.u32 [%m], %x;\nbar.sync 0;\nmov.u32 %i, 1;\n\
        LOOP:\nmov.u32 %y, 0;\nsetp.lt.u32 %p, %t, %i;\n@%p bra FEW;\nshl.b32 %o, %i, 2;\nsub.u32 %o, %m, %o;\nld.shared.u32 %y, [%o];\nFEW:\n\
        bar.sync 0;\nadd.u32 %x, %x, %y;\nst.shared.u32 [%m], %x;\nbar.sync 0;\n\
        shl.b32 %i, %i, 1;\nsetp.lt.u32 %q, %i, %n;\n@%q bra LOOP;\nst.global.u32 [%a], %x;\n";
    case("a scan with barriers in its loop", "bar.sync", code, 224, 224, |thread| {
        (thread + 1) * (thread + 2) / 2
    })
}

/// Returns a test of lanes that reach a barrier by a detour, after others that already wait there. A register
/// that looks uniform has another value for the lanes of the detour.
fn detours() -> Case {
    let code = "mov.u32 %x, 5;\nand.b32 %y, %t, 31;\nsetp.lt.u32 %p, %y, 11;\n@%p bra DETOUR;\n\
        WAIT:\nbarrier.sync 0;\nst.global.u32 [%a], %x;\nret;\n\
        DETOUR:\nadd.u32 %x, %x, %n;\nbra WAIT;\n";
    case("a detour to a barrier", "barrier.sync", code, 96, 7, |thread| if thread & 31 < 11 { 12 } else { 5 })
}

/// Returns a test of a loop with different numbers of iterations for the lanes, inside a loop with a barrier.
fn uneven_loops() -> Case {
    let code = "mov.u32 %i, 0;\nmov.u32 %x, 0;\n\
        OUTER:\nand.b32 %y, %t, 7;\nadd.u32 %y, %y, %i;\nINNER:\nsetp.eq.u32 %p, %y, 0;\n@%p bra LEFT;\nadd.u32 %x, %x, 1;\nsub.u32 %y, %y, 1;\nbra INNER;\n\
        LEFT:\nst.shared.u32 [%m], %x;\nbar.sync 0;\nxor.b32 %o, %t, 33;\nshl.b32 %o, %o, 2;\nmov.u32 %y, words;\nadd.u32 %y, %y, %o;\nld.shared.u32 %x, [%y];\nbar.sync 0;\n\
        add.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, %n;\n@%q bra OUTER;\nst.global.u32 [%a], %x;\n";
    case("barriers between loops of different lengths", "bar.sync", code, 128, 5, |thread| {
        let mut words: Vec<u32> = vec![0; 128];
        for round in 0..5 {
            for (thread, word) in words.iter_mut().enumerate() {
                *word += (thread as u32 & 7) + round;
            }
            words = (0..128).map(|thread| words[thread ^ 0x21]).collect();
        }
        words[thread as usize]
    })
}

/// Returns a test of two pairs of warps that pass a barrier each, a different number of times.
fn groups() -> Case {
    let code = "shr.u32 %y, %t, 6;\nadd.u32 %y, %y, 1;\nmul.lo.u32 %n, %y, 3;\nmov.u32 %i, 0;\nmov.u32 %x, %t;\n\
        LOOP:\nst.shared.u32 [%m], %x;\nbar.sync %y, 64;\nxor.b32 %o, %t, 32;\nshl.b32 %o, %o, 2;\nmov.u32 %w, words;\nadd.u32 %o, %w, %o;\nld.shared.u32 %x, [%o];\nadd.u32 %x, %x, 100;\nbar.sync %y, 64;\n\
        add.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, %n;\n@%q bra LOOP;\nst.global.u32 [%a], %x;\n";
    case("barriers of some of the warps", "bar.sync", code, 192, 0, |thread| {
        let rounds = 3 * (thread / 64 + 1);
        (if rounds % 2 == 0 { thread } else { thread ^ 32 }) + 100 * rounds
    })
}

/// Returns tests of `bar.arrive`, by which some warps announce that their words are stored and continue,
/// while others wait for them.
fn producers() -> Vec<Case> {
    let case = |(arrive, sync): (&str, &str)| {
        let code = format!(
            "setp.ge.u32 %p, %t, 64;\n@%p bra CONSUME;\nmul.lo.u32 %x, %t, 11;\nst.shared.u32 [%m], %x;\n{arrive} 2, 128;\nst.global.u32 [%a], 1;\nbra DONE;\n\
             CONSUME:\n{sync} 2, 128;\nsub.u32 %o, %m, 256;\nld.shared.u32 %x, [%o];\nst.global.u32 [%a], %x;\nDONE:\n"
        );
        case(arrive, &format!("{arrive} {sync}"), &code, 128, 0, |thread| {
            if thread < 64 { 1 } else { (thread - 64) * 11 }
        })
    };
    [("bar.arrive", "bar.sync"), ("barrier.arrive", "barrier.sync")].into_iter().map(case).collect()
}

/// Adds tests of reductions over all threads of the block, in some rounds with one thread that disagrees.
fn reductions(cases: &mut Vec<Case>) {
    for head in ["bar.red", "barrier.red"] {
        for (operation, negated) in [("and", ""), ("or", ""), ("and", "!"), ("or", "!")] {
            let spelling = format!("{head}.{operation}.pred");
            // Round 0: nobody, 1: all, 2: thread 40 alone, 3: all but thread 70.
            let code = format!(
                "mov.u32 %x, 0;\nmov.u32 %i, 0;\nLOOP:\nsetp.eq.u32 %p, %i, 1;\nsetp.eq.u32 %q, %i, 2;\nsetp.eq.and.u32 %q, %t, 40, %q;\nor.pred %p, %p, %q;\n\
                 setp.eq.u32 %q, %i, 3;\nsetp.ne.and.u32 %q, %t, 70, %q;\nor.pred %p, %p, %q;\n\
                 {spelling} %r, 0, {negated}%p;\nselp.u32 %y, 1, 0, %r;\nshl.b32 %y, %y, %i;\nor.b32 %x, %x, %y;\n\
                 add.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, 4;\n@%q bra LOOP;\nst.global.u32 [%a], %x;\n"
            );
            let wanted = match (operation, negated) {
                ("and", "") => 0b0010,
                ("or", "") => 0b1110,
                ("and", _) => 0b0001,
                _ => 0b1101,
            };
            let name = format!("{spelling} {negated}p");
            cases.push(case(&name, &spelling, &code, 96, 0, move |_| wanted));
        }
        let spelling = format!("{head}.popc.u32");
        let code = format!(
            "rem.u32 %y, %t, 5;\nsetp.eq.u32 %p, %y, 2;\n{spelling} %x, 1, %p;\n{spelling} %y, 1, 96, !%p;\nshl.b32 %y, %y, 8;\nor.b32 %x, %x, %y;\nst.global.u32 [%a], %x;\n"
        );
        cases.push(case(&spelling, &spelling, &code, 96, 0, |_| 0x13 | 0x4d << 8));
    }
}

/// Adds tests that warps and lanes which have returned do not keep others from passing a barrier.
fn leavers(cases: &mut Vec<Case>) {
    let code = "setp.ge.u32 %p, %t, %n;\n@%p bra OUT;\nst.shared.u32 [%m], %t;\nbar.sync 0;\nxor.b32 %o, %t, 32;\nshl.b32 %o, %o, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nld.shared.u32 %x, [%m];\nadd.u32 %x, %x, 7;\nst.global.u32 [%a], %x;\nOUT:\n";
    cases.push(case("a barrier after warps have left", "bar.sync", code, 128, 64, |thread| {
        if thread < 64 { (thread ^ 32) + 7 } else { 0 }
    }));
    let code = "and.b32 %x, %t, 31;\nsetp.lt.u32 %p, %x, %n;\n@%p bra OUT;\nst.shared.u32 [%m], %t;\nbarrier.sync 0;\nxor.b32 %o, %t, 32;\nshl.b32 %o, %o, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nld.shared.u32 %x, [%m];\nadd.u32 %x, %x, 7;\nst.global.u32 [%a], %x;\nOUT:\n";
    cases.push(case("a barrier after lanes have left", "barrier.sync", code, 64, 5, |thread| {
        if thread % 32 < 5 { 0 } else { (thread ^ 32) + 7 }
    }));
}

/// Returns a test of lanes that wait at the same barrier at two instructions.
fn two_places() -> Case {
    let code = "st.shared.u32 [%m], %t;\nand.b32 %x, %t, 1;\nsetp.eq.u32 %p, %x, 0;\n@%p bra EVEN;\nadd.u32 %y, %t, 500;\nbarrier.sync 0;\nbra JOIN;\n\
        EVEN:\nadd.u32 %y, %t, 700;\nbarrier.sync 0;\nJOIN:\nxor.b32 %o, %t, 32;\nshl.b32 %o, %o, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nld.shared.u32 %x, [%m];\nmad.lo.u32 %x, %x, 1000, %y;\nst.global.u32 [%a], %x;\n";
    case("a barrier in both branches", "barrier.sync", code, 64, 0, |thread| {
        (thread ^ 32) * 1000 + thread + if thread % 2 == 0 { 700 } else { 500 }
    })
}

/// Returns a test of a barrier under a condition that is the same for the whole block.
fn conditional() -> Case {
    let code = "st.shared.u32 [%m], %t;\nsetp.eq.u32 %p, %n, 0;\n@%p bra SKIP;\nbar.sync 0;\nSKIP:\nxor.b32 %o, %t, 96;\nshl.b32 %o, %o, 2;\nmov.u32 %m, words;\nadd.u32 %m, %m, %o;\nld.shared.u32 %x, [%m];\nst.global.u32 [%a], %x;\n";
    case("a barrier under a uniform condition", "bar.sync", code, 128, 1, |thread| thread ^ 0x60)
}

/// Returns tests of fences: one warp writes a word and a flag that announces it, and another one polls the
/// flag.
fn fences() -> Vec<Case> {
    ["membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.gpu", "fence.sc.cta"]
        .into_iter()
        .map(|spelling| {
            let text = format!(
                ".visible .entry k(.param .u64 mem)\n{{\n.reg .b64 %mem;\n.reg .b32 %t, %x, %y;\n.reg .pred %p;\n\
                 ld.param.u64 %mem, [mem];\nmov.u32 %t, %tid.x;\nsetp.lt.u32 %p, %t, 32;\n@%p bra READ;\n\
                 st.global.u32 [%mem+4], 1234;\n{spelling};\nst.volatile.global.u32 [%mem], 1;\nbra OUT;\n\
                 READ:\nld.volatile.global.u32 %x, [%mem];\nsetp.eq.u32 %p, %x, 0;\n@%p bra READ;\n{spelling};\nld.global.u32 %y, [%mem+4];\nst.global.u32 [%mem+8], %y;\nOUT:\nret;\n}}\n"
            );
            let covers = format!("{spelling} st.volatile.global.u32 ld.volatile.global.u32");
            Case::new(spelling, &covers, &text, |device| {
                let memory = device.allocate(12);
                device.launch("k", Shape::line(1, 64), &Params::new().u64(memory))?;
                same("words", &device.read_words(memory, 3), &[1, 1234, 1234])
            })
        })
        .collect()
}

/// Returns a test of a cooperative grid, all of whose blocks wait for each other.
fn grid_barrier() -> Case {
    let text = ".visible .entry k(.param .u64 mem, .param .u64 out)\n{\n.reg .b64 %mem, %out, %a;\n.reg .b32 %t, %b, %n, %x, %i;\n.reg .pred %p, %q;\n\
        ld.param.u64 %mem, [mem];\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %b, %ctaid.x;\nmov.u32 %n, %nctaid.x;\nmov.u32 %i, 1;\n\
        LOOP:\nbar.sync 0;\nsetp.ne.u32 %p, %t, 0;\n@%p bra WAIT;\nmembar.gl;\natom.add.release.gpu.u32 %x, [%mem], 1;\nmul.lo.u32 %b, %n, %i;\n\
        SPIN:\nld.acquire.gpu.u32 %x, [%mem];\nsetp.lt.u32 %q, %x, %b;\n@%q bra SPIN;\n\
        WAIT:\nbar.sync 0;\nadd.u32 %i, %i, 1;\nsetp.le.u32 %q, %i, 4;\n@%q bra LOOP;\n\
        ld.acquire.gpu.u32 %x, [%mem];\nmov.u32 %b, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmad.lo.u32 %b, %b, %n, %t;\nmul.wide.u32 %a, %b, 4;\nadd.s64 %a, %a, %out;\nst.global.u32 [%a], %x;\nret;\n}\n";
    let covers = "atom.add.release.gpu.u32 ld.acquire.gpu.u32";
    Case::new("a barrier of a cooperative grid", covers, text, |device| {
        let memory = device.allocate(4);
        let results = device.allocate(4 * 24 * 64);
        let shape = Shape { cooperative: true, ..Shape::line(24, 64) };
        device.launch("k", shape, &Params::new().u64(memory).u64(results))?;
        same("arrivals", &device.read_words(results, 24 * 64), &[96; 24 * 64])
    })
}

/// Returns a test of `nanosleep`, by which a polling thread lets other threads run.
fn nanosleep() -> Case {
    let text = ".visible .entry k(.param .u64 mem)\n{\n.reg .b64 %mem;\n.reg .b32 %t, %x, %ns;\n.reg .pred %p;\n\
        ld.param.u64 %mem, [mem];\nmov.u32 %t, %tid.x;\nsetp.ge.u32 %p, %t, 32;\n@%p bra WRITE;\nmov.u32 %ns, 8;\n\
        READ:\nnanosleep.u32 %ns;\nnanosleep.u32 20;\nld.volatile.global.u32 %x, [%mem];\nsetp.eq.u32 %p, %x, 0;\n@%p bra READ;\nst.global.u32 [%mem+4], %x;\nret;\n\
        WRITE:\nst.volatile.global.u32 [%mem], 55;\nret;\n}\n";
    Case::new("nanosleep.u32", "nanosleep.u32", text, |device| {
        let memory = device.allocate(8);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(memory))?;
        same("words", &device.read_words(memory, 2), &[55, 55])
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    reversals(cases);
    cases.extend([
        scan(),
        detours(),
        uneven_loops(),
        groups(),
        two_places(),
        conditional(),
        grid_barrier(),
        nanosleep(),
    ]);
    cases.extend(producers());
    reductions(cases);
    leavers(cases);
    cases.extend(fences());
}
