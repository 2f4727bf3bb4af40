//! Tests of what continues while a call of the driver does not return, such as one that compiles: the ring is
//! read, marks are stored, and nobody else waits.

use serde_json::json;
use vgpu_host_testing::commands::{
    KERNELS, LAUNCH, allocate, function, launch, load, params, send_module, stream, synchronize, window,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::{CopyIn, CopyOut, Fill};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::module::{FunctionGet, ModuleLoad, ModuleUnload};
use vgpu_wire::body::stream::{EventCreate, EventRecord, Signal, StreamHold, StreamRelease};
use vgpu_wire::registers::channel;
use vgpu_wire::{Mark, Span};

use crate::gpu::RecordedGpu;

/// First completion word for marks of this module.
const WORD: u32 = 910;
/// Name of the call that compiles.
const COMPILE: &str = "cuModuleLoadDataEx";
/// Reply slot of the call that waits. Other calls use other slots.
const SLOT: u32 = 7;

/// Starts to load a module, without waiting for the answer, and returns the number of the message.
fn start_to_load(guest: &mut Guest, module: u32) -> u64 {
    assert_eq!(send_module(guest, module, KERNELS), Ok(false));
    guest.send(&ModuleLoad { reply: SLOT, module }, &[])
}

/// Marks of plain work, of a download and of a timed event are stored, on two streams.
#[test]
fn the_ring_is_read_and_marks_are_stored_while_code_is_compiled() {
    // The GPU stores no words here, so that the executor has to store all marks.
    for memory_operations in [true, false] {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "memory_operations": memory_operations }));
        let (memory, place) = (allocate(&mut guest, 4096), window(&mut guest, 4096));
        stream(&mut guest, 1, 1);
        load(&mut guest, 1);
        gpu.hold();
        let (element, width, height, pitch) = (4, 16, 1, 0);
        let fill =
            Fill { stream: 0, value: 7, element, reserved: 0, destination: memory, pitch, width, height };
        guest.send(&fill, &[]);
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(WORD, 1) }, &[]);
        guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
        guest.send(&EventRecord { event: 1, stream: 0, mark: Mark::new(WORD + 1, 1) }, &[]);
        let (destination, written) = (Span::bar(place, 64), Mark::new(WORD + 2, 1));
        guest.send(&CopyOut { stream: 1, reserved: 0, source: memory, destination, written }, &[]);

        gpu.recording.hold_call(COMPILE).unwrap();
        let number = start_to_load(&mut guest, 2);
        until("the compiler has been called", || gpu.recording.has_held(COMPILE));
        // Another thread of the guest synchronizes, and submits more work.
        guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(WORD + 5, 1) }, &[]);
        guest.send(&fill, &[]);
        guest.echo();
        assert_eq!([0, 1, 2, 5].map(|word| guest.word(WORD + word)), [0; 4], "the work is held");
        gpu.release();
        for word in [0, 1, 2, 5] {
            guest.wait_word(WORD + word, 1);
        }
        assert_eq!(gpu.count(COMPILE), 1, "and the compiler has not returned a second time");

        gpu.recording.release_call(COMPILE).unwrap();
        assert_eq!(guest.answer(SLOT, number).0, 0);
        synchronize(&mut guest);
        gpu.check_all(&guest);
    }
}

/// A message that names a module waits until the module is loaded, even if the guest did not wait for the
/// answer.
#[test]
fn what_names_a_module_that_is_being_loaded_comes_after_it() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    allocate(&mut guest, 4096);
    load(&mut guest, 1);
    gpu.recording.hold_call(COMPILE).unwrap();
    let number = start_to_load(&mut guest, 2);
    let question = FunctionGet { reply: SLOT + 1, module: 2, function: 5, name_bytes: 5 };
    let asked = guest.send(&question, b"scale");
    let unload = guest.send(&ModuleUnload { module: 2, reserved: 0 }, &[]);
    until("the compiler has been called", || gpu.recording.has_held(COMPILE));
    gpu.recording.release_call(COMPILE).unwrap();
    assert_eq!((guest.answer(SLOT, number).0, guest.answer(SLOT + 1, asked).0), (0, 0));
    until("the module is unloaded", || gpu.count("cuModuleUnload") == 1);
    guest.echo();
    assert_eq!((guest.late(), guest.done() >= unload), (None, true));
    gpu.check();
}

