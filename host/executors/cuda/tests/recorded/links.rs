//! Tests of links: what the driver's linker receives, and when its state is destroyed.

use serde_json::json;
use vgpu_host_testing::commands::{KERNELS, allocate};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::Fill;
use vgpu_wire::body::link::{
    INPUT_PTX, LINK_LINES, LinkClose, LinkComplete, LinkData, LinkInput, LinkOpen, LinkRead, LinkReply,
};
use vgpu_wire::body::module::IMAGE_CUBIN;
use vgpu_wire::body::stream::Signal;
use vgpu_wire::facts::exec;
use vgpu_wire::{Mark, Span};
use zerocopy::FromBytes;

use crate::gpu::RecordedGpu;

const OPEN: LinkOpen = LinkOpen {
    reply: 0,
    link: 7,
    flags: 0,
    max_registers: 0,
    threads_per_block: 0,
    optimization: 4,
    target: 0,
    reserved: 0,
};
const OTHER: &str = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry other() { ret; }\n";

/// Opens a link and adds texts to it.
fn open(guest: &mut Guest, open: LinkOpen, texts: &[(&str, &str)]) {
    let link = open.link;
    assert_eq!(guest.call(open, &[]).0, 0);
    for &(name, text) in texts {
        let (name_bytes, bytes) = (name.len() as u32, text.len() as u64);
        let kind = INPUT_PTX;
        guest.send(&LinkInput { link, kind, name_bytes, reserved: 0, bytes }, name.as_bytes());
        for (index, piece) in text.as_bytes().chunks(1000).enumerate() {
            let data = Span::inline(piece.len() as u64);
            guest.send(&LinkData { link, reserved: 0, offset: 1000 * index as u64, data }, piece);
        }
    }
}

/// The driver gets a link when the guest completes it, and the link's state is destroyed before the guest
/// gets its answer, because the image is a copy. Each input ends with a zero, and options are within their
/// ranges.
#[test]
fn a_link_is_made_and_destroyed_at_once() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    allocate(&mut guest, 4096);
    let wanted = LinkOpen { flags: LINK_LINES, max_registers: 64, target: 90, optimization: 3, ..OPEN };
    open(&mut guest, wanted, &[("kernels", KERNELS), ("other", OTHER)]);
    assert_eq!(gpu.count("cuLinkCreate_v2"), 0);
    let (status, data) = guest.call(LinkComplete { reply: 0, link: 7 }, &[]);
    assert_eq!(status, 0, "{}", String::from_utf8_lossy(&data));
    assert_eq!(gpu.count("cuLinkDestroy"), 1);
    let LinkReply { image, bytes, .. } = LinkReply::read_from_bytes(&data).expect("a reply");
    assert_eq!(image, IMAGE_CUBIN);
    let (status, piece) = guest.call(LinkRead { reply: 0, link: 7, offset: 0 }, &[]);
    assert!(status == 0 && piece.starts_with(b"\x7fELF") && piece.len() as u64 <= bytes);
    guest.send(&LinkClose { link: 7, reserved: 0 }, &[]);
    guest.echo();
    assert_eq!(guest.late(), None);
    gpu.compare("link.jsonl");
}

/// While the linker works, the ring is read, work reaches the driver and marks are stored. A message that
/// names the link waits for it, even if the guest did not wait for the answer.
#[test]
fn a_link_is_waited_for_by_what_names_it_alone() {
    const LINKS: &str = "cuLinkComplete";
    const SLOT: u32 = 7;
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    let memory = allocate(&mut guest, 4096);
    open(&mut guest, OPEN, &[("kernels", KERNELS)]);
    gpu.recording.hold_call(LINKS).unwrap();
    let completed = guest.send(&LinkComplete { reply: SLOT, link: 7 }, &[]);
    until("the linker has been called", || gpu.recording.has_held(LINKS));
    let (element, width, height, pitch) = (4, 16, 1, 0);
    let fill = Fill { stream: 0, value: 7, element, reserved: 0, destination: memory, pitch, width, height };
    guest.send(&fill, &[]);
    guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(1, 5) }, &[]);
    guest.wait_word(1, 5);
    guest.echo();
    assert_eq!(gpu.count(LINKS), 0, "the linker has not returned");

    let read = guest.send(&LinkRead { reply: SLOT + 1, link: 7, offset: 0 }, &[]);
    guest.send(&LinkClose { link: 7, reserved: 0 }, &[]);
    gpu.recording.release_call(LINKS).unwrap();
    assert_eq!((guest.answer(SLOT, completed).0, guest.answer(SLOT + 1, read).0), (0, 0));
    guest.echo();
    gpu.check_all(&guest);
}

/// If any of the driver's calls fails, the state is destroyed all the same, and the next link succeeds.
#[test]
fn a_link_that_fails_leaves_no_state() {
    for (call, status) in [("cuLinkCreate_v2", 2), ("cuLinkAddData_v2", 209), ("cuLinkComplete", 2)] {
        let (gpu, mut guest) =
            RecordedGpu::with_guest(&json!({ "failures": [{ "call": call, "nth": 1, "status": status }] }));
        for expected in [status, 0] {
            open(&mut guest, OPEN, &[("kernels", KERNELS)]);
            assert_eq!(guest.call(LinkComplete { reply: 0, link: 7 }, &[]).0, expected, "{call}");
            guest.send(&LinkClose { link: 7, reserved: 0 }, &[]);
        }
        let made = gpu.calls().iter().filter(|line| line["out"]["state"].is_string()).count();
        assert_eq!(made, if call == "cuLinkCreate_v2" { 1 } else { 2 });
        assert_eq!(gpu.count("cuLinkDestroy"), made, "{call}");
        gpu.check();
    }
}

/// A text that is not code is the guest's mistake, and is reported with the linker's message.
#[test]
fn what_the_linker_says_reaches_the_guest() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    assert_ne!(gpu.abilities & exec::LINKS, 0);
    open(&mut guest, OPEN, &[("nonsense", "nonsense")]);
    let (status, words) = guest.call(LinkComplete { reply: 0, link: 7 }, &[]);
    let words = String::from_utf8(words).expect("a text");
    assert!(status == 218 && words.contains(".version"), "{status}: {words}");
    assert_eq!(gpu.count("cuLinkDestroy"), 1);
    gpu.check();
}
