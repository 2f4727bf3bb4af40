//! Tests of lanes that wait in loops for what other lanes of their warp do (CUDA C++ Programming Guide,
//! "Independent Thread Scheduling").
//!
//! Each kernel ends only if every lane makes progress: the loops are before the code for which they wait.

use crate::case::Case;
use crate::device::{Params, Shape, same};

/// Number of times that each thread takes the lock.
const ROUNDS: u32 = 2;

/// Returns a test in which all threads increment a counter under a lock. `acquire` tries to take it, and
/// stores whether another thread has it to `%o`.
fn lock(name: &str, acquire: &str, release: &str, sleeps: bool, shared: bool, shape: Shape) -> Case {
    let prepare = if shared {
        "mov.u32 %v, word;\nst.shared.u32 [%v], 0;\nbar.sync 0;\nmov.u64 %lock, word;\ncvta.shared.u64 %lock, %lock;\n"
    } else {
        "add.u64 %lock, %out, 4;\n"
    };
    let again =
        if sleeps { "@!%p bra TAKEN;\nnanosleep.u32 20;\nbra TRY;\nTAKEN:\n" } else { "@%p bra TRY;\n" };
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %lock;\n.reg .b32 %o, %v, %i;\n.reg .pred %p;\n\
         .shared .align 4 .b32 word;\nld.param.u64 %out, [out];\n{prepare}mov.u32 %i, 0;\n\
         TRY:\n{acquire}\nsetp.ne.u32 %p, %o, 0;\n{again}\
         ld.volatile.global.u32 %v, [%out];\nadd.u32 %v, %v, 1;\nst.volatile.global.u32 [%out], %v;\nmembar.gl;\n\
         {release}\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, {ROUNDS};\n@%p bra TRY;\nret;\n}}\n"
    );
    Case::new(name, "", &text, move |device| {
        let out = device.upload_words(&[0, 0]);
        // A thread that the host does not run for a while may hold the lock: the others spend their budget.
        let shape = Shape { budget: 1 << 34, ..shape };
        device.launch("k", shape, &Params::new().u64(out))?;
        let threads: u32 = shape.grid.iter().chain(&shape.block).product();
        same("counter and lock", &device.read_words(out, 2), &[ROUNDS * threads, 0])
    })
}

/// Returns a test in which all lanes but the last one wait until it has set a flag.
fn flag(load: &str, shared: bool) -> Case {
    let (prepare, at) = if shared {
        ("mov.u32 %s, word;\nst.volatile.shared.u32 [%s], 0;\nbar.sync 0;\n", "%s")
    } else {
        ("", "%out")
    };
    let space = if shared { "shared" } else { "global" };
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %s, %v;\n.reg .pred %p;\n\
         .shared .align 4 .b32 word;\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\n{prepare}\
         setp.eq.u32 %p, %t, 31;\n@%p bra SET;\nWAIT:\n{load} %v, [{at}]{};\nsetp.eq.u32 %p, %v, 0;\n@%p bra WAIT;\nbra DONE;\n\
         SET:\nst.volatile.{space}.u32 [{at}], 7;\nmov.u32 %v, 70;\nDONE:\n\
         mul.wide.u32 %a, %t, 4;\nadd.u64 %a, %a, %out;\nst.global.u32 [%a+4], %v;\nret;\n}}\n",
        if load.starts_with("atom") { ", 0" } else { "" }
    );
    Case::new(&format!("a flag by {} of {space}", load.replace('\n', " ")), load, &text, |device| {
        let out = device.upload_words(&[0; 33]);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out))?;
        let wanted: Vec<u32> = (0..32).map(|lane| if lane == 31 { 70 } else { 7 }).collect();
        same("values", &device.read_words(out + 4, 32), &wanted)
    })
}

