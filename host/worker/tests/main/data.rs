//! Tests of data that is copied to the device and back, with the same results as without a worker.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use vgpu_device::Limits;
use vgpu_host_testing::bench::address;
use vgpu_host_testing::commands::{LAUNCH, allocate};
use vgpu_host_testing::guest::{Function, Guest, message, until};
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut};
use vgpu_wire::body::graph::{GraphDefine, GraphLaunch};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::MemAlloc;
use vgpu_wire::body::pages::{PAGE_BYTES, PageRun, PagesRegister, PagesUnregister};
use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply, WindowFree};
use vgpu_wire::body::stream::{
    EventCreate, EventRecord, Signal, StreamCreate, StreamHold, StreamRelease, StreamWait,
};
use vgpu_wire::registers::channel;
use vgpu_wire::{Mark, Span, TABLE_DIGEST, WIRE_VERSION, area, pci};
use zerocopy::{FromBytes, IntoBytes};

use crate::bench::{WorkerBench, log_lines, worker_config};
use crate::probe;

pub fn launch(function: u32) -> Launch {
    Launch { function, ..LAUNCH }
}

fn window(guest: &mut Guest, bytes: u64) -> WindowAllocReply {
    let (status, data) = guest.call(WindowAlloc { reply: 0, reserved: 0, bytes }, &[]);
    assert_eq!(status, 0);
    WindowAllocReply::read_from_bytes(&data).expect("a range")
}

fn copy_in(guest: &mut Guest, destination: u64, source: Span, read: Mark, tail: &[u8]) {
    guest.send(&CopyIn { stream: 0, reserved: 0, destination, source, read }, tail);
}

fn copy_out(guest: &mut Guest, source: u64, destination: Span, written: Mark) {
    guest.send(&CopyOut { stream: 0, reserved: 0, source, destination, written }, &[]);
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Waits until all messages so far are carried out.
pub fn wait_until_done(guest: &Guest) {
    until("all is done", || guest.done() == guest.number);
}

pub fn copies_come_back_as_they_went() {
    let bench = WorkerBench::new("soft");
    let mut guest = bench.guest(0);
    let memory = allocate(&mut guest, 1 << 20);
    let staging = guest.area + area::STAGING;
    for round in 1..50 {
        // Inline, through the session's own area, and within the device.
        let data = pattern(0x8000, round as u8);
        copy_in(&mut guest, memory, Span::inline(0x4000), Mark::NONE, &data[..0x4000]);
        guest.function.put(staging, &data[0x4000..]);
        copy_in(&mut guest, memory + 0x4000, Span::bar(staging, 0x4000), Mark::new(1, round), &[]);
        guest.wait_word(1, round);
        let body = CopyDevice {
            stream: 0,
            reserved: 0,
            destination: memory + 0x8_0000,
            source: memory,
            bytes: 0x8000,
        };
        guest.send(&body, &[]);
        copy_out(&mut guest, memory + 0x8_0000, Span::bar(staging + 0x4000, 0x8000), Mark::new(2, round));
        guest.wait_word(2, round);
        assert_eq!(guest.function.get(staging + 0x4000, 0x8000), data);
        assert!(guest.word_time(2) > 0);
    }
    assert_eq!((guest.late(), bench.workers()), (None, (1, 1)));
    wait_until_done(&guest);
    // The device's process counts a message after it has forwarded it, which the worker may have done by then.
    let counted = || {
        let session = bench.session(0);
        session.done.min(session.messages) == guest.number
    };
    until("the figures", counted);
    let session = bench.session(0);
    assert_eq!((session.allocated, session.allocations, session.messages), (1 << 20, 1, guest.number));
    assert!(session.charged_bytes > 1 << 20);
    guest.detach();
    assert_eq!((bench.workers(), bench.status().allocated, bench.status().charged_bytes), ((1, 0), 0, 0));
}

pub fn launches_are_counted_with_what_the_device_answers_itself() {
    let bench = WorkerBench::new("null");
    let mut guest = bench.guest(3);
    guest.echo();
    wait_until_done(&guest);
    for round in 1..=200_u64 {
        for _ in 0..round * 7 % 300 {
            guest.send(&launch(1), &[]);
        }
        // The device's process answers this itself, before or after the worker has carried out earlier
        // messages.
        guest.echo();
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(5, round) }, &[]);
        guest.wait_word(5, round);
        if round % 3 == 0 {
            guest.echo();
        }
        wait_until_done(&guest);
    }
    until("the figures", || bench.session(3).done == guest.number);
    assert_eq!(bench.session(3).messages, guest.number);
    assert_eq!(guest.late(), None);
}

