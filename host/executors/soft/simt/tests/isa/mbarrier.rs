//! Tests of `mbarrier` objects (PTX ISA, "mbarrier"): the state of one object through its phases, and threads
//! of a block that wait for each other.

use crate::case::Case;
use crate::device::{Params, Shape, same};

/// Returns a kernel of one thread that executes the steps on an object at `%s`. `test` adds a line that
/// stores whether `%p` holds, and `count` one that stores the pending count of the state `%d`.
fn steps(lines: &[&str]) -> (String, u64) {
    let mut body = String::new();
    let mut results = 0;
    for line in lines {
        body += line;
        body += "\n";
        let (value, before) = match line.split_once(' ').map(|(_, operands)| operands.split(',').next()) {
            Some(Some("%p")) => ("%r", "selp.u32 %r, 1, 0, %p;\n"),
            Some(Some("%c")) => ("%c", ""),
            _ => continue,
        };
        body += &format!("{before}st.global.u32 [%out+{}], {value};\n", 4 * results);
        results += 1;
    }
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %g, %d<5>;\n.reg .b32 %s, %r, %c;\n.reg .pred %p;\n\
         .shared .align 8 .b64 object;\nld.param.u64 %out, [out];\nmov.u32 %s, object;\nmov.u64 %g, object;\n\
         cvta.shared.u64 %g, %g;\n{body}ret;\n}}\n"
    );
    (text, results)
}

fn sequence(name: &str, lines: &[&str], expected: &[u32]) -> Case {
    let (text, results) = steps(lines);
    let words = |line: &&str| line.split(' ').next().unwrap_or_default().to_owned();
    let covers: Vec<String> = lines.iter().map(words).filter(|word| word.contains("mbarrier")).collect();
    let expected = expected.to_vec();
    assert_eq!(results, expected.len() as u64, "{name}");
    Case::new(name, &covers.join(" "), &text, move |device| {
        let out = device.allocate(4 * results);
        device.launch("k", Shape::line(1, 1), &Params::new().u64(out))?;
        same("results", &device.read_words(out, results), &expected)
    })
}

