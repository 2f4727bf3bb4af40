//! Tests that every violation by a guest ends its session, and only its session.

use vgpu_device::DeviceConfig;
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{Bench, address, config, gpu};
use vgpu_host_testing::commands::{self, FILL, log};
use vgpu_host_testing::guest::{Function, Guest, end, message, until};
use vgpu_wire::body::copy::{CopyIn, CopyOut, Fill};
use vgpu_wire::body::graph::{GraphDefine, GraphDestroy, GraphLaunch, GraphUpdate};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::MemAlloc;
use vgpu_wire::body::module::ModuleOpen;
use vgpu_wire::body::session::{Echo, Hello, Pad, WindowFree};
use vgpu_wire::body::stream::{EventDestroy, Join, Signal, StreamCreate, StreamDestroy, StreamWait};
use vgpu_wire::registers::{Refusal, channel};
use vgpu_wire::{FLAG_JOIN, Header, Mark, Payload, SEGMENT_INLINE, Span, TABLE_DIGEST, area};

use crate::memory::allocate;
use crate::sessions::{signal, window_alloc};

const ENDED: u32 = area::ERROR_STICKY | area::ERROR_ENDED;

/// Runs `wrong`, in which a guest that holds memory breaks the contract once. Checks that it loses its
/// session with a log line that contains `reason`, and that a second guest continues.
fn wrong(reason: &str, wrong: impl FnOnce(&mut Guest) -> u64) {
    log();
    let bench = Bench::soft();
    let (mut guest, mut other) = (bench.guest(0), bench.guest(1));
    allocate(&mut guest, 1 << 20).unwrap();
    let kept = allocate(&mut other, 1 << 20).unwrap();
    window_alloc(&mut guest, 1 << 20).unwrap();
    let session = guest.register(channel::SESSION);
    let number = wrong(&mut guest);
    assert_eq!(guest.ended(), (999, ENDED, number), "{reason}");
    assert_eq!(guest.register(channel::STATE), channel::STATE_FAILED);
    assert_eq!(guest.register(channel::ERROR), Refusal::Violation as u32);
    assert_eq!(guest.register(channel::SESSION), session);
    // Its memory is free, and the host reads no more messages.
    assert_eq!(bench.allocated(), 1 << 20, "{reason}");
    let failed = bench.session(0).unwrap();
    assert_eq!((failed.state.as_str(), failed.allocated), ("failed", 0));
    let head = guest.head();
    guest.send(&signal(1, 1 << 40), &[]);
    other.echo();
    assert_eq!((guest.head(), guest.word(1) < 1 << 40), (head, true));
    assert_eq!(other.late(), None);
    assert_eq!(crate::memory::read_back(&mut other, kept, 16), [0; 16]);
    // The log names device, session, message and reason.
    let text = log();
    let (session, number) = (format!("session={session} "), format!("number={number} "));
    let parts =
        ["WARN", "session ended", reason, "device=0000:00:05.0", "channel=0", &session, &number, "kind="];
    let said = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(said, "no line says {parts:?}:\n{text}");
    // The channel can be used again, and so can its window memory.
    let mut next = bench.guest(0);
    assert_eq!(bench.session(0).unwrap().window_bytes, 0);
    assert_eq!((next.register(channel::ERROR), next.late()), (0, None));
    next.echo();
}

/// Does the same as [`wrong`] with one message without a tail.
fn wrong_message<P: Payload>(reason: &str, body: &P) {
    wrong(reason, |guest| guest.send(body, &[]));
}

/// A device that does not announce an extension ends a session that uses it, as a device does that does not
/// know the extension.
#[test]
fn what_was_not_announced_is_no_message() {
    use vgpu_device::{Executor, ExecutorError, Session, SessionHost};
    use vgpu_wire::body::vector::{VECTOR_DOT, VectorOp};
    use vgpu_wire::facts::{DeviceFacts, exec};
    use zerocopy::FromZeros;

    struct Older(Soft);

    impl Executor for Older {
        fn name(&self) -> &'static str {
            "older"
        }

        fn facts(&self) -> DeviceFacts {
            let facts = self.0.facts();
            DeviceFacts { abilities: facts.abilities & !exec::VECTORS, ..facts }
        }

        fn allocated(&self) -> u64 {
            self.0.allocated()
        }

        fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
            self.0.open(host)
        }
    }

    let mut body = VectorOp::new_zeroed();
    body.operation = VECTOR_DOT;
    let bench = Bench::with(config(Older(Soft::new(&gpu()).unwrap())));
    let mut guest = bench.guest(0);
    let number = guest.send(&body, &[]);
    assert_eq!(guest.ended(), (999, ENDED, number));
    // On a device with the extension, the address is the program's error.
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    guest.send(&body, &[]);
    guest.echo();
    assert_eq!(guest.late().map(|(code, flags, _)| (code, flags)), Some((700, area::ERROR_STICKY)));
}

