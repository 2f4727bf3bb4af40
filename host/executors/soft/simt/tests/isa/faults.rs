//! Tests of kernel errors: each fault with its kind, the driver's error code for it, and the line where it
//! happened.

use vgpu_simt::Fault;

use crate::case::{Case, HEADER};
use crate::device::{Device, Params, Shape};

/// Returns a kernel with a device address in `%a` and an offset in shared and local memory in `%o`. The
/// thread with the index `%n` causes the error.
fn kernel(code: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 at, .param .u32 o, .param .u32 n)\n{{\n.reg .b64 %a, %b, %c, %x;\n.reg .b32 %o, %n, %t, %y, %z;\n.reg .b16 %h;\n.reg .pred %p;\n\
         .shared .align 16 .b8 ours[64];\n.local .align 16 .b8 mine[32];\n\
         ld.param.u64 %a, [at];\nld.param.u32 %o, [o];\nld.param.u32 %n, [n];\nmov.u32 %t, %tid.x;\nmov.u32 %y, 0;\n{code}\nret;\n}}\n"
    )
}

/// Returns the number of the text's line that contains `marker`, counted from 1.
fn line_of(text: &str, marker: &str) -> u32 {
    let at = text.find(marker).expect("the text has the marker");
    1 + text[..at].matches('\n').count() as u32
}

/// Function that returns whether a fault is the expected one.
type Wanted = fn(&Fault) -> bool;

/// Launches a kernel that must fail with this code, and with a fault that `wanted` accepts.
fn fails(
    device: &Device,
    shape: Shape,
    params: &Params,
    code: u32,
    wanted: impl Fn(&Fault) -> bool,
) -> Result<Fault, String> {
    let fault = device.expect_fault("k", shape, params, code)?;
    if wanted(&fault) { Ok(fault) } else { Err(format!("{fault:?} is another fault")) }
}

/// Size in bytes of the device memory at whose ends accesses are tried.
const BYTES: u64 = 100;

/// Adds tests of accesses to device memory just inside an allocation, just beyond its end, before it, far
/// away and at null.
fn bounds(cases: &mut Vec<Case>) {
    let accesses: [(&str, &str, u64, bool); 16] = [
        ("ld.global.u8", "ld.global.u8 %h, [%a];", 1, false),
        ("ld.global.u16", "ld.global.u16 %h, [%a];", 2, false),
        ("ld.global.u32", "ld.global.u32 %y, [%a];", 4, false),
        ("ld.global.nc.f32", "ld.global.nc.f32 %y, [%a];", 4, false),
        ("ld.global.u64", "ld.global.u64 %x, [%a];", 8, false),
        ("ld.global.v2.u32", "ld.global.v2.u32 {%y, %z}, [%a];", 8, false),
        ("ld.global.v4.u32", "ld.global.v4.u32 {%y, %z, %n, %o}, [%a];", 16, false),
        ("ld.u32", "ld.u32 %y, [%a];", 4, false),
        ("st.global.u8", "st.global.u8 [%a], %h;", 1, true),
        ("st.global.u32", "st.global.u32 [%a], %y;", 4, true),
        ("st.global.u64", "st.global.u64 [%a], %x;", 8, true),
        ("st.global.v4.f32", "st.global.v4.f32 [%a], {%y, %y, %y, %y};", 16, true),
        ("st.u32", "st.u32 [%a], %y;", 4, true),
        ("atom.global.add.u32", "atom.global.add.u32 %y, [%a], 1;", 4, true),
        ("red.global.add.u32", "red.global.add.u32 [%a], 1;", 4, true),
        ("atom.add.u32", "atom.add.u32 %y, [%a], 1;", 4, true),
    ];
    for (spelling, access, size, writes) in accesses {
        for uniform in [true, false] {
            // The address is in the thread's own registers, or the same for all threads.
            let spread = if uniform {
                ""
            } else {
                "and.b32 %z, %t, 0;\nmul.wide.u32 %b, %z, 16;\nadd.s64 %a, %a, %b;\n"
            };
            let setup = "mov.u64 %x, 0;\nmov.u16 %h, 0;\nmov.u32 %z, 0;\n";
            let text =
                kernel(&format!("{setup}{spread}setp.ne.u32 %p, %t, %n;\n@%p bra SKIP;\n{access}\nSKIP:"));
            let name = format!("{spelling} of {} address", if uniform { "a common" } else { "an own" });
            let line = line_of(&format!("{HEADER}{text}"), access);
            cases.push(Case::new(&name, spelling, &text, move |device| {
                let memory = device.allocate(BYTES);
                let last = (BYTES - size) / size * size;
                let run = |address: u64| Params::new().u64(address).u32(0).u32(37);
                let shape = Shape::line(2, 64);
                device.launch("k", shape, &run(memory))?;
                device.launch("k", shape, &run(memory + last))?;
                let beyond = [memory + last + size, memory - size, 0, 1 << 20, memory + (1 << 40), 0xffff_ffff_ffff_fff0];
                for address in beyond {
                    let fault = fails(device, shape, &run(address), 700, |fault| {
                        matches!(fault, Fault::Illegal { address: at, write, .. } if *at == address && *write == writes)
                    })?;
                    if let Fault::Illegal { site, .. } = fault
                        && (site.line != line || site.thread != [37, 0, 0] || site.block[0] > 1)
                    {
                        return Err(format!("{fault:?} is at another place, should be line {line}"));
                    }
                }
                if size > 1 {
                    fails(device, shape, &run(memory + size / 2), 716, |fault| {
                        matches!(fault, Fault::Misaligned { address, .. } if *address == memory + size / 2)
                    })?;
                }
                Ok(())
            }));
        }
    }
}

