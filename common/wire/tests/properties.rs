//! Tests properties of the decoder: no bytes make it panic, it decodes exactly what was encoded, and every
//! single damage to the header is detected or harmless.

use proptest::prelude::*;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::pages::{PAGE_BYTES, PageRun, PagesRegister, RUNS_MAX, RunError};
use vgpu_wire::share::{SHARE_WHOLE, VmShare};
use vgpu_wire::{Body, DecodeError, FLAG_JOIN, Header, Kind, Message, area, padded};
use zerocopy::{FromZeros, IntoBytes};

fn launch(number: u32, params: &[u8]) -> Vec<u8> {
    let mut body = Launch::new_zeroed();
    body.param_bytes = params.len() as u32;
    body.function = 9;
    let bytes = padded((size_of::<Header>() + size_of::<Launch>() + params.len()) as u64);
    let header = Header { kind: Kind::Launch as u16, flags: 0, bytes: bytes as u32, number, join: 0 };
    let mut out = header.as_bytes().to_vec();
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(params);
    out.resize(bytes as usize, 0);
    out
}

/// Parses a list of `count` runs from a message's tail.
fn runs(count: u32, tail: &[u8]) -> Result<Vec<PageRun>, RunError> {
    let body = PagesRegister { reply: 0, segment: 1, runs: count, reserved: 0 };
    body.runs(tail).map(Iterator::collect)
}

proptest! {
    #[test]
    fn any_runs_are_good_or_an_error(
        count in 0..2 * RUNS_MAX,
        tail in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(runs) = runs(count, &tail) {
            prop_assert_eq!(runs.len(), count as usize);
            prop_assert!(runs.iter().all(PageRun::is_good));
        }
    }

    #[test]
    fn good_runs_come_back(
        pages in proptest::collection::vec((0u64..1 << 40, 1u64..1 << 11), 1..RUNS_MAX as usize),
    ) {
        let sent: Vec<PageRun> = pages
            .into_iter()
            .map(|(page, pages)| PageRun { address: page * PAGE_BYTES, bytes: pages * PAGE_BYTES })
            .collect();
        prop_assert_eq!(runs(sent.len() as u32, sent.as_bytes()), Ok(sent.clone()));
        let short = RunError::Count(sent.len() as u32 + 1);
        prop_assert_eq!(runs(sent.len() as u32 + 1, sent.as_bytes()), Err(short));
    }

    #[test]
    fn any_registers_are_a_share_that_is_at_most_the_whole(words in any::<[u32; 6]>()) {
        let share = VmShare::from_words(words);
        prop_assert!(share.ppm <= SHARE_WHOLE);
        prop_assert_eq!(VmShare::from_words(share.words()), share);
        // A guest of this release ignores bits of a later one.
        let [state, rest @ ..] = words;
        prop_assert_eq!(VmShare::from_words([state & 1, rest[0], rest[1], rest[2], rest[3], rest[4]]), share);
    }

    #[test]
    fn shares_come_back(
        enforced in any::<bool>(),
        ppm in 0..=SHARE_WHOLE,
        charged_us in any::<u64>(),
        waited_us in any::<u64>(),
    ) {
        let share = VmShare { enforced, ppm, charged_us, waited_us };
        prop_assert_eq!(VmShare::from_words(share.words()), share);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert!(message.header.bytes as usize <= bytes.len());
            prop_assert!(message.tail.len() < bytes.len());
        }
    }

    #[test]
    fn any_body_behind_a_valid_head_is_handled(
        index in 0..Kind::ALL.len(),
        extra in 0u64..40,
        fill in proptest::collection::vec(any::<u8>(), 1024..1025),
    ) {
        let kind = Kind::ALL[index];
        let total = padded((size_of::<Header>() + kind.body_bytes()) as u64 + extra);
        let header = Header { kind: kind as u16, flags: 0, bytes: total as u32, number: 1, join: 0 };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(&fill[..total as usize - bytes.len()]);
        match Message::decode(&bytes) {
            Ok(message) => {
                prop_assert_eq!(message.body.kind(), kind);
                let room = bytes.len() - size_of::<Header>() - kind.body_bytes();
                prop_assert!(message.tail.len() <= room);
            }
            Err(error) => prop_assert!(matches!(error, DecodeError::Tail(_)), "{:?}", error),
        }
    }

    #[test]
    fn parameters_come_back(
        params in proptest::collection::vec(any::<u8>(), 0..500),
        number in any::<u32>(),
    ) {
        let bytes = launch(number, &params);
        let message = Message::decode(&bytes).expect("a well-formed launch");
        prop_assert_eq!(message.header.number, number);
        prop_assert_eq!(message.tail, &params[..]);
        prop_assert!(matches!(message.body, Body::Launch(body) if body.function == 9));
    }

    #[test]
    fn a_truncated_message_is_short(
        params in proptest::collection::vec(any::<u8>(), 0..200),
        cut in 1usize..64,
    ) {
        let bytes = launch(1, &params);
        prop_assert_eq!(Message::decode(&bytes[..bytes.len() - cut]), Err(DecodeError::Short));
    }

    #[test]
    fn unknown_flags_are_refused(flags in 2u16..) {
        let mut bytes = launch(1, b"");
        bytes[2..4].copy_from_slice(&flags.to_le_bytes());
        prop_assert_eq!(Message::decode(&bytes), Err(DecodeError::Flags(flags)));
    }
}

