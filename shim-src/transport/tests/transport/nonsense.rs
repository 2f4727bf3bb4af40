//! Tests of devices of another version, devices that refuse, and devices that break the contract: each causes
//! an error and no other harm.

use std::time::{Duration, Instant};

use vgpu_transport::{
    AttachError, Device, Explanation, GoneReason, LateError, OpenError, Session, SessionError,
};
use vgpu_transport_bed::{attach_in, echo, functions, pattern, signal};
use vgpu_wire::body::session::{Echo, WindowAllocReply};
use vgpu_wire::registers::{self as reg, Refusal, channel};
use vgpu_wire::{Body, TABLE_DIGEST, WIRE_VERSION, area};
use zerocopy::IntoBytes;

use crate::fake::Fake;

fn good() -> Fake {
    Fake::new(Box::new(|_, _, _| false))
}

fn try_attach(fake: &Fake) -> Result<Session, AttachError> {
    Session::attach(Device::open(&functions(fake.dir())[0], None).unwrap())
}

const NONSENSE: SessionError = SessionError::Gone { reason: GoneReason::Nonsense };

#[test]
fn a_host_that_cannot_wake_is_waited_for_by_time() {
    let fake = Fake::new(Box::new(|_, _, message| {
        if matches!(message.body, Body::Signal(_)) {
            std::thread::sleep(Duration::from_millis(4));
        }
        false
    }));
    let session = attach_in(fake.dir());
    assert_eq!(session.facts().name[255], 0, "texts end");
    for cookie in 0..50 {
        echo(&session, cookie);
    }
    let word = session.word().unwrap();
    for _ in 0..50 {
        let mark = word.mark();
        session.send(&signal(mark), &[]).unwrap();
        session.wait(mark.word, mark.value).unwrap();
    }
    // A thread that returns late from a sleep finds the mark without another sleep.
    assert!(session.counters().sleeps >= 10, "{:?}", session.counters());
}

