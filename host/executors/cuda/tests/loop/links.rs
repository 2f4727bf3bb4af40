//! The driver's linker.

use sha2::{Digest, Sha256};
use vgpu_device::Executor;
use vgpu_host_testing::commands::{LAUNCH, allocate, function, launch, params, read};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::Span;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::link::{LinkClose, LinkComplete, LinkData, LinkInput, LinkOpen, LinkRead, LinkReply};
use vgpu_wire::body::module::{IMAGE_PTX, ModuleData, ModuleLoad, ModuleOpen};
use vgpu_wire::facts::exec;
use zerocopy::FromBytes;

use crate::place::looped;

/// Stores `twice(thread) + bias` for each thread.
const CALLER: &str = ".version 7.0
.target sm_50
.address_size 64
.extern .func (.param .b32 answer) twice(.param .b32 number);
.extern .global .align 4 .u32 bias;
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    {
    .param .b32 param0;
    st.param.b32 [param0+0], %r1;
    .param .b32 retval0;
    call.uni (retval0), twice, (param0);
    ld.param.b32 %r2, [retval0+0];
    }
    ld.global.u32 %r3, [bias];
    add.s32 %r2, %r2, %r3;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    st.global.u32 [%rd1], %r2;
    ret;
}
";

const CALLEE: &str = ".version 7.0
.target sm_50
.address_size 64
.visible .global .align 4 .u32 bias = 5;
.visible .func (.param .b32 answer) twice(.param .b32 number)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [number];
    add.s32 %r2, %r1, %r1;
    st.param.b32 [answer+0], %r2;
    ret;
}
";

fn begin(guest: &mut Guest, link: u32) {
    let open = LinkOpen {
        reply: 0,
        link,
        flags: 0,
        max_registers: 0,
        threads_per_block: 0,
        optimization: 4,
        target: 0,
        reserved: 0,
    };
    assert_eq!(guest.call(open, &[]).0, 0);
}

/// Gives a link a text, in pieces.
fn add(guest: &mut Guest, link: u32, kind: u32, name: &str, text: &str) {
    let (name_bytes, bytes) = (name.len() as u32, text.len() as u64);
    guest.send(&LinkInput { link, kind, name_bytes, reserved: 0, bytes }, name.as_bytes());
    for (index, piece) in text.as_bytes().chunks(300).enumerate() {
        let data = Span::inline(piece.len() as u64);
        guest.send(&LinkData { link, reserved: 0, offset: 300 * index as u64, data }, piece);
    }
}

#[test]
fn inputs_become_one_image_that_can_be_loaded() {
    looped("links::inputs_become_one_image_that_can_be_loaded", |looped| {
        assert_ne!(looped.cuda.facts().abilities & exec::LINKS, 0);
        let mut guest = looped.bench.guest(0);
        begin(&mut guest, 7);
        add(&mut guest, 7, 1, "caller", CALLER);
        add(&mut guest, 7, 1, "callee", CALLEE);
        let (status, data) = guest.call(LinkComplete { reply: 0, link: 7 }, &[]);
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&data));
        let LinkReply { image, bytes, .. } = LinkReply::read_from_bytes(&data).expect("a reply");
        assert_eq!(image, IMAGE_PTX, "what the second device links");
        let mut text = Vec::new();
        while (text.len() as u64) < bytes {
            let (status, piece) = guest.call(LinkRead { reply: 0, link: 7, offset: text.len() as u64 }, &[]);
            assert!(status == 0 && !piece.is_empty());
            text.extend(piece);
        }
        guest.send(&LinkClose { link: 7, reserved: 0 }, &[]);
        assert!(text.len() as u64 == bytes && !text.contains(&0));

        let digest = Sha256::digest(&text).into();
        guest.call(ModuleOpen { reply: 0, module: 1, image, reserved: 0, bytes, digest }, &[]);
        for (index, piece) in text.chunks(1000).enumerate() {
            let data = Span::inline(piece.len() as u64);
            guest.send(&ModuleData { module: 1, reserved: 0, offset: 1000 * index as u64, data }, piece);
        }
        assert_eq!(guest.call(ModuleLoad { reply: 0, module: 1 }, &[]).0, 0);
        function(&mut guest, 1, "kernel");
        let p = allocate(&mut guest, 16);
        launch(&mut guest, Launch { function: 1, block: [4, 1, 1], ..LAUNCH }, &params(p, &[]));
        let expected: Vec<u8> = [5_u32, 7, 9, 11].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(read(&mut guest, p, 16), expected);
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn a_link_that_cannot_be_says_why_and_gives_back_what_it_was_charged() {
    looped("links::a_link_that_cannot_be_says_why_and_gives_back_what_it_was_charged", |looped| {
        let mut guest = looped.bench.guest(0);
        guest.echo();
        let before = looped.bench.session(0).expect("a session").charged_bytes;
        for (kind, text, word) in [(1, CALLER, "twice"), (1, "nonsense", ""), (0, "no cubin", "")] {
            begin(&mut guest, 1);
            add(&mut guest, 1, kind, "input", text);
            let (status, words) = guest.call(LinkComplete { reply: 0, link: 1 }, &[]);
            let words = String::from_utf8(words).expect("a text");
            assert!(status != 0 && words.contains(word), "{status}: {words}");
            guest.send(&LinkClose { link: 1, reserved: 0 }, &[]);
        }
        guest.echo();
        assert_eq!(looped.bench.session(0).expect("a session").charged_bytes, before);
        assert_eq!(guest.late(), None);
    });
}