/// Returns a test in which threads wait for each other one by one, the last one first, in several rounds
/// whose number all lanes share. In between, lanes exchange values, for which they have to meet again.
fn chain(threads: u32, meeting: &'static str) -> Case {
    const TURNS: u32 = 3;
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out, %a;\n.reg .b32 %t, %n, %i, %want, %v, %x, %sum;\n.reg .pred %p;\n\
         ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %n, %ntid.x;\nmov.u32 %i, 0;\nmov.u32 %sum, 0;\n\
         ROUND:\nadd.u32 %want, %i, 1;\nmul.lo.u32 %want, %want, %n;\nsub.u32 %want, %want, %t;\nsub.u32 %want, %want, 1;\n\
         WAIT:\nld.volatile.global.u32 %v, [%out];\nsetp.ne.u32 %p, %v, %want;\n@%p bra WAIT;\n\
         mad.lo.u32 %x, %v, 3, %i;\nadd.u32 %v, %v, 1;\nst.volatile.global.u32 [%out], %v;\n\
         {meeting}\nadd.u32 %sum, %sum, %x;\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, {TURNS};\n@%p bra ROUND;\n\
         mul.wide.u32 %a, %t, 4;\nadd.u64 %a, %a, %out;\nst.global.u32 [%a+4], %sum;\nret;\n}}\n"
    );
    let exchanges = meeting.contains("shfl");
    Case::new(&format!("a chain of {threads} threads with {meeting}"), "", &text, move |device| {
        let out = device.upload_words(&vec![0; threads as usize + 1]);
        device.launch("k", Shape::line(1, threads), &Params::new().u64(out))?;
        let value = |t: u32, i: u32| 3 * ((i + 1) * threads - t - 1) + i;
        let of = |t: u32, i: u32| value(if exchanges { t ^ 1 } else { t }, i);
        let wanted: Vec<u32> = (0..threads).map(|t| (0..TURNS).map(|i| of(t, i)).sum()).collect();
        same("sums", &device.read_words(out + 4, threads.into()), &wanted)
    })
}

/// Returns a test in which a lane waits at an `mbarrier` for arrivals of the other lanes.
fn arrivals() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %d;\n.reg .b32 %t, %v;\n.reg .pred %p;\n\
        .shared .align 8 .b64 object;\n.shared .align 4 .b32 sum;\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\n\
        setp.ne.u32 %p, %t, 0;\n@%p bra READY;\nmbarrier.init.shared.b64 [object], 32;\nst.shared.u32 [sum], 0;\nREADY:\nbar.warp.sync -1;\n\
        @%p bra OTHERS;\nmbarrier.arrive.shared.b64 %d, [object];\nWAIT:\nmbarrier.test_wait.shared.b64 %p, [object], %d;\n@!%p bra WAIT;\n\
        ld.shared.u32 %v, [sum];\nst.global.u32 [%out], %v;\nret;\n\
        OTHERS:\nred.shared.add.u32 [sum], %t;\nmbarrier.arrive.shared.b64 _, [object];\nret;\n}\n";
    Case::new("arrivals at an mbarrier", "", text, |device| {
        let out = device.allocate(4);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out))?;
        same("sum", &device.read_words(out, 1), &[31 * 16])
    })
}

/// Returns a test of a ticket lock: each thread waits for its own number.
fn tickets(sleeps: bool) -> Case {
    let pause = if sleeps { "nanosleep.u32 20;\n" } else { "" };
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out;\n.reg .b32 %mine, %v;\n.reg .pred %p;\n\
         ld.param.u64 %out, [out];\natom.global.add.u32 %mine, [%out], 1;\n\
         WAIT:\n{pause}ld.volatile.global.u32 %v, [%out+4];\nsetp.ne.u32 %p, %v, %mine;\n@%p bra WAIT;\n\
         ld.volatile.global.u32 %v, [%out+8];\nmad.lo.u32 %v, %v, 3, %mine;\nst.volatile.global.u32 [%out+8], %v;\n\
         membar.gl;\nadd.u32 %mine, %mine, 1;\nst.volatile.global.u32 [%out+4], %mine;\nret;\n}}\n"
    );
    let name = if sleeps { "a ticket lock with nanosleep" } else { "a ticket lock" };
    Case::new(name, "", &text, |device| {
        let out = device.upload_words(&[0; 3]);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(out))?;
        let value = (0..64).fold(0u32, |value, mine| value.wrapping_mul(3).wrapping_add(mine));
        same("next, serving, value", &device.read_words(out, 3), &[64, 64, value])
    })
}