/// Returns a test in which one lane of the last warp stores beyond the end. The stores of the other lanes
/// succeed.
fn last_byte() -> Case {
    let text = kernel("mul.wide.u32 %b, %t, 4;\nadd.s64 %a, %a, %b;\nst.global.u32 [%a], %t;");
    Case::new("a row of threads that is one too long", "", &text, |device| {
        let memory = device.allocate(4 * 64);
        let run = Params::new().u64(memory).u32(0).u32(0);
        device.launch("k", Shape::line(1, 64), &run)?;
        let fault =
            fails(device, Shape::line(1, 65), &run, 700, |fault| matches!(fault, Fault::Illegal { .. }))?;
        match fault {
            Fault::Illegal { address, write: true, site, .. }
                if address == memory + 256 && site.thread == [64, 0, 0] =>
            {
                Ok(())
            }
            other => Err(format!("{other:?} is at another place")),
        }
    })
}

/// Adds tests of offsets beyond shared and local memory, with addresses of the state space and with generic
/// ones.
fn spaces(cases: &mut Vec<Case>) {
    let shared: Wanted = |fault| matches!(fault, Fault::SharedOutOfBounds { .. });
    let local: Wanted = |fault| matches!(fault, Fault::LocalOutOfBounds { .. });
    let accesses: [(&str, &str, u32, Wanted); 8] = [
        ("ld.shared.u32", "mov.u32 %z, ours;\nadd.u32 %z, %z, %o;\nld.shared.u32 %y, [%z];", 64, shared),
        ("st.shared.u32", "mov.u32 %z, ours;\nadd.u32 %z, %z, %o;\nst.shared.u32 [%z], %y;", 64, shared),
        (
            "atom.shared.add.u32",
            "mov.u32 %z, ours;\nadd.u32 %z, %z, %o;\natom.shared.add.u32 %y, [%z], 1;",
            64,
            shared,
        ),
        (
            "ld.u32 of shared",
            "mov.u64 %b, ours;\ncvta.shared.u64 %b, %b;\ncvt.s64.s32 %x, %o;\nadd.s64 %b, %b, %x;\nld.u32 %y, [%b];",
            64,
            shared,
        ),
        (
            "ld.local.u32",
            "mov.u64 %b, mine;\ncvt.s64.s32 %x, %o;\nadd.s64 %b, %b, %x;\nld.local.u32 %y, [%b];",
            32,
            local,
        ),
        (
            "st.local.u32",
            "mov.u64 %b, mine;\ncvt.s64.s32 %x, %o;\nadd.s64 %b, %b, %x;\nst.local.u32 [%b], %y;",
            32,
            local,
        ),
        (
            "ld.u32 of local",
            "mov.u64 %b, mine;\ncvta.local.u64 %b, %b;\ncvt.s64.s32 %x, %o;\nadd.s64 %b, %b, %x;\nld.u32 %y, [%b];",
            32,
            local,
        ),
        (
            "st.u32 of local",
            "mov.u64 %b, mine;\ncvta.local.u64 %b, %b;\ncvt.s64.s32 %x, %o;\nadd.s64 %b, %b, %x;\nst.u32 [%b], %y;",
            32,
            local,
        ),
    ];
    for (name, access, size, wanted) in accesses {
        // The offset differs between lanes, so that the engine cannot treat it as uniform.
        let text = kernel(&format!(
            "mov.u32 %z, ours;\nst.shared.u32 [%z], 0;\nmov.u64 %b, mine;\nst.local.u32 [%b], 0;\nsetp.ne.u32 %p, %t, %n;\n@%p mov.u32 %o, 0;\n{access}"
        ));
        cases.push(Case::new(name, "", &text, move |device| {
            let shape = Shape::line(1, 64);
            let run = |offset: u32| Params::new().u64(0).u32(offset).u32(37);
            device.launch("k", shape, &run(size - 4))?;
            // The first offset exceeds the memory by part of the element, the others start beyond it.
            for offset in [size, size + 4, 0x10_0000, 0x7fff_fff0] {
                let fault = fails(device, shape, &run(offset), 700, |fault| {
                    wanted(fault) || beyond_window(name, fault)
                })?;
                let (Fault::SharedOutOfBounds { site, .. } | Fault::LocalOutOfBounds { site, .. }) = fault
                else {
                    continue;
                };
                if site.thread != [37, 0, 0] {
                    return Err(format!("{fault:?}: another thread"));
                }
            }
            fails(device, shape, &run(size - 2), 716, |fault| matches!(fault, Fault::Misaligned { .. }))
                .map(|_| ())
                .or_else(|_| fails(device, shape, &run(size - 2), 700, wanted).map(|_| ()))
        }));
    }
}