#[test]
fn each_error_has_its_cause() {
    let good = launch(1, b"abc");
    let mut bytes = good.clone();
    bytes[0..2].copy_from_slice(&0u16.to_le_bytes());
    assert_eq!(Message::decode(&bytes), Err(DecodeError::Kind(0)), "kind 0 is no kind");
    let mut bytes = good.clone();
    bytes[12] = 1;
    assert_eq!(Message::decode(&bytes), Err(DecodeError::Flags(0)), "a join without its flag");
    bytes[2..4].copy_from_slice(&FLAG_JOIN.to_le_bytes());
    assert!(Message::decode(&bytes).is_ok());
    for size in [0u32, 16, 72, good.len() as u32 - 8, u32::MAX, area::RING_BYTES as u32 + 16] {
        let mut bytes = good.clone();
        bytes[4..8].copy_from_slice(&size.to_le_bytes());
        assert_eq!(Message::decode(&bytes), Err(DecodeError::Size(size)));
    }
    let mut bytes = good.clone();
    let at = size_of::<Header>() + core::mem::offset_of!(Launch, param_bytes);
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Message::decode(&bytes), Err(DecodeError::Tail(u64::from(u32::MAX))));
    let mut bytes = good;
    bytes.extend_from_slice(&[0; 16]);
    let longer = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&longer.to_le_bytes());
    assert_eq!(Message::decode(&bytes), Err(DecodeError::Tail(3)), "bytes that no field accounts for");
}

#[test]
fn runs_that_cannot_be_are_refused() {
    let good = PageRun { address: 0x20_0000, bytes: 0x20_0000 };
    let all = vec![good; RUNS_MAX as usize + 1];
    assert_eq!(runs(RUNS_MAX + 1, all.as_bytes()), Err(RunError::Count(RUNS_MAX + 1)));
    assert_eq!(runs(RUNS_MAX, all[1..].as_bytes()).unwrap().len(), RUNS_MAX as usize);
    assert_eq!(runs(0, &[]), Err(RunError::Count(0)));
    for (address, bytes) in [
        (0x20_0800, 0x1000),
        (0x20_0000, 0x1800),
        (0x20_0000, 0),
        (0xffff_ffff_ffff_f000, 0x1000),
        (0xffff_ffff_ffff_f000, 0x2000),
    ] {
        let bad = PageRun { address, bytes };
        assert_eq!(runs(2, [good, bad].as_bytes()), Err(RunError::Run(bad)));
    }
    let half = PageRun { address: 0, bytes: 1 << 63 };
    assert_eq!(runs(2, [half, half].as_bytes()), Err(RunError::Run(half)), "more than there can be");
}

#[test]
fn kinds_are_unique_and_round_trip() {
    let mut seen = std::collections::BTreeSet::new();
    for &kind in Kind::ALL {
        assert!(seen.insert(kind as u16), "{} has another's number", kind.name());
        assert_eq!(Kind::try_from(kind as u16), Ok(kind));
        assert_ne!(kind as u16, 0);
    }
}
