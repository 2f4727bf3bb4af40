//! Tests that no launch runs long without polling its control, whatever its code. They use the budget of
//! instructions, which is checked together with the session's end and the deadline.

use std::fmt::Write;

use vgpu_ptx::Interrupt;
use vgpu_simt::{Control, Fault};

use crate::case::Case;
use crate::device::{Params, Shape, same};

/// Number of blocks by axis of the largest grid that CUDA permits.
const LARGEST: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];

/// Returns a kernel that contains `code`, and whose threads each store `%y` at the end.
fn kernel(code: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 out, .param .u32 n)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %n, %x, %y, %i, %v<60001>;\n.reg .pred %p;\n\
         ld.param.u64 %out, [out];\nld.param.u32 %n, [n];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %a, %a, %out;\nmov.u32 %y, %t;\n\
         {code}\nst.global.u32 [%a], %y;\nret;\n}}\n"
    )
}

/// Returns a case whose launch must exceed its budget.
fn runs_out(name: &str, code: &str, shape: Shape, budget: u64) -> Case {
    Case::new(name, "", &kernel(code), move |device| {
        let params = Params::new().u64(device.allocate(4096)).u32(7);
        match device.try_launch("k", Shape { budget, ..shape }, &params)? {
            Err(Fault::Timeout { .. }) => Ok(()),
            other => Err(format!("{other:?} with a budget of {budget}")),
        }
    })
}

/// Adds tests of an empty kernel in the largest grid.
fn blocks(cases: &mut Vec<Case>) {
    let empty = ".visible .entry k()\n{\nret;\n}\n";
    cases.push(Case::new("between blocks", "", empty, |device| {
        let shape = Shape { budget: 100_000, ..Shape::new(LARGEST, [1, 1, 1]) };
        let budget = device.try_launch("k", shape, &Params::new())?;
        let stopped = Interrupt::default();
        stopped.stop();
        let stopped = device.launch_under(&Control::with_interrupt(stopped), "k", shape, &Params::new())?;
        let late = Interrupt::default().limited(Some(std::time::Duration::ZERO));
        let late = device.launch_under(&Control::with_interrupt(late), "k", shape, &Params::new())?;
        match (budget, stopped, late) {
            (Err(Fault::Timeout { .. }), Err(Fault::Stopped), Err(Fault::Timeout { .. })) => Ok(()),
            others => Err(format!("{others:?}")),
        }
    }));
    cases.push(Case::new("between blocks of a cooperative grid", "", empty, |device| {
        let shape = Shape { cooperative: true, ..Shape::line(100, 32) };
        let late = Interrupt::default().limited(Some(std::time::Duration::ZERO));
        match device.launch_under(&Control::with_interrupt(late), "k", shape, &Params::new())? {
            Err(Fault::Timeout { .. }) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }));
}

/// Adds tests of straight lines of code in one warp.
fn lines(cases: &mut Vec<Case>) {
    let shape = Shape::line(1, 32);
    cases.push(runs_out("a line of nanosleeps", &"nanosleep.u32 1000;\n".repeat(1000), shape, 100_000));
    cases.push(runs_out(
        "a long straight line",
        &"mad.lo.u32 %y, %y, 3, %t;\n".repeat(60_000),
        shape,
        40_000,
    ));
    // Half of the text is skipped by branches, and so are the polls in it.
    let mut code = String::new();
    for block in 0..60 {
        let _ = write!(
            code,
            "{}setp.ne.u32 %p, %n, {block};\n@%p bra L{block};\n{}L{block}:\n",
            "mad.lo.u32 %y, %y, 3, %t;\n".repeat(900),
            "mad.lo.u32 %y, %y, 5, %t;\n".repeat(1100)
        );
    }
    cases.push(runs_out("a straight line that jumps", &code, shape, 40_000));
    // Blocks of a few instructions each.
    let mut code = String::from("mov.u32 %x, 0;\n");
    for block in 0..4000 {
        let _ = write!(
            code,
            "mad.lo.u32 %y, %y, 3, %t;\nmad.lo.u32 %y, %y, 3, %t;\nmad.lo.u32 %y, %y, 3, %t;\n\
             setp.eq.u32 %p, %y, {block};\n@%p bra L{block};\nadd.u32 %x, %x, 1;\nL{block}:\n"
        );
    }
    cases.push(runs_out("many small blocks", &code, shape, 22_000));
    // Instructions whose results are the same for all blocks run before the first block, in the prologue.
    let mut code = String::from("add.u32 %v0, %n, 1;\n");
    for index in 1..60_000 {
        let _ = writeln!(code, "mad.lo.u32 %v{index}, %v{}, 3, %n;", index - 1);
    }
    code.push_str("add.u32 %y, %y, %v59999;\n");
    cases.push(runs_out("what runs once a launch", &code, shape, 40_000));
}

/// Adds tests of loops that are longer than the fuel of a warp, in blocks whose warps take turns.
fn turns(cases: &mut Vec<Case>) {
    for (name, cooperative, body) in [
        ("a loop longer than a turn", false, 25_000),
        ("a loop longer than a turn of a cooperative grid", true, 2500),
    ] {
        let code = format!(
            "mov.u32 %i, 0;\nLOOP:\n{}add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 3;\n@%p bra LOOP;\n",
            "add.u32 %y, %y, 2;\n".repeat(body)
        );
        cases.push(Case::new(name, "", &kernel(&code), move |device| {
            let results = device.allocate(256);
            let shape = Shape { cooperative, budget: 10_000_000, ..Shape::line(2, 64) };
            device.launch("k", shape, &Params::new().u64(results).u32(0))?;
            let wanted: Vec<u32> = (0..64).map(|t| t + 6 * body as u32).collect();
            same("sums", &device.read_words(results, 64), &wanted)
        }));
    }
}

pub fn cases(cases: &mut Vec<Case>) {
    blocks(cases);
    lines(cases);
    turns(cases);
}