/// A guest without a session, and one that starts session after session only to lose each, write no more
/// lines to the host's log than the device's budget allows. Without the budget, each attempt would write a
/// line.
#[test]
fn lines_of_refused_attaches_and_lost_sessions_have_a_limit() {
    const VERSION: u32 = 0x00ba_dbad;
    const EVENT: u32 = 0x00ab_cdef;
    let lines = |what: &str| log().lines().filter(|line| line.contains(what)).count();
    let bench = Bench::soft();
    let mut function = Some(Function::open(bench.folder(), address()));
    let mut attach = |times: usize| {
        for _ in 0..times {
            let refused = Guest::try_attach(function.take().expect("a device"), 0, VERSION, TABLE_DIGEST);
            function = Some(refused.err().expect("another version is refused").1);
        }
    };
    // The budget grows by ten lines per second, and refused attaches are far more frequent.
    let refused = format!("guest_version={VERSION:#010x}");
    let mut attaches = 0;
    while lines(&refused) == attaches && attaches < 50_000 {
        attach(500);
        attaches += 500;
    }
    assert!(lines(&refused) < attaches, "{attaches} refused attaches wrote a line each");
    let ended = format!("event {EVENT} is unknown");
    let mut sessions = 0;
    while lines(&ended) == sessions && sessions < 200 {
        attach(200);
        let mut guest = bench.guest(0);
        guest.send(&EventDestroy { event: EVENT, reserved: 0 }, &[]);
        guest.ended();
        guest.detach();
        sessions += 1;
    }
    assert!(lines(&ended) < sessions, "{sessions} lost sessions wrote a line each");
}

#[test]
fn window_memory_stays_until_the_guest_detaches() {
    let bench = Bench::soft();
    let mut guest = bench.guest(0);
    window_alloc(&mut guest, 1 << 20).unwrap();
    guest.send_bytes(&[0xff; 16]);
    guest.ended();
    // The guest may still write to it.
    assert_eq!(bench.session(0).unwrap().window_bytes, 1 << 20);
    let next = bench.guest(0);
    assert_eq!((next.late(), bench.session(0).unwrap().window_bytes), (None, 0));
}

