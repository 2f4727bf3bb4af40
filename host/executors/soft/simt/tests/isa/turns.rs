//! Tests of the turns of a warp: when lanes part and come together again, and what turns cost.
//!
//! No program may depend on most of this. The mask of `activemask` tells which lanes run together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_simt::{Control, Ledger};

use crate::case::Case;
use crate::device::{Device, Params, Shape, same};

const REGISTERS: &str = ".reg .b64 %out, %a, %d;\n.reg .b32 %t, %v, %i, %m, %n, %end;\n.reg .pred %p, %q;\nld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\n";

/// Stores `%m` to the thread's word from `[%out+4]` on.
const STORE: &str = "mul.wide.u32 %a, %t, 4;\nadd.u64 %a, %a, %out;\nst.global.u32 [%a+4], %m;\n";

/// Returns a test of the lanes that run together after `code`.
fn together(name: &str, code: &str, wanted: impl Fn(usize) -> u32 + Send + Sync + 'static) -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n{REGISTERS}{code}activemask.b32 %m;\n{STORE}ret;\n}}\n"
    );
    Case::new(name, "activemask.b32", &text, move |device| {
        let out = device.upload_words(&[0; 33]);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out))?;
        same("masks", &device.read_words(out + 4, 32), &(0..32).map(&wanted).collect::<Vec<u32>>())
    })
}

/// Lets all lanes wait until the last one has set a flag.
const WAIT: &str = "setp.eq.u32 %p, %t, 31;\n@%p bra SET;\nWAIT:\nld.volatile.global.u32 %v, [%out];\nsetp.eq.u32 %p, %v, 0;\n\
    @%p bra WAIT;\nbra GO;\nSET:\nst.volatile.global.u32 [%out], 1;\nGO:\n";

/// Lets each lane go through a loop whose counter it has alone.
const LOOP: &str = "mov.u32 %i, %t;\nadd.u32 %end, %t, 2000;\nAGAIN:\nld.volatile.global.u32 %v, [%out];\nadd.u32 %i, %i, 1;\n\
    setp.lt.u32 %p, %i, %end;\n@%p bra AGAIN;\n";

/// Returns a test of a block whose first warp does not wait, and goes on for its whole fuel. The first
/// iteration of each warp polls, so that the second warp gets further only when the first one is done.
fn alone() -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n{REGISTERS}setp.ge.u32 %p, %t, 32;\n@%p bra SECOND;\nmov.u32 %i, 0;\n\
         NEXT:\nld.volatile.global.u32 %v, [%out];\nadd.u32 %i, %i, 1;\nst.volatile.global.u32 [%out], %i;\nsetp.lt.u32 %p, %i, 500;\n@%p bra NEXT;\nret;\n\
         SECOND:\nmov.u32 %i, 0;\nMORE:\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 3;\n@%p bra MORE;\n\
         ld.volatile.global.u32 %v, [%out];\nst.global.u32 [%out+4], %v;\nret;\n}}\n"
    );
    Case::new("a warp that is not divided", "", &text, |device| {
        let out = device.upload_words(&[0; 2]);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(out))?;
        same("words", &device.read_words(out, 2), &[500, 500])
    })
}

/// Returns a test of a wait for a phase that has completed, which takes no longer than other instructions.
fn completed() -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.shared .align 8 .b64 object;\n{REGISTERS}mbarrier.init.shared.b64 [object], 1;\n\
         mbarrier.arrive.shared.b64 %d, [object];\nmov.u32 %i, 0;\nmov.u32 %m, 0;\nsetp.eq.u32 %q, %t, 0;\n\
         NEXT:\n@%q mbarrier.try_wait.shared.b64 %p, [object], %d;\n@%p add.u32 %m, %m, 1;\nadd.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 1000;\n@%p bra NEXT;\n\
         {STORE}ret;\n}}\n"
    );
    Case::new("a wait for a completed phase", "", &text, |device| {
        let out = device.upload_words(&[0; 2]);
        let shape = Shape { budget: 100_000, ..Shape::line(1, 1) };
        device.launch("k", shape, &Params::new().u64(out))?;
        same("waits", &device.read_words(out + 4, 1), &[1000])
    })
}

/// Permits some charges, refuses some after them, and permits all later ones.
#[derive(Debug)]
struct Refusing {
    first: u32,
    refused: u32,
    charges: AtomicU32,
}

impl Ledger for Refusing {
    fn charge(&self, _: u64) -> bool {
        let number = self.charges.fetch_add(1, Ordering::Relaxed);
        !(self.first..self.first + self.refused).contains(&number)
    }
}

/// Returns a test of lanes that get the memory to part only after some tries.
fn refused() -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out, .param .u32 waits)\n{{\n{REGISTERS}ld.param.u32 %n, [waits];\nsetp.eq.u32 %p, %n, 0;\n@%p bra GO;\n{WAIT}ret;\n}}\n"
    );
    Case::new("splits that the ledger refuses", "", &text, |device: &mut Device| {
        let out = device.upload_words(&[0]);
        let launch = |device: &Device, first: u32, refused: u32, waits: u32| {
            let ledger = Arc::new(Refusing { first, refused, charges: AtomicU32::new(0) });
            let control = Control::with_budget(1 << 28).with_ledger(Arc::<Refusing>::clone(&ledger));
            let params = Params::new().u64(out).u32(waits);
            let done = device.launch_under(&control, "k", Shape::line(1, 32), &params)?;
            done.map_err(|fault| fault.to_string())?;
            Ok::<u32, String>(ledger.charges.load(Ordering::Relaxed))
        };
        let before = launch(device, 0, 0, 0)?;
        let charges = launch(device, before, 3, 1)?;
        same("charges and flag", &[charges, device.read_words(out, 1)[0]], &[before + 4, 1])
    })
}