/// Returns whether a generic address is so far beyond the memory that it is outside of the memory's window.
fn beyond_window(name: &str, fault: &Fault) -> bool {
    name.contains(" of ") && matches!(fault, Fault::Illegal { .. })
}

/// Returns a test that dynamic shared memory has the size that the launch requests.
fn dynamic_shared() -> Case {
    let text = ".extern .shared .align 16 .b8 dynamic[];\n.visible .entry k()\n{\n.reg .b32 %t, %z;\n\
        mov.u32 %t, %tid.x;\nshl.b32 %t, %t, 2;\nmov.u32 %z, dynamic;\nadd.u32 %z, %z, %t;\nst.shared.u32 [%z], %t;\nret;\n}\n";
    Case::new("dynamic shared memory", "", text, |device| {
        device.launch("k", Shape::line(1, 32).with_shared(128), &Params::new())?;
        let shape = Shape::line(1, 32).with_shared(124);
        fails(device, shape, &Params::new(), 700, |fault| matches!(fault, Fault::SharedOutOfBounds { .. }))?;
        let shape = Shape::line(1, 32);
        fails(device, shape, &Params::new(), 700, |fault| matches!(fault, Fault::SharedOutOfBounds { .. }))
            .map(|_| ())
    })
}

/// Returns a test of `trap` by one thread of one block.
fn traps() -> Case {
    let text = kernel(
        "mov.u32 %z, %ctaid.x;\nsetp.ne.u32 %p, %z, 3;\n@%p bra OUT;\nsetp.ne.u32 %p, %t, %n;\n@%p bra OUT;\ntrap;\nOUT:",
    );
    let line = line_of(&format!("{HEADER}{text}"), "trap;");
    Case::new("trap", "trap", &text, move |device| {
        let run = |thread: u32| Params::new().u64(0).u32(0).u32(thread);
        device.launch("k", Shape::line(5, 64), &run(64))?;
        fails(device, Shape::line(5, 64), &run(50), 719, |fault| match fault {
            Fault::Trap { site, .. } => {
                site.line == line && site.block == [3, 0, 0] && site.thread == [50, 0, 0]
            }
            _ => false,
        })
        .map(|_| ())
    })
}

/// Adds tests that endless loops are stopped, with and without instructions in them.
fn endless_loops(cases: &mut Vec<Case>) {
    for (name, code) in [
        ("an endless loop", "FOREVER:\nadd.u32 %y, %y, 1;\nbra FOREVER;"),
        ("an empty endless loop", "FOREVER:\nbra FOREVER;"),
        ("an endless loop of one lane", "setp.eq.u32 %p, %t, 5;\nFOREVER:\n@%p bra FOREVER;"),
        ("an endless loop around a barrier", "FOREVER:\nbar.sync 0;\nbra FOREVER;"),
    ] {
        let text = kernel(code);
        let line = line_of(&format!("{HEADER}{text}"), "bra FOREVER;");
        cases.push(Case::new(name, "", &text, move |device| {
            let shape = Shape { budget: 10_000, ..Shape::line(3, 64) };
            let params = Params::new().u64(0).u32(0).u32(0);
            let wanted = |fault: &Fault| matches!(fault, Fault::Timeout { site } if site.line == line);
            fails(device, shape, &params, 702, wanted).map(|_| ())
        }));
    }
}