/// Sends the next message with its bytes changed by `change`, and returns its number.
fn changed<P: Payload>(guest: &mut Guest, body: &P, tail: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> u64 {
    let mut bytes = message(body, tail, guest.number as u32 + 1);
    change(&mut bytes);
    guest.send_bytes(&bytes)
}

fn echo(reply: u32) -> Echo {
    Echo { reply, reserved: 0, cookie: 1 }
}

#[test]
fn bytes_that_are_no_message() {
    for (reason, at, bytes) in [
        ("there is no message kind 0x0000", 0, &[0][..]),
        ("there is no message kind 0xffff", 0, &[0xff; 2]),
        ("flags 0x0002 are unknown", 2, &[2]),
        ("flags 0x0000 are unknown or contradict", 12, &[1]),
        ("a message of 16 bytes is not one of its kind", 4, &[16]),
        ("a message of 40 bytes is not one of its kind", 4, &[40]),
        ("a message of 0 bytes is not one of its kind", 4, &[0]),
        ("shorter than its header says", 4, &[64]),
        ("a message of 131072 bytes", 4, &[0, 0, 2, 0]),
        ("the message's number is 99, not", 8, &[99]),
        ("the message's number is 0, not", 8, &[0; 4]),
    ] {
        wrong(reason, |guest| {
            changed(guest, &echo(0), &[], |message| message[at..at + bytes.len()].copy_from_slice(bytes))
        });
    }
    wrong("a tail of 100 bytes does not fit", |guest| {
        let body = Launch { param_bytes: 100, ..LAUNCH };
        changed(guest, &body, &[0; 16], |_| {})
    });
    wrong("a tail of 18446744073709551615 bytes does not fit", |guest| {
        let source = Span { segment: SEGMENT_INLINE, reserved: 0, offset: 0, bytes: u64::MAX };
        changed(guest, &CopyIn { source, ..COPY_IN }, &[], |_| {})
    });
}

const LAUNCH: Launch = Launch { function: 1, ..commands::LAUNCH };
const COPY_IN: CopyIn =
    CopyIn { stream: 0, reserved: 0, destination: 0, source: Span::inline(0), read: Mark::NONE };
const COPY_OUT: CopyOut =
    CopyOut { stream: 0, reserved: 0, source: 0, destination: Span::bar(0, 0), written: Mark::NONE };

#[test]
fn a_ring_that_cannot_be() {
    // A message wraps, because the pad before the end is too short.
    wrong("wraps", |guest| {
        while guest.tail % area::RING_BYTES != area::RING_BYTES - 16 {
            let room = area::RING_BYTES - 16 - guest.tail % area::RING_BYTES;
            let tail = room.min(0x8000) - size_of::<Header>() as u64;
            guest.send(&Pad {}, &vec![0; tail as usize]);
        }
        guest.number += 1;
        let bytes = message(&echo(0), &[], guest.number as u32);
        guest.function.put(guest.area + area::RING + area::RING_BYTES - 16, &bytes[..16]);
        guest.function.put(guest.area + area::RING, &bytes[16..]);
        guest.publish_tail(guest.tail + 32);
        guest.tail += 32;
        guest.number
    });
    for (reason, step) in [
        ("the ring's tail", 8),
        ("the ring's tail", area::RING_BYTES + 16),
        ("the ring's tail", 0u64.wrapping_sub(16)),
    ] {
        wrong(reason, |guest| {
            until("the host to be idle", || guest.head() == guest.tail);
            guest.publish_tail(guest.tail.wrapping_add(step));
            guest.number + 1
        });
    }
}

#[test]
fn numbers_and_greetings() {
    wrong_message("a session begins with one Hello", &Hello { reply: 0, process: 0, reserved: 0 });
    log();
    let bench = Bench::soft();
    for first in [message(&echo(0), &[], 1), message(&Pad {}, &[], 1), vec![0xff; 32]] {
        let function = Function::open(bench.folder(), address());
        end(&function, 0);
        let mut guest = Guest::attach_silently(function, 0);
        guest.send_bytes(&first);
        assert_eq!(guest.ended(), (999, ENDED, 1));
    }
}

#[test]
fn slots_words_and_fields() {
    wrong_message("there is no reply slot 32", &echo(area::REPLIES));
    wrong_message("there is no reply slot 4294967295", &MemAlloc { reply: u32::MAX, flags: 0, bytes: 1 });
    wrong_message("there is no completion word 1024", &signal(area::WORDS, 1));
    wrong("word 9 was promised 5 and then 4", |guest| {
        guest.send(&signal(9, 5), &[]);
        guest.send(&signal(10, 1), &[]);
        guest.send(&signal(9, 5), &[]);
        guest.send(&signal(9, 4), &[])
    });
    wrong_message(
        "a reserved field is not zero",
        &Signal { stream: 0, reserved: 0, mark: Mark { word: 1, reserved: 1, value: 1 } },
    );
    wrong_message("a reserved field is not zero", &Echo { reply: 0, reserved: 1, cookie: 0 });
    wrong_message("the fill's element size is 0x3", &Fill { element: 3, height: 0, ..FILL });
    wrong_message("the launch's flags is 0x8", &Launch { flags: 8, ..LAUNCH });
    wrong("the launch's parameter size is 0x7ffd", |guest| {
        guest.send(&Launch { param_bytes: 32765, ..LAUNCH }, &vec![0; 32765])
    });
    wrong_message("the allocation's flags is 0x2", &MemAlloc { reply: 0, flags: 2, bytes: 1 });
    wrong("the image's kind is 0x7", |guest| {
        guest.send(&ModuleOpen { reply: 0, module: 1, image: 7, reserved: 0, bytes: 1, digest: [0; 32] }, &[])
    });
}

#[test]
fn spans_that_are_not_the_sessions() {
    let foreign = "are not the session's";
    let bar = |offset: u64, bytes: u64| CopyIn { source: Span::bar(offset, bytes), ..COPY_IN };
    // Spans in the other guest's area, in free window memory, beyond the window, with an overflow, and one
    // byte too long.
    for offset in [area::AREA_BYTES, 0x70_0000, 1 << 40, u64::MAX - 7, area::AREA_BYTES - 8] {
        wrong_message(foreign, &bar(offset, 16));
    }
    wrong(foreign, |guest| {
        let mine = window_alloc(guest, 1).unwrap();
        guest.send(&bar(mine.offset, mine.bytes), &[]);
        guest.send(&CopyOut { destination: Span::bar(mine.offset + 1, mine.bytes), ..COPY_OUT }, &[])
    });
    // Window memory that was freed.
    wrong(foreign, |guest| {
        let mine = window_alloc(guest, 1).unwrap();
        guest.send(&WindowFree { offset: mine.offset }, &[]);
        guest.send(&bar(mine.offset, 1), &[])
    });
    wrong("was not allocated by the session", |guest| {
        let mine = window_alloc(guest, 1).unwrap();
        guest.send(&WindowFree { offset: mine.offset }, &[]);
        guest.send(&WindowFree { offset: mine.offset }, &[])
    });
    wrong("segment 0x5 is not the session's", |guest| {
        let source = Span { segment: 5, reserved: 0, offset: 0, bytes: 0 };
        guest.send(&CopyIn { source, ..COPY_IN }, &[])
    });
    wrong_message(
        "segment 0xffffffff is not the session's",
        &CopyOut { destination: Span::inline(0), ..COPY_OUT },
    );
    wrong("a reserved field is not zero", |guest| {
        let source = Span { segment: SEGMENT_INLINE, reserved: 0, offset: 4, bytes: 0 };
        guest.send(&CopyIn { source, ..COPY_IN }, &[])
    });
}

#[test]
fn handles_that_nobody_minted() {
    wrong_message("stream 7 is unknown", &CopyIn { stream: 7, ..COPY_IN });
    wrong_message("stream 7 is unknown", &StreamDestroy { stream: 7, reserved: 0 });
    wrong_message("stream 7 is unknown", &Join { stream: 7, reserved: 0 });
    wrong("stream 9 is unknown", |guest| {
        changed(guest, &echo(0), &[], |b| {
            b[2] = FLAG_JOIN as u8;
            b[12] = 9;
        })
    });
    wrong_message("event 3 is unknown", &StreamWait { stream: 0, event: 3 });
    wrong_message("event 3 is unknown", &EventDestroy { event: 3, reserved: 0 });
    wrong_message(
        "the new stream's number is 0x0",
        &StreamCreate { stream: 0, flags: 0, priority: 0, reserved: 0 },
    );
    wrong("stream 4 is in use", |guest| {
        let create = StreamCreate { stream: 4, flags: 0, priority: 0, reserved: 0 };
        guest.send(&create, &[]);
        guest.send(&create, &[])
    });
    wrong_message("graph 4 is unknown", &GraphLaunch { graph: 4, stream: 0 });
    wrong_message("graph 4 is unknown", &GraphDestroy { graph: 4, reserved: 0 });
    wrong_message(
        "graph 4 is unknown",
        &GraphUpdate { graph: 4, nodes: 0, reserved: 0, records: Span::inline(0) },
    );
}

fn node(message: &[u8]) -> Vec<u8> {
    [&(8 + message.len() as u32).to_le_bytes()[..], &[0; 4], message].concat()
}

#[test]
fn graph_payloads_are_walked() {
    let define = |nodes: u32, payload: &[u8]| {
        let records = Span::inline(payload.len() as u64);
        (GraphDefine { graph: 1, nodes, flags: 0, records }, payload.to_vec())
    };
    for (reason, nodes, payload) in [
        ("its head is cut off", 1, vec![]),
        ("there is no such record", 0, node(&message(&signal(0, 0), &[], 0))),
        ("has a number or flags", 1, node(&message(&signal(0, 0), &[], 1))),
        ("Echo cannot be a node", 1, node(&message(&echo(0), &[], 0))),
        ("there is no completion word 2000", 1, node(&message(&signal(2000, 0), &[], 0))),
        (
            "are not the session's",
            1,
            node(&message(&CopyIn { source: Span::bar(1 << 30, 1), ..COPY_IN }, &[], 0)),
        ),
    ] {
        wrong(reason, |guest| {
            let (body, payload) = define(nodes, &payload);
            guest.send(&body, &payload)
        });
    }
    // A valid payload in the window reaches the executor. This is the null executor, which accepts launches
    // of kernels that were never loaded.
    let bench = Bench::null();
    let mut guest = bench.guest(0);
    let payload = [node(&message(&signal(1, 1), &[], 0)), node(&message(&LAUNCH, &[], 0))].concat();
    let window = window_alloc(&mut guest, 1).unwrap();
    guest.function.put(window.offset, &payload);
    let records = Span::bar(window.offset, payload.len() as u64);
    guest.send(&GraphDefine { graph: 1, nodes: 2, flags: 0, records }, &[]);
    let mut patch = node(&message(&Launch { function: 2, ..LAUNCH }, &[], 0));
    patch[4] = 1;
    guest.send(
        &GraphUpdate { graph: 1, nodes: 1, reserved: 0, records: Span::inline(patch.len() as u64) },
        &patch,
    );
    guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[]);
    guest.send(&GraphDestroy { graph: 1, reserved: 0 }, &[]);
    guest.echo();
    assert_eq!(guest.late(), None);
}

#[test]
fn graph_payloads_have_a_limit() {
    let soft = Soft::new(&gpu()).unwrap();
    let bench = Bench::with(DeviceConfig { window_bytes: 128 << 20, ..config(soft) });
    let mut guest = bench.guest(0);
    let window = window_alloc(&mut guest, 65 << 20).unwrap();
    let records = Span::bar(window.offset, (64 << 20) + 1);
    let number = guest.send(&GraphDefine { graph: 1, nodes: 1, flags: 0, records }, &[]);
    assert_eq!(guest.ended(), (999, ENDED, number));
}