/// Another guest attaches, makes a request and detaches, and the session that waits is told to end. Its
/// channel is free when the driver has returned, and until then the device answers everybody.
#[test]
fn nobody_else_waits_for_the_compiler() {
    let (gpu, mut guest) = RecordedGpu::with_guest(&json!({}));
    allocate(&mut guest, 4096);
    load(&mut guest, 1);
    gpu.recording.hold_call(COMPILE).unwrap();
    start_to_load(&mut guest, 2);
    until("the compiler has been called", || gpu.recording.has_held(COMPILE));

    let mut other = gpu.bench.guest(1);
    other.echo();
    other.detach();
    let session = guest.register(channel::SESSION);
    guest.function.write(channel::base(0) + channel::DETACH_SESSION, session);
    let mut third = gpu.bench.guest(2);
    third.echo();
    assert_eq!(guest.register(channel::STATE), channel::STATE_ENDING, "the driver has not returned");
    gpu.recording.release_call(COMPILE).unwrap();
    guest.detach();
    third.echo();
    assert_eq!(gpu.bench.allocated(), 0);
}

/// The thread that reads the ring is in a call of the driver, which may itself wait for the held stream. The
/// stream continues when the guest stores the release, before anybody reads the message.
#[test]
fn a_release_needs_nobody_who_reads_the_ring() {
    RecordedGpu::with_either_hold(|gpu, mut guest| {
        let memory = allocate(&mut guest, 4096);
        load(&mut guest, 1);
        function(&mut guest, 1, "scale");
        stream(&mut guest, 1, 1);
        for hold in 1..4 {
            guest.send(&StreamHold { stream: 1, hold, mark: Mark::new(WORD + 6, hold.into()) }, &[]);
            let behind = Mark::new(WORD + 7, hold.into());
            guest.send(&Signal { stream: 1, reserved: 0, mark: behind }, &[]);
            gpu.recording.hold_call("cuLaunchKernel").unwrap();
            launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(memory, &[1, 2]));
            until("the driver has been called", || gpu.recording.has_held("cuLaunchKernel"));
            let released = guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
            guest.wait_word(WORD + 6, hold.into());
            assert_eq!(guest.word(WORD + 7), u64::from(hold - 1), "the stream is held");
            guest.store_release(hold);
            guest.wait_word(WORD + 7, hold.into());
            assert!(guest.done() < released, "nobody has read the message");
            gpu.recording.release_call("cuLaunchKernel").unwrap();
            guest.echo();
        }
        synchronize(&mut guest);
        assert_eq!(guest.late(), None);
        gpu.check();
    });
}

/// A session ends while its streams are held and nobody will release them.
#[test]
fn a_session_that_ends_releases_its_streams() {
    RecordedGpu::with_either_hold(|gpu, mut guest| {
        allocate(&mut guest, 4096);
        stream(&mut guest, 1, 1);
        for hold in 1..4 {
            guest.send(&StreamHold { stream: 1, hold, mark: Mark::NONE }, &[]);
        }
        guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(WORD + 8, 1) }, &[]);
        guest.echo();
        assert_eq!(guest.word(WORD + 8), 0, "the stream is held");
        guest.detach();
        assert_eq!(gpu.bench.allocated(), 0);
        gpu.check();
    });
}

/// A session that breaks the contract ends, though nobody will release its stream, and even if the guest has
/// stored a number that no hold has.
#[test]
fn a_session_that_is_ended_releases_its_streams() {
    let both = |stored| [true, false].map(|memory_operations| (stored, memory_operations));
    for (stored, memory_operations) in [0, u32::MAX].into_iter().flat_map(both) {
        let (gpu, mut guest) = RecordedGpu::with_guest(&json!({ "memory_operations": memory_operations }));
        allocate(&mut guest, 4096);
        stream(&mut guest, 1, 1);
        guest.send(&StreamHold { stream: 1, hold: 1, mark: Mark::NONE }, &[]);
        guest.echo();
        guest.store_release(stored);
        // No stream has this number.
        guest.send(&Signal { stream: 99, reserved: 0, mark: Mark::NONE }, &[]);
        guest.ended();
        guest.detach();
        assert_eq!(gpu.bench.allocated(), 0);
        gpu.check();
    }
}

