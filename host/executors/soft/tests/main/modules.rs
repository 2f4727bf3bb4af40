//! Tests of modules, their functions and their variables.

use std::fmt::Write as _;

use vgpu_host_testing::bench::Bench;
use vgpu_host_testing::commands::{
    KERNELS, LAUNCH, allocate, function, launch, load, params, read_u32, synchronize, try_function, try_load,
};
use vgpu_wire::Span;
use vgpu_wire::body::module::{
    FunctionSet, ModuleData, ModuleLoad, ModuleOpen, ModuleUnload, Occupancy, OccupancyReply,
};
use vgpu_wire::body::stream::StreamRelease;
use zerocopy::FromBytes;

const INVALID_IMAGE: u32 = 200;
const NO_BINARY_FOR_GPU: u32 = 209;
const INVALID_PTX: u32 = 218;
const UNSUPPORTED_PTX_VERSION: u32 = 222;
const NOT_FOUND: u32 = 500;
const LAUNCH_OUT_OF_RESOURCES: u32 = 701;

#[test]
fn an_image_goes_over_once() {
    let bench = Bench::soft();
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    assert_eq!(try_load(&mut one, 1, KERNELS), Ok(false));
    assert_eq!(try_load(&mut one, 2, KERNELS), Ok(true));
    assert_eq!(try_load(&mut two, 1, KERNELS), Ok(true));
    assert_eq!(bench.session(0).unwrap().modules, 2);
    assert!(bench.allocated() > 0, "variables take memory");
    for module in [1, 2] {
        one.send(&ModuleUnload { module, reserved: 0 }, &[]);
    }
    two.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
    synchronize(&mut one);
    synchronize(&mut two);
    assert_eq!((bench.allocated(), bench.session(0).unwrap().modules), (0, 0));
}

#[test]
fn images_are_refused_as_cuda_refuses_them() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    let text = |version: &str, target: &str| {
        format!(".version {version}\n.target {target}\n.address_size 64\n.entry x() {{ ret; }}\n")
    };
    for (module, text, expected) in [
        (1, text("8.0", "sm_61"), Ok(false)),
        (2, text("8.0", "sm_70"), Err(NO_BINARY_FOR_GPU)),
        (3, text("99.0", "sm_61"), Err(UNSUPPORTED_PTX_VERSION)),
        (4, "no PTX".to_owned(), Err(INVALID_PTX)),
    ] {
        assert_eq!(try_load(&mut guest, module, &text), expected, "{text}");
    }
    // The module's number can be used again after a failure.
    assert_eq!(try_load(&mut guest, 2, KERNELS), Ok(false));
    let cubin = ModuleOpen { reply: 0, module: 9, image: 2, reserved: 0, bytes: 100, digest: [1; 32] };
    assert_eq!(guest.call(cubin, &[]).0, NO_BINARY_FOR_GPU);
    // The bytes do not match the digest.
    let open = ModuleOpen { reply: 0, module: 9, image: 1, reserved: 0, bytes: 3, digest: [1; 32] };
    assert_eq!(guest.call(open, &[]).0, 0);
    guest.send(&ModuleData { module: 9, reserved: 0, offset: 0, data: Span::inline(3) }, b"abc");
    assert_eq!(guest.call(ModuleLoad { reply: 0, module: 9 }, &[]).0, INVALID_IMAGE);
    assert_eq!(guest.late(), None, "who is answered needs no late error");
}