/// Adds tests of barriers that can never be completed.
fn deadlocks(cases: &mut Vec<Case>) {
    for (name, code) in [
        (
            "two warps at different barriers",
            "setp.lt.u32 %p, %t, 32;\n@%p bra OTHER;\nbar.sync 1, 64;\nbra OUT;\nOTHER:\nbar.sync 2, 64;\nOUT:",
        ),
        ("a barrier of more warps than there are", "bar.sync 1, 96;"),
    ] {
        cases.push(Case::new(name, "bar.sync", &kernel(code), |device| {
            let params = Params::new().u64(0).u32(0).u32(0);
            fails(device, Shape::line(1, 64), &params, 702, |fault| {
                matches!(fault, Fault::BarrierDeadlock { .. })
            })
            .map(|_| ())
        }));
    }
}

/// Adds tests of invalid barrier numbers, as a constant and in a register.
fn beyond(cases: &mut Vec<Case>) {
    for (name, code) in [
        ("a barrier beyond the last", "bar.sync 16;"),
        ("a barrier that no constant names", "mov.u32 %o, %ntid.x;\nbar.sync %o;"),
    ] {
        cases.push(Case::new(name, "bar.sync", &kernel(code), |device| {
            let params = Params::new().u64(0).u32(0).u32(0);
            let wanted = |fault: &Fault| matches!(fault, Fault::BadBarrier { value: 16 | 64, .. });
            fails(device, Shape::line(1, 64), &params, 715, wanted).map(|_| ())
        }));
    }
}

/// Returns a test of divisions that trap on CPUs but not on GPUs.
fn divisions() -> Case {
    let mut code = String::new();
    for (ty, register) in [("s32", "%y"), ("u32", "%y"), ("s64", "%x"), ("u64", "%x")] {
        for operation in ["div", "rem"] {
            let (bits, zero) = if register == "%y" { ("%o", "%n") } else { ("%a", "%b") };
            code += &format!(
                "{operation}.{ty} {register}, {bits}, {zero};\n{operation}.{ty} {register}, {bits}, 0;\n{operation}.{ty} {register}, {bits}, -1;\n"
            );
        }
    }
    let text = kernel(&format!(
        "mov.u64 %b, 0;\nmov.u64 %c, %a;\nmov.u64 %a, 0x8000000000000000;\n{code}\nmul.wide.u32 %b, %t, 4;\nadd.s64 %b, %c, %b;\nst.global.u32 [%b], %t;"
    ));
    Case::new("divisions by 0 and of the least number by -1", "div.s32 rem.s64", &text, |device| {
        let memory = device.allocate(256);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(memory).u32(1 << 31).u32(0))?;
        crate::device::same("words", &device.read_words(memory, 64), &(0..64).collect::<Vec<_>>())
    })
}

/// Returns a test that the first fault ends the launch, however many blocks are left, and that the device can
/// be used afterwards.
fn after_a_fault() -> Case {
    let text = kernel(
        "mov.u32 %z, %ctaid.x;\nmul.wide.u32 %b, %z, 4;\nadd.s64 %a, %a, %b;\nst.global.u32 [%a], %z;",
    );
    Case::new("a launch after a fault", "", &text, |device| {
        let memory = device.allocate(4000);
        let run = |address: u64| Params::new().u64(address).u32(0).u32(0);
        fails(device, Shape::line(100_000, 32), &run(0), 700, |fault| {
            matches!(fault, Fault::Illegal { .. })
        })?;
        device.launch("k", Shape::line(1000, 32), &run(memory))?;
        let wanted: Vec<u32> = (0..1000).collect();
        crate::device::same("words", &device.read_words(memory, 1000), &wanted)
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend([last_byte(), dynamic_shared(), traps(), divisions(), after_a_fault()]);
    bounds(cases);
    spaces(cases);
    endless_loops(cases);
    deadlocks(cases);
    beyond(cases);
}