/// Returns a test in which the threads of a block pass values on through shared memory, in several phases of
/// one object.
fn exchange(name: &str, arrive: &str, wait: &str, generic: bool) -> Case {
    let at = if generic { "%g" } else { "%s" };
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %g, %token;\n.reg .b32 %s, %t, %n, %v, %a, %b, %phase, %parity;\n\
         .reg .pred %p, %done;\n.shared .align 8 .b64 object;\n.shared .align 4 .b8 values[1024];\n\
         ld.param.u64 %out, [out];\nmov.u32 %s, object;\nmov.u64 %g, object;\ncvta.shared.u64 %g, %g;\n\
         mov.u32 %t, %tid.x;\nmov.u32 %n, %ntid.x;\nsetp.ne.u32 %p, %t, 0;\n@%p bra READY;\n\
         mbarrier.init.shared::cta.b64 [%s], %n;\nREADY:\nbar.sync 0;\n\
         shl.b32 %a, %t, 2;\nmov.u32 %b, values;\nadd.u32 %a, %a, %b;\nmov.u32 %v, %t;\nmov.u32 %phase, 0;\n\
         NEXT:\nst.shared.u32 [%a], %v;\nand.b32 %parity, %phase, 1;\n{arrive} %token, [{at}];\n\
         WAIT:\n{wait};\n@!%done bra WAIT;\n\
         add.u32 %b, %t, 1;\nrem.u32 %b, %b, %n;\nshl.b32 %b, %b, 2;\nadd.u32 %b, %b, values;\nld.shared.u32 %b, [%b];\n\
         mad.lo.u32 %v, %v, 3, %b;\n\
         add.u32 %phase, %phase, 1;\nand.b32 %parity, %phase, 1;\n{arrive} %token, [{at}];\nAGAIN:\n{wait};\n@!%done bra AGAIN;\n\
         add.u32 %phase, %phase, 1;\nsetp.lt.u32 %p, %phase, 20;\n@%p bra NEXT;\n\
         cvt.u64.u32 %g, %a;\nmov.u32 %b, values;\nsub.u32 %a, %a, %b;\ncvt.u64.u32 %g, %a;\nadd.u64 %out, %out, %g;\n\
         st.global.u32 [%out], %v;\nret;\n}}\n"
    )
    .replace("AT", at);
    let covers =
        format!("mbarrier.init.shared::cta.b64 {arrive} {}", wait.split(' ').next().unwrap_or_default());
    Case::new(name, &covers, &text, |device| {
        const THREADS: u32 = 80;
        let out = device.allocate(4 * u64::from(THREADS));
        device.launch("k", Shape::line(1, THREADS), &Params::new().u64(out))?;
        let mut values: Vec<u32> = (0..THREADS).collect();
        for _ in 0..10 {
            let next = |at: usize| values[(at + 1) % values.len()];
            values = (0..values.len()).map(|at| values[at].wrapping_mul(3).wrapping_add(next(at))).collect();
        }
        same("values", &device.read_words(out, THREADS.into()), &values)
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.push(sequence(
        "phases",
        &[
            "mbarrier.init.shared.b64 [%s], 3;",
            // Phase 0 is incomplete, and the one before it has the other parity.
            "mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;",
            "mbarrier.test_wait.parity.shared.b64 %p, [%s], 1;",
            "mbarrier.arrive.shared.b64 %d0, [%s];",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            "mbarrier.pending_count.b64 %c, %d0;",
            "mbarrier.arrive.shared.b64 %d1, [%s], 2;",
            "mbarrier.pending_count.b64 %c, %d1;",
            // Phase 0 is complete, whichever of its states is asked about.
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            "mbarrier.test_wait.b64 %p, [%g], %d1;",
            "mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;",
            "mbarrier.test_wait.parity.shared.b64 %p, [%s], 1;",
            // Phase 1 expects three arrivals again.
            "mov.u32 %r, 2;",
            "mbarrier.arrive.release.cta.shared::cta.b64 %d2, [%s], %r;",
            "mbarrier.pending_count.b64 %c, %d2;",
            "mbarrier.try_wait.shared.b64 %p, [%s], %d2, 100;",
            "mbarrier.arrive.b64 _, [%g];",
            "mbarrier.try_wait.shared.b64 %p, [%s], %d2;",
            "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p, [%s], 1;",
            "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p, [%s], 0, 20;",
            // Bit 0 is the parity.
            "mov.u32 %r, 3;",
            "mbarrier.test_wait.parity.shared.b64 %p, [%s], %r;",
            "mbarrier.test_wait.parity.shared.b64 %p, [%s], 2;",
            "mbarrier.inval.shared.b64 [%s];",
            "mbarrier.init.b64 [%g], 1;",
            "mbarrier.arrive.b64 %d0, [%g];",
            "mbarrier.pending_count.b64 %c, %d0;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
        ],
        &[0, 1, 0, 3, 2, 1, 1, 1, 0, 3, 0, 1, 1, 0, 1, 0, 1, 1],
    ));
    cases.push(sequence(
        "many phases",
        &["mbarrier.init.shared.b64 [%s], 1;"]
            .into_iter()
            .chain((0..10).flat_map(|_| {
                [
                    "mbarrier.arrive.shared.b64 %d0, [%s];",
                    "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
                    "mbarrier.test_wait.parity.shared.b64 %p, [%s], 0;",
                ]
            }))
            .collect::<Vec<_>>(),
        &[1, 1, 1, 0].repeat(5),
    ));
    cases.push(sequence(
        "dropped arrivals",
        &[
            "mbarrier.init.shared.b64 [%s], 3;",
            "mbarrier.arrive_drop.shared.b64 %d0, [%s];",
            "mbarrier.arrive.noComplete.shared.b64 %d1, [%s], 1;",
            "mbarrier.pending_count.b64 %c, %d1;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            "mbarrier.arrive.shared.b64 %d1, [%s];",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            // Two arrivals are left for each phase, and then one.
            "mbarrier.arrive_drop.release.cta.shared::cta.b64 %d2, [%s];",
            "mbarrier.pending_count.b64 %c, %d2;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d2;",
            "mbarrier.arrive.shared.b64 %d3, [%s];",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d2;",
            "mbarrier.arrive.shared.b64 %d3, [%s];",
            "mbarrier.pending_count.b64 %c, %d3;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d3;",
        ],
        &[2, 0, 1, 2, 0, 1, 1, 1],
    ));
    cases.push(sequence(
        "transactions",
        &[
            "mbarrier.init.shared.b64 [%s], 1;",
            "mbarrier.arrive.expect_tx.shared.b64 %d0, [%s], 16;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            "mbarrier.complete_tx.shared.b64 [%s], 8;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            "mov.u32 %r, 8;",
            "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%s], %r;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            // Transactions that complete before they are expected are counted as well.
            "mbarrier.complete_tx.shared.b64 [%s], 1000000;",
            "mov.u32 %r, 1000000;",
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%s], %r;",
            "mbarrier.expect_tx.shared.b64 [%s], 4;",
            "mbarrier.arrive.shared.b64 %d1, [%s];",
            "mbarrier.pending_count.b64 %c, %d1;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d1;",
            "mbarrier.complete_tx.shared.b64 [%s], 4;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d1;",
            "mbarrier.arrive_drop.expect_tx.shared.b64 %d2, [%s], 4;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d2;",
        ],
        &[0, 0, 1, 1, 0, 1, 0],
    ));
    cases.push(sequence(
        "copies",
        &[
            "mbarrier.init.shared.b64 [%s], 2;",
            "cp.async.mbarrier.arrive.shared.b64 [%s];",
            "mbarrier.arrive.shared.b64 %d0, [%s];",
            "mbarrier.pending_count.b64 %c, %d0;",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
            "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%s];",
            "mbarrier.test_wait.shared.b64 %p, [%s], %d0;",
        ],
        &[2, 0, 1],
    ));
    for (name, arrive, wait, generic) in [
        (
            "test by state",
            "mbarrier.arrive.shared.b64",
            "mbarrier.test_wait.shared.b64 %done, [AT], %token",
            false,
        ),
        ("try by state", "mbarrier.arrive.b64", "mbarrier.try_wait.b64 %done, [AT], %token", true),
        (
            "test by parity",
            "mbarrier.arrive.shared::cta.b64",
            "mbarrier.test_wait.parity.shared::cta.b64 %done, [AT], %parity",
            false,
        ),
        (
            "try by parity",
            "mbarrier.arrive.release.cta.shared::cta.b64",
            "mbarrier.try_wait.parity.shared::cta.b64 %done, [AT], %parity, 1000",
            false,
        ),
    ] {
        cases.push(exchange(name, arrive, wait, generic));
    }
}