#[test]
fn functions_have_attributes_and_kernels_that_cannot_run_are_refused() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    let small = function(&mut guest, 1, "small");
    assert_eq!((small.max_threads, small.shared_bytes, small.param_bytes), (64, 1024, 8));
    assert_eq!((small.ptx_version, small.binary_version, small.max_dynamic_shared), (61, 61, 47 << 10));
    assert_eq!(small.const_bytes, 16);
    let say = function(&mut guest, 2, "say");
    assert_eq!((say.max_threads, say.local_bytes, say.param_bytes), (1024, 8, 12));
    assert!((1..=64).contains(&say.registers), "a block of 1024 threads fits");
    assert_eq!(try_function(&mut guest, 1, 3, "unknown"), Err(INVALID_PTX));
    assert_eq!(try_function(&mut guest, 1, 3, "nobody"), Err(NOT_FOUND));
    let occupancy = |guest: &mut vgpu_host_testing::guest::Guest, threads, shared_bytes| {
        let body = Occupancy { reply: 0, function: 1, block_threads: threads, flags: 0, shared_bytes };
        let (status, data) = guest.call(body, &[]);
        (status, OccupancyReply::read_from_bytes(&data).map(|reply| reply.blocks).ok())
    };
    assert_eq!(occupancy(&mut guest, 64, 0), (0, Some(32)));
    assert_eq!(occupancy(&mut guest, 64, 47 << 10), (0, Some(2)));
    assert_eq!(occupancy(&mut guest, 65, 0), (0, Some(0)));
    assert_eq!(occupancy(&mut guest, 0, 0), (1, None));
}

/// A kernel is lowered once for all sessions. Each session uses its own variables: for variables at other
/// addresses the kernel is lowered again.
#[test]
fn kernels_are_kept_for_later_sessions() {
    let bench = Bench::soft();
    let kept = || bench.bus.status().devices[0].kept_image_bytes;
    let run = |guest: &mut vgpu_host_testing::guest::Guest, module| {
        try_load(guest, module, KERNELS).expect("the kernels");
        try_function(guest, module, module, "globals").expect("a kernel");
        let q = allocate(guest, 4);
        launch(guest, vgpu_wire::body::launch::Launch { function: module, ..LAUNCH }, &params(q, &[]));
        // The kernel changes a variable, so only its first launch finds the initial value.
        assert_eq!(read_u32(guest, q), 30 + 5);
    };
    run(&mut bench.guest(0), 1);
    let once = kept();
    let charged = {
        let mut second = bench.guest(1);
        run(&mut second, 1);
        bench.session(1).expect("a session").charged_bytes
    };
    assert_eq!(kept(), once, "the second session makes nothing ready");
    assert!(charged > KERNELS.len() as u64, "and is charged for what it uses: {charged}");
    let mut third = bench.guest(2);
    run(&mut third, 1);
    run(&mut third, 2);
    run(&mut third, 3);
    assert_eq!(kept(), once, "a kernel that names variables is kept for one place of them");
}

#[test]
fn dynamic_shared_memory_is_what_was_asked_for() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "small");
    let body = vgpu_wire::body::launch::Launch { function: 1, shared_bytes: 47 << 10, ..LAUNCH };
    launch(&mut guest, body, &params(0, &[]));
    guest.echo();
    assert_eq!(guest.late(), None);
    let set = |value| FunctionSet { function: 1, attribute: 8, value, reserved: 0 };
    guest.send(&set(1024), &[]);
    let number = launch(&mut guest, body, &params(0, &[]));
    guest.echo();
    assert_eq!(guest.late(), Some((1, 0, number)));
    let number = guest.send(&set((47 << 10) + 1), &[]);
    guest.echo();
    assert_eq!(guest.late(), Some((1, 0, number)), "more than a block can have");
}

#[test]
fn numbers_that_nobody_has_end_the_session() {
    let bench = Bench::soft();
    let wrong: [fn(&mut vgpu_host_testing::guest::Guest) -> u64; 6] = [
        |guest| launch(guest, LAUNCH, &[]),
        |guest| guest.send(&ModuleUnload { module: 2, reserved: 0 }, &[]),
        |guest| guest.send(&ModuleLoad { reply: 1, module: 1 }, &[]),
        |guest| guest.send(&FunctionSet { function: 3, attribute: 8, value: 0, reserved: 0 }, &[]),
        |guest| {
            let data = Span::inline(1);
            guest.send(&ModuleData { module: 1, reserved: 0, offset: 0, data }, b"a")
        },
        |guest| guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]),
    ];
    for (index, wrong) in wrong.into_iter().enumerate() {
        let mut guest = bench.guest(0);
        load(&mut guest, 1);
        let sent = wrong(&mut guest);
        let (code, _, number) = guest.ended();
        assert_eq!((code, number), (999, sent), "case {index}");
        assert_eq!(bench.allocated(), 0);
    }
}

