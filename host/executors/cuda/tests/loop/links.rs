//! Tests of links that fail.

use vgpu_conformance::CALLER;
use vgpu_host_testing::guest::Guest;
use vgpu_wire::Span;
use vgpu_wire::body::link::{LinkClose, LinkComplete, LinkData, LinkInput, LinkOpen};

use crate::place::looped;

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

/// Adds a text to a link, in pieces of 300 bytes.
fn add(guest: &mut Guest, link: u32, kind: u32, name: &str, text: &str) {
    let (name_bytes, bytes) = (name.len() as u32, text.len() as u64);
    guest.send(&LinkInput { link, kind, name_bytes, reserved: 0, bytes }, name.as_bytes());
    for (index, piece) in text.as_bytes().chunks(300).enumerate() {
        let data = Span::inline(piece.len() as u64);
        guest.send(&LinkData { link, reserved: 0, offset: 300 * index as u64, data }, piece);
    }
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