/// Returns a test in which a lane hands words to another one of its warp, through one word and a flag.
fn producer(space: &str) -> Case {
    let prepare = if space == "shared" {
        "mov.u32 %a, words;\nst.volatile.shared.u32 [%a], 0;\nbar.warp.sync -1;\n"
    } else {
        ""
    };
    let at = if space == "shared" { "%a" } else { "%out" };
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %out;\n.reg .b32 %t, %a, %i, %v, %sum;\n.reg .pred %p;\n\
         .shared .align 8 .b8 words[8];\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmov.u32 %i, 0;\nmov.u32 %sum, 0;\n{prepare}\
         setp.eq.u32 %p, %t, 7;\n@%p bra PRODUCE;\nsetp.ne.u32 %p, %t, 3;\n@%p bra DONE;\n\
         CONSUME:\nld.volatile.{space}.u32 %v, [{at}];\nsetp.eq.u32 %p, %v, 0;\n@%p bra CONSUME;\n\
         ld.volatile.{space}.u32 %v, [{at}+4];\nmad.lo.u32 %sum, %sum, 5, %v;\nst.volatile.{space}.u32 [{at}], 0;\n\
         add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 9;\n@%p bra CONSUME;\nst.global.u32 [%out+8], %sum;\nbra DONE;\n\
         PRODUCE:\nld.volatile.{space}.u32 %v, [{at}];\nsetp.ne.u32 %p, %v, 0;\n@%p bra PRODUCE;\n\
         mul.lo.u32 %v, %i, %i;\nst.volatile.{space}.u32 [{at}+4], %v;\nst.volatile.{space}.u32 [{at}], 1;\n\
         add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 9;\n@%p bra PRODUCE;\nDONE:\nret;\n}}\n"
    );
    Case::new(&format!("a producer and a consumer by {space} memory"), "", &text, |device| {
        let out = device.upload_words(&[0; 3]);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out))?;
        let sum = (0..9).fold(0u32, |sum, i| sum.wrapping_mul(5).wrapping_add(i * i));
        same("sum", &device.read_words(out + 8, 1), &[sum])
    })
}

/// Returns a test in which lanes wait for one that returns, while another one waits for them.
fn returned() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %out;\n.reg .b32 %t, %v;\n.reg .pred %p;\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nsetp.ge.u32 %p, %t, 2;\n@%p bra OTHERS;\n\
        bar.warp.sync 7;\nst.volatile.global.u32 [%out], 1;\nret;\n\
        OTHERS:\nsetp.eq.u32 %p, %t, 2;\n@%p bra LAST;\n\
        WAIT:\nld.volatile.global.u32 %v, [%out];\nsetp.eq.u32 %p, %v, 0;\n@%p bra WAIT;\nst.global.u32 [%out+4], 5;\nLAST:\nret;\n}\n";
    Case::new("a member that returns", "", text, |device| {
        let out = device.upload_words(&[0; 2]);
        device.launch("k", Shape::line(1, 4), &Params::new().u64(out))?;
        same("flag and result", &device.read_words(out, 2), &[1, 5])
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    for sleeps in [false, true] {
        cases.push(tickets(sleeps));
    }
    for space in ["global", "shared"] {
        cases.push(producer(space));
    }
    cases.push(returned());
    let exchange = "atom.exch.b32 %o, [%lock], 1;";
    let swap = "atom.acquire.gpu.cas.b32 %o, [%lock], 0, 1;";
    let warp = Shape::line(1, 32);
    for (name, sleeps) in [("", false), (" with nanosleep", true)] {
        let release = "atom.exch.b32 %o, [%lock], 0;";
        cases.push(lock(&format!("a lock{name}"), exchange, release, sleeps, false, warp));
        cases.push(lock(
            &format!("a lock of a block{name}"),
            exchange,
            release,
            sleeps,
            true,
            Shape::line(1, 64),
        ));
        let release = "st.release.gpu.u32 [%lock], 0;";
        cases.push(lock(&format!("a lock by swaps{name}"), swap, release, sleeps, false, Shape::line(1, 40)));
        cases.push(lock(
            &format!("a lock of a grid{name}"),
            swap,
            release,
            sleeps,
            false,
            Shape::line(3, 33),
        ));
        let shape = Shape { cooperative: true, ..Shape::line(4, 48) };
        cases.push(lock(&format!("a lock of a cooperative grid{name}"), swap, release, sleeps, false, shape));
    }
    for load in [
        "ld.volatile.global.u32",
        "ld.relaxed.gpu.global.u32",
        "ld.acquire.sys.global.u32",
        "ld.global.cv.u32",
        "ld.global.cg.u32",
        "membar.gl;\nld.global.u32",
        "atom.or.b32",
    ] {
        cases.push(flag(load, false));
    }
    cases.push(flag("ld.volatile.shared.u32", true));
    for threads in [32, 64] {
        for meeting in ["", "shfl.sync.bfly.b32 %x, %x, 1, 31, -1;", "bar.warp.sync -1;", "bar.sync 0;"] {
            cases.push(chain(threads, meeting));
        }
    }
    cases.push(arrivals());
}