pub fn a_graph_whose_records_lie_in_the_window_is_launched() {
    let bench = WorkerBench::new("soft");
    let mut guest = bench.guest(1);
    let memory = allocate(&mut guest, 1 << 20);
    // The records of this many nodes are longer than any message.
    let nodes = 3000_u32;
    let mut records = Vec::new();
    for node in 0..nodes {
        let body = CopyIn {
            stream: 0,
            reserved: 0,
            destination: memory + u64::from(node) * 4,
            source: Span::inline(4),
            read: Mark::NONE,
        };
        let message = message(&body, &node.to_le_bytes(), 0);
        records.extend_from_slice(&(8 + message.len() as u32).to_le_bytes());
        records.extend_from_slice(&0_u32.to_le_bytes());
        records.extend_from_slice(&message);
    }
    let bytes = records.len() as u64;
    assert!(bytes > 2 * area::MESSAGE_MAX);
    let range = window(&mut guest, bytes);
    guest.function.put(range.offset, &records);
    let define = GraphDefine { graph: 1, nodes, flags: 0, records: Span::bar(range.offset, bytes) };
    guest.send(&define, &[]);
    guest.send(&GraphLaunch { graph: 1, stream: 0 }, &[]);
    let staging = guest.area + area::STAGING;
    copy_out(&mut guest, memory, Span::bar(staging, u64::from(nodes) * 4), Mark::new(1, 1));
    guest.wait_word(1, 1);
    let expected: Vec<u8> = (0..nodes).flat_map(u32::to_le_bytes).collect();
    assert_eq!((guest.late(), guest.function.get(staging, u64::from(nodes) * 4)), (None, expected));
}

/// Returns the ranges of the window that a process has mapped, as offset and end.
fn mapped(pid: u32) -> Vec<(u64, u64)> {
    let maps =
        std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("root reads the maps of any process");
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-')?;
        let offset = hex(fields[2]);
        fields.get(5)?.ends_with("resource2").then(|| (offset, offset + hex(end) - hex(start)))
    };
    maps.lines().filter_map(line).collect()
}

pub fn window_memory_is_mapped_while_it_is_the_sessions() {
    let bench = WorkerBench::new("soft");
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let before = window(&mut one, 0x1_0000);
    let foreign = window(&mut two, 0x3_0000);
    let memory = allocate(&mut one, 0x10_0000);
    allocate(&mut two, 0x1000);
    let after = window(&mut one, 0x2_0000);
    for range in [before, after] {
        let data = pattern(range.bytes as usize, 9);
        one.function.put(range.offset, &data);
        let value = one.number;
        copy_in(&mut one, memory, Span::bar(range.offset, range.bytes), Mark::new(1, value), &[]);
        one.wait_word(1, value);
        one.function.put(range.offset, &vec![0; range.bytes as usize]);
        copy_out(&mut one, memory, Span::bar(range.offset, range.bytes), Mark::new(2, value));
        one.wait_word(2, value);
        assert_eq!(one.function.get(range.offset, range.bytes), data);
    }
    let (first, second) = (bench.worker(0), bench.worker(1));
    let holds = |pid, offset: u64| mapped(pid).iter().any(|&(start, end)| (start..end).contains(&offset));
    if rustix::process::geteuid().is_root() {
        for offset in [one.area, one.returns(), before.offset, after.offset] {
            assert!(holds(first, offset), "{offset:#x} of {:x?}", mapped(first));
            assert!(!holds(second, offset), "{offset:#x} of {:x?}", mapped(second));
        }
        for offset in [two.area, foreign.offset, foreign.offset + 0x2_ffff] {
            assert!(holds(second, offset) && !holds(first, offset), "{offset:#x} of {:x?}", mapped(first));
        }
        let bytes: u64 = mapped(first).iter().map(|&(start, end)| end - start).sum();
        assert_eq!(bytes, area::AREA_BYTES + before.bytes + after.bytes);
    } else {
        // Only root can inspect workers any further.
        assert!(std::fs::File::open(format!("/proc/{first}/maps")).is_err());
    }
    one.send(&WindowFree { offset: before.offset }, &[]);
    until("the range is free", || bench.session(0).window_bytes == after.bytes);
    // The memory is reused only after the worker has released it.
    let again = window(&mut two, before.bytes);
    if again.offset == before.offset && rustix::process::geteuid().is_root() {
        assert!(!holds(first, before.offset));
        // The device's process answers before the worker has mapped the memory.
        until("its worker has it", || holds(second, before.offset));
    }
    copy_in(&mut one, memory, Span::bar(before.offset, 16), Mark::NONE, &[]);
    let ended = one.ended();
    assert_eq!((ended.0, ended.2), (999, one.number));
    two.echo();
}