#[test]
fn another_version_is_named_on_both_sides() {
    let fake = good();
    fake.host().set(reg::V2_WIRE_VERSION, 0x0003_0001);
    let error = try_attach(&fake).unwrap_err();
    assert_eq!(error.to_string(), "the device speaks wire version 3.1, this program 2.1");
    fake.host().set(reg::V2_WIRE_VERSION, WIRE_VERSION);
    fake.host().set(reg::V2_DIGEST_LO, 0xabcd);
    fake.host().set(reg::V2_DIGEST_HI, 0);
    let error = try_attach(&fake).unwrap_err();
    let expected = format!(
        "device and program are different builds of wire version 2.1: message table 0x000000000000abcd there, {TABLE_DIGEST:#018x} here"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn refusals_are_told() {
    let fake = good();
    let error = channel::base(0) + channel::ERROR;
    fake.host().set(error, Refusal::Executor as u32);
    assert!(matches!(try_attach(&fake), Err(AttachError::Refused(Refusal::Executor))));
    fake.host().set(error, Refusal::Version as u32);
    assert!(matches!(try_attach(&fake), Err(AttachError::Version { guest: WIRE_VERSION, .. })));
    fake.host().set(error, 99);
    assert!(matches!(try_attach(&fake), Err(AttachError::RefusedStrangely(99))));
    fake.host().set(error, 0);
    try_attach(&fake).unwrap();
}

#[test]
fn a_version_1_device_is_recognised() {
    let fake = good();
    fake.host().set(reg::PROTOCOL_VER, reg::PROTOCOL_V1);
    fake.host().set(reg::CAPABILITIES, 0x71);
    let function = &functions(fake.dir())[0];
    let error = Device::open(function, None).unwrap_err();
    assert!(matches!(error, OpenError::Version1 { capabilities: 0x71, .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "0000:00:05.0 says version 1 of the VGPU-STUB contract (capabilities 0x71), and has BARs of version 2"
    );
    fake.host().set(reg::CAPABILITIES, 0);
    assert!(matches!(Device::open(function, None), Err(OpenError::Strange { .. })));
    fake.host().set(reg::PROTOCOL_VER, reg::ALL_ONES);
    assert!(matches!(Device::open(function, None), Err(OpenError::Gone { .. })));
}

#[test]
fn places_that_cannot_be_are_refused() {
    let fake = good();
    let function = &functions(fake.dir())[0];
    for (register, value) in [
        (reg::V2_CHANNELS, 0),
        (reg::V2_CHANNELS, 65),
        (reg::V2_CHANNELS, 64),
        (reg::V2_AREA_STRIDE, 0x1000),
        (reg::V2_AREA_STRIDE, 0x8_0001),
        (reg::V2_AREA_BASE_LO, 8),
        (reg::V2_AREA_BASE_LO, 0x40_0000),
        (reg::V2_AREA_BASE_HI, u32::MAX),
        (reg::V2_WINDOW_MIB, 0),
        (reg::V2_WINDOW_MIB, 1024),
    ] {
        let before = match register {
            reg::V2_CHANNELS => 1,
            reg::V2_AREA_STRIDE => area::AREA_BYTES as u32,
            reg::V2_WINDOW_MIB => 4,
            _ => 0,
        };
        fake.host().set(register, value);
        let error = Device::open(function, None).unwrap_err();
        let strange = matches!(error, OpenError::Strange { .. } | OpenError::ShortWindow { .. });
        assert!(strange, "{register:#x} = {value:#x}: {error}");
        fake.host().set(register, before);
    }
    Device::open(function, None).unwrap();
}

#[test]
fn a_return_area_that_is_not_empty_is_refused() {
    let fake = good();
    // The answer to message 1 of the session before.
    fake.host().put64(area::RETURN_REPLIES + area::REPLY_TICKET, 1);
    assert!(matches!(try_attach(&fake), Err(AttachError::Strange(_))));
}

#[test]
fn greetings_that_cannot_be_are_refused() {
    for (status, len) in [(0, 3), (0, 5000), (0, u32::MAX), (3, 0)] {
        let fake = Fake::new(Box::new(move |host, number, message| {
            let Body::Hello(hello) = message.body else { return false };
            host.reply(hello.reply, number, status, len, &[]);
            true
        }));
        let error = try_attach(&fake).unwrap_err();
        let expected = match (status, len) {
            (3, _) => matches!(error, AttachError::Greeting(3)),
            (_, 3) => matches!(error, AttachError::Strange(_)),
            _ => matches!(error, AttachError::Lost(NONSENSE)),
        };
        assert!(expected, "{status} {len}: {error}");
    }
}

#[test]
fn an_answer_that_is_too_long_ends_the_session() {
    let fake = Fake::new(Box::new(|host, number, message| {
        let Body::Echo(echo) = message.body else { return false };
        host.reply(echo.reply, number, 0, area::REPLY_DATA_MAX as u32 + 1, &[]);
        true
    }));
    let session = attach_in(fake.dir());
    let mut reply = [0; 8];
    let call = session.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut reply);
    assert_eq!(call, Err(NONSENSE));
    assert_eq!(session.check(), Err(NONSENSE));
    assert_eq!(NONSENSE.code(), 46);
}

#[test]
fn heads_that_cannot_be_end_the_session() {
    for head in [u64::MAX, 1 << 40] {
        let fake = Fake::new(Box::new(move |host, _, message| {
            if matches!(message.body, Body::Signal(_)) {
                host.put64(area::RETURN_HEAD, head);
                // The pause is long enough for the guest to see the value.
                std::thread::sleep(Duration::from_millis(300));
            }
            false
        }));
        let session = attach_in(fake.dir());
        let word = session.word().unwrap();
        let lost = loop {
            if let Err(lost) = session.send(&signal(word.mark()), &[]) {
                break lost;
            }
        };
        assert_eq!(lost, NONSENSE);
    }
}

#[test]
fn window_memory_where_there_is_none_ends_the_session() {
    let given = |offset, bytes| WindowAllocReply { offset, bytes };
    for reply in [
        given(0, 1 << 16),
        given(0x4_0000, 1 << 16),
        given(0x8_0001, 1 << 16),
        given(0x8_0000, 16),
        given(0x8_0000, u64::MAX),
        given(0x40_0000, 1 << 16),
        given(0x3f_0000, 1 << 17),
        given(u64::MAX - 0xffff, 1 << 16),
    ] {
        let fake = Fake::new(Box::new(move |host, number, message| {
            let Body::WindowAlloc(alloc) = message.body else { return false };
            host.reply(alloc.reply, number, 0, 16, reply.as_bytes());
            true
        }));
        let session = attach_in(fake.dir());
        assert_eq!(session.window_alloc(1 << 16).map(drop), Err(NONSENSE), "{reply:?}");
    }
    let fake = Fake::new(Box::new(move |host, number, message| {
        let Body::WindowAlloc(alloc) = message.body else { return false };
        host.reply(alloc.reply, number, 0, 16, given(0x3f_0000, 1 << 16).as_bytes());
        true
    }));
    let session = attach_in(fake.dir());
    let memory = session.window_alloc(1 << 16).unwrap().unwrap();
    // SAFETY: mapped, and nobody else uses it.
    unsafe { memory.ptr().write_bytes(1, 1 << 16) };
}

#[test]
fn errors_without_a_code_or_a_number_are_errors() {
    let fake = good();
    let session = attach_in(fake.dir());
    fake.host().put64(area::RETURN_ERROR_MESSAGE, 5);
    let error = LateError { code: 999, sticky: false, ended: false, message: 5 };
    assert_eq!(session.late_error(), Some(error));
    fake.host().put32(area::RETURN_ERROR_FLAGS, u32::MAX);
    assert_eq!(session.check(), Err(SessionError::Ended { code: 999, message: 5 }));
    assert!(session.late_error().is_some_and(|error| error.ended && error.sticky));
}

/// A host's explanation is shown to a user: its length is limited by its fields, and it contains no terminal
/// control characters.
#[test]
fn an_explanation_is_read_as_far_as_it_makes_sense() {
    let fake = good();
    let session = attach_in(fake.dir());
    let host = fake.host();
    let error = LateError { code: 700, sticky: true, ended: false, message: 5 };
    assert_eq!(session.explain(&error), None, "a host that explains nothing");
    host.put(area::RETURN + area::RETURN_WHY_TEXT, b"_Z1kvillegal\x1b[2J \xff");
    host.put32(area::RETURN_WHY_BYTES, 18);
    host.put32(area::RETURN_WHY_KERNEL, 5);
    host.put64(area::RETURN_WHY_AT, 0x10);
    host.put64(area::RETURN_WHY, 5);
    let explained =
        Explanation { kernel: "_Z1kv".into(), reason: "illegal [2J \u{fffd}".into(), address: None };
    assert_eq!(session.explain(&error), Some(explained.clone()));
    host.put32(area::RETURN_WHY_FLAGS, u32::MAX);
    assert_eq!(session.explain(&error), Some(Explanation { address: Some(0x10), ..explained }));
    host.put32(area::RETURN_WHY_BYTES, u32::MAX);
    host.put32(area::RETURN_WHY_KERNEL, u32::MAX);
    let most = session.explain(&error).unwrap();
    assert!(most.kernel.len() <= 3 * area::WHY_TEXT_MAX && most.reason.is_empty(), "{most:?}");
    for other in [0, 4] {
        host.put64(area::RETURN_WHY, other);
        assert_eq!(session.explain(&error), None, "that of message {other}");
    }
}

/// Changes a register during a session. Returns the error of a wait and the time until it.
fn lost_by(register: u32, value: u32) -> (SessionError, Duration) {
    let fake = good();
    let session = attach_in(fake.dir());
    let word = session.word().unwrap();
    fake.host().set(register, value);
    let start = Instant::now();
    let lost = session.wait(word.index(), 1).unwrap_err();
    (lost, start.elapsed())
}

#[test]
fn what_says_that_a_device_is_gone_is_believed_within_a_second() {
    for (register, value, reason) in [
        (reg::V2_GENERATION, 0x1235, GoneReason::Generation),
        (reg::V2_GENERATION, reg::ALL_ONES, GoneReason::AllOnes),
        (channel::base(0) + channel::SESSION, 78, GoneReason::Channel),
    ] {
        // Other processes may take the processors for a second, but not each time.
        let mut times = Vec::new();
        while times.last().is_none_or(|&took| took >= Duration::from_secs(1)) {
            assert!(times.len() < 5, "{times:?}");
            let (lost, took) = lost_by(register, value);
            assert_eq!(lost, SessionError::Gone { reason });
            times.push(took);
        }
    }
}

#[test]
fn a_silent_host_is_waited_for() {
    let fake = Fake::new(Box::new(|_, _, message| {
        if matches!(message.body, Body::Echo(_)) {
            std::thread::sleep(Duration::from_millis(2500));
        }
        false
    }));
    let session = attach_in(fake.dir());
    echo(&session, 1);
    assert!(session.counters().doorbells == 0, "it never said that it sleeps");
}

/// With any contents of the return area, every call returns a reply or an error, at the latest when the
/// session is closed.
#[test]
fn no_garbage_in_the_return_area_does_harm() {
    for seed in 1..=24u64 {
        let state = std::sync::Mutex::new(pattern(seed, 1 << 16).into_iter().cycle());
        let fake = Fake::new(Box::new(move |host, _, message| {
            if matches!(message.body, Body::Hello(_)) {
                return false;
            }
            let mut random = state.lock().unwrap();
            let mut next = |below: u64| {
                let bytes: [u8; 4] = std::array::from_fn(|_| random.next().unwrap());
                u64::from(u32::from_le_bytes(bytes)) % below
            };
            // Some values are stored where the guest relies on them, some anywhere, and at times the correct
            // reply is stored.
            for _ in 0..next(6) {
                let value = if next(2) == 0 { next(64) } else { u64::MAX - next(1 << 20) };
                match next(5) {
                    0 => host.put64(area::RETURN_HEAD, value),
                    1 => host.put64(area::RETURN_REPLIES + next(40) * 0x400, value),
                    2 => host.put64(area::RETURN_WORDS + next(2048) * 8, value),
                    3 => host.put64(0x40 * next(4), value),
                    _ => host.put64(next(area::RETURN_BYTES / 8) * 8, value),
                }
            }
            next(3) == 0
        }));
        let session = attach_in(fake.dir());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let word = session.word();
                let mut bytes = vec![0u8; 300_000];
                for count in 0..200 {
                    let mut reply = [0; 64];
                    let _ = session.call(Echo { reply: 0, reserved: 0, cookie: count }, &[], &mut reply);
                    let _ = session.late_error();
                    if let Some(word) = &word {
                        let mark = word.mark();
                        let _ = session.send(&signal(mark), &[]);
                        let _ = session.wait(mark.word, mark.value);
                    }
                    let _ = session.window_alloc(1 << 16);
                    // SAFETY: the vector has that many bytes.
                    let _ = unsafe { session.copy_in(0, 0, bytes.as_ptr(), bytes.len()) };
                    // SAFETY: the vector has that many bytes and is used by nobody else.
                    let _ = unsafe { session.copy_out(0, 0, bytes.as_mut_ptr(), bytes.len()) };
                    if session.check().is_err() {
                        break;
                    }
                }
            });
            std::thread::sleep(Duration::from_millis(60));
            session.close();
        });
    }
}