/// Returns a test of a loop in which lanes wait until `malloc` succeeds.
fn allocation() -> Case {
    let call = |name: &str, result: &str, argument: &str| {
        let (declared, returned) = match result {
            "" => ("", ""),
            _ => (".param .b64 retval0;\n", "(retval0), "),
        };
        let load =
            if result.is_empty() { String::new() } else { format!("ld.param.b64 {result}, [retval0+0];\n") };
        format!(
            "{{\n.param .b64 param0;\nst.param.b64 [param0+0], {argument};\n{declared}call.uni {returned}{name}, (param0);\n{load}}}\n"
        )
    };
    let (take, again, free) =
        (call("malloc", "%d", "40000"), call("malloc", "%a", "40000"), call("free", "", "%d"));
    let text = format!(
        ".extern .func (.param .b64 result) malloc(.param .b64 bytes);\n.extern .func free(.param .b64 address);\n\
         .visible .entry k(.param .u64 out)\n{{\n{REGISTERS}setp.eq.u32 %q, %t, 1;\n@!%q bra TAKEN;\n{take}TAKEN:\n\
         @%q bra FREE;\nWAIT:\n{again}setp.eq.u64 %p, %a, 0;\n@%p bra WAIT;\nst.global.u32 [%out], 1;\nret;\nFREE:\n{free}ret;\n}}\n"
    );
    Case::new("a loop that waits for memory", "", &text, |device| {
        let out = device.upload_words(&[0]);
        device.make_heap(1 << 16);
        device.launch("k", Shape::line(1, 2), &Params::new().u64(out))?;
        same("flag", &device.read_words(out, 1), &[1])
    })
}

/// Returns a test of members of a `bar.warp.sync` that are at different ones.
fn apart() -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n{REGISTERS}mul.wide.u32 %a, %t, 4;\nadd.u64 %a, %a, %out;\nsetp.ge.u32 %p, %t, 16;\nmov.u32 %i, 0;\nmov.u32 %m, 0;\n\
         @%p bra PRODUCE;\nCONSUME:\nbar.warp.sync -1;\nld.volatile.global.u32 %v, [%a+64];\nmad.lo.u32 %m, %m, 7, %v;\nbar.warp.sync -1;\n\
         add.u32 %i, %i, 1;\nsetp.lt.u32 %q, %i, 5;\n@%q bra CONSUME;\nst.global.u32 [%a+128], %m;\nret;\n\
         PRODUCE:\nmad.lo.u32 %v, %i, 100, %t;\nst.volatile.global.u32 [%a], %v;\nbar.warp.sync -1;\nadd.u32 %i, %i, 1;\nbar.warp.sync -1;\n\
         setp.lt.u32 %q, %i, 5;\n@%q bra PRODUCE;\nret;\n}}\n"
    );
    Case::new("a producer and a consumer at different barriers of a warp", "", &text, |device| {
        let out = device.upload_words(&[0; 64]);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(out))?;
        let of =
            |lane: u32| (0..5).fold(0u32, |sum, i| sum.wrapping_mul(7).wrapping_add(100 * i + lane + 16));
        same("sums", &device.read_words(out + 128, 16), &(0..16).map(of).collect::<Vec<u32>>())
    })
}

/// Returns a test of lanes that arrive at barriers of different numbers by one instruction.
fn numbers() -> Case {
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n{REGISTERS}.shared .align 4 .b8 words[256];\n.reg .b32 %s, %other;\n\
         and.b32 %n, %t, 1;\nadd.u32 %n, %n, 3;\nmov.u32 %s, words;\nmad.lo.u32 %m, %t, 4, %s;\nst.shared.u32 [%m], %t;\n\
         barrier.sync %n, 32;\nxor.b32 %other, %t, 32;\nmad.lo.u32 %m, %other, 4, %s;\nld.shared.u32 %m, [%m];\n{STORE}ret;\n}}\n"
    );
    Case::new("barriers of different numbers", "", &text, |device| {
        let out = device.upload_words(&[99; 65]);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(out))?;
        same("words", &device.read_words(out + 4, 64), &(0..64).map(|t| t ^ 32).collect::<Vec<u32>>())
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.push(together("lanes that meet after a loop", &format!("{WAIT}bar.warp.sync -1;\n"), |_| u32::MAX));
    cases.push(together("lanes that come together in a loop", &format!("{WAIT}{LOOP}"), |_| u32::MAX));
    let dead = "setp.lt.u32 %p, %t, 16;\n@%p bra GO;\nmov.u32 %i, 0;\nAGAIN:\natom.global.add.u32 %v, [%out], 1;\n\
        add.u32 %i, %i, 1;\nsetp.lt.u32 %p, %i, 300;\n@%p bra AGAIN;\nGO:\n";
    cases.push(together("lanes whose atomic operations have dead results", dead, |_| u32::MAX));
    cases.push(alone());
    cases.push(completed());
    cases.push(refused());
    cases.push(allocation());
    cases.push(apart());
    cases.push(numbers());
}