pub fn guest_pages_are_found() {
    let bench = WorkerBench::new("soft");
    let ram =
        File::options().read(true).write(true).open(bench.folder().join("ram")).expect("the guest's memory");
    let config =
        File::open(bench.folder().join(format!("bus/pci/devices/{}/config", address()))).expect("a file");
    let mut key = [0; 8];
    config.read_exact_at(&mut key, pci::PAGES_KEY).expect("the key");
    let key = u64::from_le_bytes(key);
    let function = Function::open(bench.folder(), address());
    let at = |register| channel::base(2) + register;
    for (register, value) in [(channel::PAGES_KEY_LO, key), (channel::PAGES_KEY_HI, key >> 32)] {
        function.write(at(register), value as u32);
    }
    let mut guest =
        Guest::try_attach(function, 2, WIRE_VERSION, TABLE_DIGEST).unwrap_or_else(|(why, _)| panic!("{why}"));
    guest.hello();
    let run = |page: u64, pages: u64| PageRun { address: page * PAGE_BYTES, bytes: pages * PAGE_BYTES };
    let register = |guest: &mut Guest, segment, runs: &[PageRun]| {
        let body = PagesRegister { reply: 0, segment, runs: runs.len() as u32, reserved: 0 };
        assert_eq!(guest.call(body, runs.as_bytes()).0, 0);
    };
    // Before the worker starts, and after.
    register(&mut guest, 7, &[run(16, 2), run(4, 1)]);
    let memory = allocate(&mut guest, 0x1_0000);
    register(&mut guest, 8, &[run(32, 1)]);
    let data = pattern(3 * PAGE_BYTES as usize, 3);
    ram.write_all_at(&data[..0x2000], 16 * PAGE_BYTES).expect("pages");
    ram.write_all_at(&data[0x2000..], 4 * PAGE_BYTES).expect("a page");
    let span = |segment, offset, bytes| Span { segment, reserved: 0, offset, bytes };
    copy_in(&mut guest, memory, span(7, 0, 0x2000), Mark::NONE, &[]);
    copy_in(&mut guest, memory + 0x2000, span(7, 0x2000, 0x1000), Mark::NONE, &[]);
    copy_out(&mut guest, memory + 0x1800, span(8, 0, 0x1000), Mark::new(1, 1));
    guest.wait_word(1, 1);
    let mut back = vec![0; 0x1000];
    ram.read_exact_at(&mut back, 32 * PAGE_BYTES).expect("a page");
    assert_eq!(back, data[0x1800..0x2800]);
    // Answered when the worker has unmapped the pages, which may be registered again then.
    assert_eq!(guest.call(PagesUnregister { reply: 0, segment: 8 }, &[]).0, 0);
    register(&mut guest, 9, &[run(32, 1)]);
    copy_out(&mut guest, memory, span(9, 0, 0x1000), Mark::new(1, 2));
    guest.wait_word(1, 2);
    ram.read_exact_at(&mut back, 32 * PAGE_BYTES).expect("a page");
    assert_eq!((back.as_slice(), guest.late()), (&data[..0x1000], None));
}