/// Lanes diverge at thousands of branches with thousands of registers live, so that the analyses would take
/// time quadratic in the size of the text. The guest is told that the kernel takes too much, and can
/// continue.
#[test]
fn a_kernel_that_takes_too_long_to_be_made_ready_is_out_of_resources() {
    const BRANCHES: usize = 4000;
    const LIVE: usize = 8000;
    let mut text = String::from(
        ".version 8.0\n.target sm_61\n.address_size 64\n.entry hostile(.param .u64 p)\n{\n.reg .b32 %r<9000>;\n.reg .pred %q;\n\
         mov.u32 %r8999, %tid.x;\n",
    );
    for reg in 0..LIVE {
        writeln!(text, "mov.u32 %r{reg}, {reg};").unwrap();
    }
    for branch in 0..BRANCHES {
        writeln!(text, "setp.eq.u32 %q, %r8999, {branch};\n@%q bra L{branch};").unwrap();
    }
    for branch in 0..BRANCHES {
        writeln!(text, "L{branch}:\nadd.u32 %r8999, %r8999, 1;").unwrap();
    }
    for reg in 0..LIVE {
        writeln!(text, "add.u32 %r8998, %r8998, %r{reg};").unwrap();
    }
    text += "ret;\n}\n.entry good()\n{\nret;\n}\n";
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    assert_eq!(try_load(&mut guest, 1, &text), Ok(false));
    assert_eq!(try_function(&mut guest, 1, 1, "hostile").map(drop), Err(LAUNCH_OUT_OF_RESOURCES));
    assert!(try_function(&mut guest, 1, 1, "good").is_ok());
}

/// "Out of resources" is the answer for a valid text that takes too much here. A text that exceeds a limit of
/// the language or of every GPU, which no compiler accepts, is invalid PTX, as NVIDIA's driver says of it.
#[test]
fn a_text_beyond_the_language_is_invalid_and_one_that_is_too_large_is_out_of_resources() {
    let kernel = |params: &str, code: &str| {
        format!(".version 8.0\n.target sm_61\n.address_size 64\n.entry k({params})\n{{\n{code}\nret;\n}}\n")
    };
    let branches = |count: usize| {
        let branch = |at: usize| format!("@%q bra L{at};\nL{at}:\n");
        (0..count).fold(".reg .pred %q;\n".to_owned(), |text, at| text + &branch(at))
    };
    let live = (0..17_000)
        .fold(".reg .b32 %r<17000>;\n".to_owned(), |text, reg| text + &format!("mov.u32 %r{reg}, 0;\n"));
    let kernels = [
        ("parameters", kernel(".param .align 8 .b8 p[32768]", ""), INVALID_PTX),
        ("local memory", kernel("", ".local .align 8 .b8 l[524296];"), INVALID_PTX),
        ("shared memory", kernel("", ".shared .align 8 .b8 s[1048584];"), INVALID_PTX),
        ("nested scopes", kernel("", &("{".repeat(65) + &"}".repeat(65))), INVALID_PTX),
        ("registers", kernel("", ".reg .b32 %r<1048577>;"), LAUNCH_OUT_OF_RESOURCES),
        ("blocks", kernel("", &branches(8200)), LAUNCH_OUT_OF_RESOURCES),
        ("registers times blocks", kernel("", &(branches(8000) + &live)), LAUNCH_OUT_OF_RESOURCES),
    ];
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    for (module, (what, text, code)) in (1..).zip(kernels) {
        assert_eq!(try_load(&mut guest, module, &text), Ok(false), "{what}");
        assert_eq!(try_function(&mut guest, module, module, "k").map(drop), Err(code), "{what}");
    }
    let variables = |text: &str| format!(".version 8.0\n.target sm_61\n.address_size 64\n{text}");
    let many = (0..=65_536).fold(String::new(), |text, at| text + &format!(".global .b8 v{at};\n"));
    for (what, text, code) in [
        ("bytes of a variable", variables(".global .b8 v[1099511627777];"), INVALID_PTX),
        ("variables", variables(&many), LAUNCH_OUT_OF_RESOURCES),
    ] {
        assert_eq!(try_load(&mut guest, 100, &text), Err(code), "{what}");
    }
    // The session can continue.
    load(&mut guest, 101);
}
