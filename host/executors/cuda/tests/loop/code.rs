//! Modules and launches that are refused or end.

use vgpu_host_testing::commands::{
    KERNELS, LAUNCH, allocate, copy_in, function, launch, load, node, params, read_u32, synchronize,
    try_function, try_load,
};
use vgpu_host_testing::guest::until;
use vgpu_wire::Span;
use vgpu_wire::body::graph::{GraphDefine, GraphDestroy, GraphLaunch};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::module::{
    FunctionGet, FunctionSet, GlobalGet, GlobalReply, IMAGE_CUBIN, ModuleData, ModuleLoad, ModuleOpen,
    ModuleUnload, Occupancy,
};
use zerocopy::FromBytes;

use crate::place::looped;

#[test]
fn launches_that_cannot_be_are_refused_and_work_goes_on() {
    looped("code::launches_that_cannot_be_are_refused_and_work_goes_on", |looped| {
        let mut guest = looped.bench.guest(0);
        load(&mut guest, 1);
        function(&mut guest, 1, "digit");
        function(&mut guest, 2, "small");
        let p = allocate(&mut guest, 4);
        copy_in(&mut guest, 0, p, &[0; 4]);
        let good = params(p, &[1]);
        let digit = Launch { function: 1, ..LAUNCH };
        for (body, bytes, code) in [
            (Launch { grid: [0, 1, 1], ..digit }, &good[..], 1),
            (Launch { block: [1025, 1, 1], ..digit }, &good, 1),
            (digit, &good[..8], 1),
        ] {
            let number = launch(&mut guest, body, bytes);
            guest.echo();
            assert_eq!(guest.late(), Some((code, 0, number)), "{body:?}");
        }
        launch(&mut guest, digit, &good);
        assert_eq!(read_u32(&mut guest, p), 1, "only this one ran");
        guest.send(&FunctionSet { function: 2, attribute: 8, value: 1024, reserved: 0 }, &[]);
        let question = Occupancy { reply: 0, function: 2, block_threads: 32, flags: 0, shared_bytes: 0 };
        let (status, data) = guest.call(question, &[]);
        assert_eq!(status, 0);
        assert!(u32::read_from_bytes(&data[..4]).unwrap() > 0);
    });
}

#[test]
fn a_variable_and_an_image_end_with_their_module() {
    looped("code::a_variable_and_an_image_end_with_their_module", |looped| {
        let mut guest = looped.bench.guest(0);
        load(&mut guest, 1);
        let (status, data) =
            guest.call(GlobalGet { reply: 0, module: 1, name_bytes: 7, reserved: 0 }, b"counter");
        let counter = GlobalReply::read_from_bytes(&data).unwrap();
        assert_eq!((status, counter.bytes), (0, 4));
        guest.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
        let number = copy_in(&mut guest, 0, counter.address, &[0; 4]);
        synchronize(&mut guest);
        assert_eq!(guest.late(), Some((1, 0, number)));
        assert_eq!(try_load(&mut guest, 1, KERNELS), Ok(false), "no image is kept");
    });
}

#[test]
fn code_that_is_refused_comes_back_with_the_compilers_words() {
    looped("code::code_that_is_refused_comes_back_with_the_compilers_words", |looped| {
        let mut guest = looped.bench.guest(0);
        let text = ".version 8.0\n.target sm_61\n.address_size 64\nnonsense;\n";
        // The text may have any digest, because the executor does not check it.
        let open = |module, digest| ModuleOpen {
            reply: 0,
            module,
            image: 1,
            reserved: 0,
            bytes: text.len() as u64,
            digest,
        };
        let mut send = |module, digest| {
            guest.call(open(module, digest), &[]);
            let data = Span::inline(text.len() as u64);
            guest.send(&ModuleData { module, reserved: 0, offset: 0, data }, text.as_bytes());
            guest.call(ModuleLoad { reply: 0, module }, &[])
        };
        assert_eq!(send(3, [3; 32]).0, 0);
        // The driver compiles a kernel when the guest gets its function, so an error in one kernel does not
        // affect the others.
        assert_eq!(send(1, [0; 32]).0, 0);
        load(&mut guest, 2);
        let body = FunctionGet { reply: 0, module: 2, function: 1, name_bytes: 7 };
        let (status, words) = guest.call(body, b"unknown");
        let words = String::from_utf8(words).unwrap();
        assert_eq!(status, 218);
        assert!(words.contains("foo.bar"), "{words}");
        assert_eq!(try_function(&mut guest, 2, 1, "is_not_there").map(drop), Err(500));
        try_function(&mut guest, 2, 1, "digit").unwrap();
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn code_is_charged_while_it_is_loaded_or_used() {
    looped("code::code_is_charged_while_it_is_loaded_or_used", |looped| {
        let mut guest = looped.bench.guest(0);
        load(&mut guest, 1);
        function(&mut guest, 1, "digit");
        let charged = looped.bench.allocated();
        assert!(charged > 0);
        // An image that cannot be loaded is charged only until it is refused.
        for _ in 0..3 {
            let open = ModuleOpen {
                reply: 0,
                module: 2,
                image: IMAGE_CUBIN,
                reserved: 0,
                bytes: 4,
                digest: [0; 32],
            };
            assert_eq!(guest.call(open, &[]).0, 0);
            assert!(looped.bench.allocated() > charged);
            guest.send(&ModuleData { module: 2, reserved: 0, offset: 0, data: Span::inline(4) }, b"junk");
            assert_eq!(guest.call(ModuleLoad { reply: 0, module: 2 }, &[]).0, 200);
            assert_eq!(looped.bench.allocated(), charged);
        }
        // A graph keeps the kernel of a module that is unloaded.
        let p = allocate(&mut guest, 4);
        let charged = looped.bench.allocated();
        let records = node(&[], &Launch { function: 1, param_bytes: 12, ..LAUNCH }, &params(p, &[1]));
        let body = GraphDefine { graph: 1, nodes: 1, flags: 0, records: Span::inline(records.len() as u64) };
        guest.send(&body, &records);
        guest.send(&ModuleUnload { module: 1, reserved: 0 }, &[]);
        guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[]);
        assert_eq!(read_u32(&mut guest, p), 1);
        assert_eq!(looped.bench.allocated(), charged);
        guest.send(&GraphDestroy { graph: 1, reserved: 0 }, &[]);
        until("the code is free", || looped.bench.allocated() < charged);
        assert_eq!(guest.late(), None);
    });
}