pub fn errors_arrive_as_without_a_worker() {
    let bench = WorkerBench::new("soft");
    let (mut one, mut two) = (bench.guest(0), bench.guest(1));
    let memory = allocate(&mut two, 4096);
    // An address without an allocation is the program's mistake. The session survives it, with a lost
    // context.
    let number = {
        let body = CopyDevice { stream: 0, reserved: 0, destination: 0x1000, source: 0x2000, bytes: 16 };
        one.send(&body, &[])
    };
    until("a late error", || one.late().is_some());
    let (code, flags, message) = one.late().expect("just seen");
    assert_eq!((flags, message), (area::ERROR_STICKY, number));
    let (kernel, reason, address) = one.why(number).expect("an explanation");
    assert!(kernel.is_empty() && reason.contains("not allocated"), "{kernel}: {reason}");
    assert_eq!(address, Some(0x2000));
    assert_eq!(one.call(MemAlloc { reply: 0, flags: 0, bytes: 64 }, &[]).0, code);
    assert_eq!(one.call(vgpu_wire::body::memory::MemInfo { reply: 0, reserved: 0 }, &[]).0, code);
    one.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(1, 1) }, &[]);
    one.wait_word(1, 1);
    // An unknown handle ends the session, and is found by the worker.
    let number = two.send(&StreamWait { stream: 9, event: 1 }, &[]);
    assert_eq!(two.ended(), (999, area::ERROR_STICKY | area::ERROR_ENDED, number));
    assert_eq!(two.register(channel::ERROR), vgpu_wire::registers::Refusal::Violation as u32);
    let session = format!("session={}", two.register(channel::SESSION));
    let line = log_lines(&[
        "session ended: stream 9 is unknown",
        &format!("number={number}"),
        "kind=\"StreamWait\"",
    ]);
    assert!(line.iter().any(|line| line.contains(&session)), "{line:?}");
    one.echo();
    two.detach();
    let mut two = bench.guest(1);
    assert_eq!(allocate(&mut two, 4096), memory, "a process of its own has addresses of its own");
}

pub fn handles_that_were_refused_excuse_their_users() {
    let bench =
        WorkerBench::with(worker_config("soft"), Limits { streams: 1, events: 1, ..Limits::default() });
    let mut guest = bench.guest(0);
    let stream = |stream| StreamCreate { stream, flags: 0, priority: 0, reserved: 0 };
    guest.send(&stream(1), &[]);
    let number = guest.send(&stream(2), &[]);
    until("out of memory", || guest.late() == Some((2, 0, number)));
    guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
    let record = EventRecord { event: 1, stream: 2, mark: Mark::new(4, 1) };
    let number = guest.send(&record, &[]);
    until("an invalid handle", || guest.late() == Some((400, 0, number)));
    // The mark of the refused work is stored, so that nobody waits in vain.
    guest.wait_word(4, 1);
    guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::new(4, 2) }, &[]);
    guest.wait_word(4, 2);
    guest.echo();
    assert_eq!(guest.register(channel::STATE), channel::STATE_ATTACHED);
}

/// A release reaches a worker whose ring thread is in a call that returns only after that release.
pub fn a_release_overtakes_what_waits_for_it() {
    let bench = WorkerBench::new("probe");
    let mut guest = bench.guest(0);
    let (memory, data) = (allocate(&mut guest, 60 << 10), vec![7; 60 << 10]);
    for hold in 1..4 {
        guest.send(&StreamHold { stream: 0, hold, mark: Mark::NONE }, &[]);
        let waits = guest.send(&launch(probe::WAIT_FOR_RELEASE), &[]);
        // More than the worker's ring holds, so that the device's process cannot read on either.
        for _ in 0..18 {
            let source = Span::inline(60 << 10);
            let body = CopyIn { stream: 0, reserved: 0, destination: memory, source, read: Mark::NONE };
            guest.send(&body, &data);
        }
        let number = guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
        assert!(guest.done() < waits, "the worker waits");
        guest.store_release(hold);
        until("the release is carried out", || guest.done() >= number);
    }
    guest.echo();
}

pub fn a_sleeping_guest_is_woken() {
    let bench = WorkerBench::new("null");
    let mut guest = bench.guest(0);
    for value in 1..200 {
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(3, value) }, &[]);
        guest.sleep_for_word(3, value);
    }
    // Both sides have slept by now, and neither sleeps for ever.
    until("the worker sleeps", || guest.done() == guest.number);
    assert_eq!(
        guest.function.u64_at(guest.returns() + area::RETURN_DONE).load(Ordering::Acquire),
        guest.number
    );
}