/// While the guest holds a stream, the driver's queue fills, and further launches would block. The release of
/// the hold is a later message, so further launches are refused. Releases of successive holds admit more
/// launches.
#[test]
fn launches_behind_a_held_stream_do_not_keep_its_release_from_being_read() {
    RecordedGpu::with_either_hold(|gpu, mut guest| {
        let memory = allocate(&mut guest, 4096);
        load(&mut guest, 1);
        function(&mut guest, 1, "scale");
        stream(&mut guest, 1, 1);
        let hold = |guest: &mut Guest, hold| {
            guest.send(&StreamHold { stream: 1, hold, mark: Mark::new(WORD + 6, u64::from(hold)) }, &[])
        };
        let refused = |guest: &mut Guest, since| {
            guest.echo();
            guest.late().filter(|(.., message)| *message >= since).map(|(code, ..)| code)
        };
        let launches = |guest: &mut Guest, stream, count| {
            let body = Launch { function: 1, stream, ..LAUNCH };
            let numbers: Vec<u64> =
                (0..count).map(|_| launch(guest, body, &params(memory, &[1, 2]))).collect();
            refused(guest, numbers[0])
        };
        let release = |guest: &mut Guest, hold| guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
        hold(&mut guest, 1);
        assert_eq!(launches(&mut guest, 1, 1100), Some(2));
        // A hold is refused as well, and its release is not a mistake of the guest.
        let second = hold(&mut guest, 2);
        release(&mut guest, 2);
        assert_eq!(refused(&mut guest, second), Some(2));
        assert_eq!(launches(&mut guest, 0, 1100), None, "a stream that does not wait");
        release(&mut guest, 1);
        for number in 3..13 {
            hold(&mut guest, number);
            assert_eq!(launches(&mut guest, 1, 200), None);
            if number > 3 {
                release(&mut guest, number - 1);
            }
        }
        release(&mut guest, 12);
        // Several held streams may share a queue of the driver.
        stream(&mut guest, 2, 1);
        hold(&mut guest, 13);
        guest.send(&StreamHold { stream: 2, hold: 14, mark: Mark::NONE }, &[]);
        assert_eq!(launches(&mut guest, 1, 400), None);
        assert_eq!(launches(&mut guest, 2, 400), Some(2));
        release(&mut guest, 13);
        assert_eq!(launches(&mut guest, 2, 300), None);
        let last = release(&mut guest, 14);
        synchronize(&mut guest);
        assert_eq!(refused(&mut guest, last), None);
        gpu.check();
    });
}

/// While the guest holds a stream, no staging buffer is returned, and the release of the hold is a later
/// message. The thread that reads the ring does not wait for a buffer.
#[test]
fn copies_behind_a_held_stream_do_not_keep_its_release_from_being_read() {
    RecordedGpu::with_either_hold(|gpu, mut guest| {
        let memory = allocate(&mut guest, 4096);
        stream(&mut guest, 1, 1);
        for (hold, copies, late) in [(1, 200_u32, None), (2, 1100, Some(2))] {
            guest.send(&StreamHold { stream: 1, hold, mark: Mark::new(WORD + 3, u64::from(hold)) }, &[]);
            guest.wait_word(WORD + 3, hold.into());
            for _ in 0..copies {
                let source = Span::inline(64);
                let body = CopyIn { stream: 1, reserved: 0, destination: memory, source, read: Mark::NONE };
                guest.send(&body, &[7; 64]);
            }
            guest.echo();
            assert_eq!(guest.late().map(|(code, ..)| code), late, "{copies} copies");
            guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
            guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(WORD + 4, u64::from(hold)) }, &[]);
            guest.wait_word(WORD + 4, hold.into());
        }
        // These are the buffers that exist while no stream is held, and the words of holds.
        synchronize(&mut guest);
        until("the others are free", || gpu.count("cuMemHostAlloc") - gpu.count("cuMemFreeHost") <= 65);
        gpu.check();
    });
}
