//! Tests of the quirks and limits that concern a guest, each named by its number.

use std::fs::File;
use std::sync::{Arc, Mutex};

use vgpu_device::GpuConfig;
use vgpu_device_v1::Bar;
use vgpu_device_v1::{BarAccess, Watch};
use vgpu_executor_null::Null;
use vgpu_transport::{AttachError, Device, GoneReason, LateError, Session, SessionError};
use vgpu_transport_bed::{allocate, copy_in, copy_out, echo, fill, functions, pattern, soft};
use vgpu_wire::Span;
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::memory::{Address, MemAlloc, MemFree, MemInfo};
use vgpu_wire::body::module::FunctionSet;
use vgpu_wire::v1::call::ALLOCATIONS_MAX;
use zerocopy::{FromZeros, IntoBytes};

use super::{Bench, PTX, function, gemm, launch, load};
use crate::version1::{NO_MEMORY, WINDOWED};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const ILLEGAL_ADDRESS: u32 = 700;
const NOT_SUPPORTED: u32 = 801;

/// Tests that a copy above a call's limit is split at the limit, and the rest is another call.
#[test]
fn q07_what_does_not_fit_a_call_goes_in_several() {
    for (ram, most) in [(NO_MEMORY, (8 << 20) - 8), (WINDOWED, 8 << 20), (4 << 20, 2 << 20)] {
        let bench = Bench::of(ram);
        let session = bench.attach();
        let bytes = (20 << 20) + 5;
        let address = allocate(&session, bytes);
        let data = pattern(1, bytes as usize);
        copy_in(&session, address, &data);
        assert!(copy_out(&session, address, data.len()) == data, "memory {ram}");
        for op in [0x32, 0x33] {
            let mut at = 0;
            for call in bench.recorder.of(op) {
                let piece = most.min(bytes - at);
                let [low, high] = vgpu_wire::v1::split(address + at);
                assert_eq!(call.args, [low, high, piece as u32, 0], "call {op:#x} at {at}, memory {ram}");
                at += piece;
            }
            assert_eq!(at, bytes, "call {op:#x}, memory {ram}");
        }
    }
}

/// Tests that lengths of 64 bits are sent whole in calls that have room for them.
#[test]
fn q08_lengths_above_four_gibibytes_are_whole() {
    let gpu = GpuConfig { memory_bytes: 64 << 30, ..GpuConfig::new("null").unwrap() };
    let bench = Bench::new(Arc::new(Null::new(&gpu).unwrap()), NO_MEMORY, None);
    let session = bench.attach();
    let address = allocate(&session, (12 << 30) + 1);
    let [low, high] = vgpu_wire::v1::split(address);
    assert_eq!(bench.recorder.of(0x30)[0].args, [1, 3, 0, 0]);
    fill(&session, address, 1, 7, (5 << 30) + 3);
    assert_eq!(bench.recorder.of(0x35)[0].args, [low, high, 7, 0, (1 << 30) + 3, 1]);
    let copy = vgpu_wire::body::copy::CopyDevice {
        stream: 0,
        reserved: 0,
        destination: address + (6 << 30),
        source: address,
        bytes: (4 << 30) + 9,
    };
    session.send(&copy, &[]).unwrap();
    let [to, to_high] = vgpu_wire::v1::split(address + (6 << 30));
    assert_eq!(bench.recorder.of(0x34)[0].args, [to, to_high, low, high, 9, 1]);
    assert_eq!(session.late_error(), None);
}

/// Records all accesses to a BAR.
#[derive(Debug, Default)]
struct Log(Mutex<Vec<BarAccess>>);

impl Watch for Log {
    fn admits(&self, seen: BarAccess) -> bool {
        self.0.lock().unwrap().push(seen);
        true
    }
}

/// A device that rejects the guest's pages has no window afterwards, not even the old one, and BAR1 carries
/// payload from then on.
#[test]
fn q09_a_window_that_is_refused_is_done_without() {
    let log = Arc::new(Log::default());
    let bench = Bench::new(soft("version 1"), NO_MEMORY, Some(Arc::clone(&log) as Arc<dyn Watch>));
    // The machine has more memory than the device knows.
    let path = bench.bed.dir().join("ram");
    std::fs::remove_file(&path).unwrap();
    File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let session = bench.attach();
    let address = allocate(&session, 1 << 20);
    for seed in 0..3 {
        let data = pattern(seed, 300_000);
        copy_in(&session, address, &data);
        assert!(copy_out(&session, address, data.len()) == data);
    }
    let seen = log.0.lock().unwrap();
    let controls: Vec<u32> =
        seen.iter().filter(|seen| seen.write && seen.offset == 0x94c).map(|seen| seen.value).collect();
    assert_eq!(controls, [1, 0], "tried once, and let go");
    assert!(seen.iter().any(|seen| seen.bar == Bar::Bar1 && seen.write));
}

/// The objects of a token's previous owner are freed before the token is used (Q12), and a context is created
/// before anything is allocated, because otherwise the host would free nothing with the owner (Q11).
#[test]
fn q11_q12_an_owner_begins_clean_and_with_a_context() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    allocate(&session, 4096);
    let ops: Vec<u32> = bench.recorder.got().iter().filter(|got| got.owner != 0).map(|got| got.op).collect();
    assert_eq!(ops, [0xfe, 0x90, 0x30]);
    drop(session);
    assert_eq!(bench.recorder.got().last().unwrap().op, 0xfe, "and ends so");
}

/// A host whose context died of a kernel's fault still returns success when a guest retains that context, but
/// returns no context. Its other calls up to the first allocation succeed as well.
#[test]
fn q31_a_host_whose_context_died_is_told_at_the_start() {
    let bench = Bench::of(NO_MEMORY);
    bench.recorder.context_dies();
    let device = Device::open(&functions(bench.bed.dir())[0], Some(vgpu_transport_v1::open)).unwrap();
    match Session::attach(device) {
        Err(AttachError::Lost(SessionError::Gone { reason: GoneReason::Context })) => {}
        other => panic!("{other:?}"),
    }
}

/// More shared memory than the default is refused, because no call sets a function's attributes.
#[test]
fn q15_more_shared_memory_is_refused() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    assert_eq!((load(&session, 1, PTX), function(&session)), (0, 0));
    let set = |value| FunctionSet { function: 1, attribute: 8, value, reserved: 0 };
    session.send(&set(1024), &[]).unwrap();
    assert_eq!(session.late_error(), None);
    session.send(&set(1 << 20), &[]).unwrap();
    assert_eq!(session.late_error().unwrap().code, NOT_SUPPORTED);
}

/// A kernel that faults ends the host's context and all handles: the session is lost, and every later call
/// says why.
#[test]
fn q17_after_an_illegal_access_all_handles_are_dead() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    let other = bench.attach();
    let kept = allocate(&other, 4096);
    assert_eq!((load(&session, 1, PTX), function(&session)), (0, 0));
    launch(&session, [[1; 3], [32, 1, 1]], 64, 16, 3);
    let expected = LateError { code: ILLEGAL_ADDRESS, sticky: true, ended: true, message: session.done() };
    assert_eq!(session.late_error(), Some(expected));
    let calls = bench.recorder.got().len();
    let again = session.call(MemAlloc { reply: 0, flags: 0, bytes: 64 }, &[], &mut [0; 8]);
    let code = again.map_or_else(|lost| lost.code(), |answer| answer.status);
    assert_eq!(code, ILLEGAL_ADDRESS);
    assert_eq!(bench.recorder.got().len(), calls, "nothing is asked of the host any more");
    copy_in(&other, kept, &[1; 64]);
    assert_eq!(copy_out(&other, kept, 64), [1; 64]);
    session.close();
    let next = bench.attach();
    let address = allocate(&next, 4096);
    copy_in(&next, address, b"anew");
    assert_eq!(copy_out(&next, address, 4), b"anew");
}

/// Bytes that look like a fat binary arrive unchanged, although a host drops them in asynchronous copies.
#[test]
fn q19_what_looks_like_code_arrives() {
    for ram in [NO_MEMORY, WINDOWED] {
        let bench = Bench::of(ram);
        let session = bench.attach();
        let address = allocate(&session, 1 << 20);
        for bytes in [16, 5000, 100_000] {
            let mut data = pattern(1, bytes);
            data[..4].copy_from_slice(&0xba55_ed50_u32.to_le_bytes());
            copy_in(&session, address, &data);
            assert!(copy_out(&session, address, bytes) == data, "{bytes} bytes");
            if bytes < 20_000 {
                let span = Span::inline(bytes as u64);
                let mark = vgpu_wire::Mark::new(0, 0);
                let copy =
                    CopyIn { stream: 5, reserved: 0, destination: address + 8, source: span, read: mark };
                session.send(&copy, &[&data]).unwrap();
                assert!(copy_out(&session, address + 8, bytes) == data, "{bytes} bytes on a stream");
            }
        }
        assert_eq!(session.late_error(), None);
    }
}

/// Scalars are sent as 32-bit floats: values that those cannot represent are refused, and others are sent
/// exactly.
#[test]
fn q20_scalars_that_cannot_be_said_are_refused() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    let matrix = [0, 1, 2].map(|_| allocate(&session, 4096));
    let refused = |change: fn(&mut vgpu_wire::body::gemm::Gemm)| {
        let mut gemm = gemm(matrix, 0, 1);
        change(&mut gemm);
        session.send(&gemm, &[]).unwrap();
        assert_eq!(session.late_error().unwrap().code, NOT_SUPPORTED);
    };
    refused(|gemm| (gemm.compute, gemm.scale) = (70, 1)); // doubles
    refused(|gemm| gemm.compute = 72); // integers
    refused(|gemm| gemm.scale = 1); // doubles as scalars
    assert!(bench.recorder.of(0xb5).is_empty());
    let mut half = gemm(matrix, 0, 1);
    half.scale = 2;
    half.types = [2; 3];
    half.compute = 64;
    half.alpha[..2].copy_from_slice(&0x3800_u16.to_le_bytes());
    half.beta[..2].copy_from_slice(&0xbc00_u16.to_le_bytes());
    session.send(&half, &[]).unwrap();
    let payload = &bench.recorder.of(0xb5)[0].data;
    assert_eq!(payload[84..92], [0.5_f32.to_le_bytes(), (-1.0_f32).to_le_bytes()].concat());
}

/// A host does not track allocations beyond its table, nor free them with their owner, so the guest makes no
/// more.
#[test]
fn q21_the_table_of_allocations_ends() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    let addresses: Vec<u64> = (0..ALLOCATIONS_MAX).map(|_| allocate(&session, 512)).collect();
    let one_more = MemAlloc { reply: 0, flags: 0, bytes: 512 };
    assert_eq!(session.call(one_more, &[], &mut [0; 8]).unwrap().status, OUT_OF_MEMORY);
    assert_eq!(bench.recorder.of(0x30).len(), ALLOCATIONS_MAX);
    session.send(&MemFree { address: addresses[77] }, &[]).unwrap();
    allocate(&session, 512);
}

/// An allocation whose answer is lost is not requested again, because the host may have made it.
#[test]
fn q26_what_may_have_been_done_is_not_repeated() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    bench.recorder.hang_up_at(0x30);
    let mut address = Address::new_zeroed();
    let lost =
        session.call(MemAlloc { reply: 0, flags: 0, bytes: 64 }, &[], address.as_mut_bytes()).unwrap_err();
    assert_eq!(lost, SessionError::Gone { reason: GoneReason::Mediator });
    assert_eq!((lost.code(), bench.recorder.of(0x30).len()), (46, 1));
    assert_eq!(
        session.call(MemInfo { reply: 0, reserved: 0 }, &[], &mut [0; 16]).unwrap_err(),
        lost,
        "for good"
    );
}

/// A forked child has another process id and its parent's mappings: its calls fail with CUDA's error, access
/// no register, and do not affect the parent.
#[test]
fn q27_a_forked_child_touches_nothing() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    let address = allocate(&session, 4096);
    let calls = bench.recorder.got().len();
    // SAFETY: the child calls the session, which refuses, and leaves without any exit handler.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let lost = session.send(&MemFree { address }, &[]);
        drop(session);
        let code = i32::from(lost != Err(SessionError::Forked));
        // SAFETY: ends only the child.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    assert_eq!(bench.recorder.got().len(), calls);
    copy_in(&session, address, b"parent");
    assert_eq!(copy_out(&session, address, 6), b"parent");
}

/// Section 14.3: Freeing an address that is no allocation is an error here, although hosts return success.
#[test]
fn an_unknown_address_is_not_freed() {
    let bench = Bench::of(NO_MEMORY);
    let session = bench.attach();
    session.send(&MemFree { address: 0x1234 }, &[]).unwrap();
    assert_eq!(session.late_error().unwrap().code, INVALID_VALUE);
    assert!(bench.recorder.of(0x31).is_empty());
    echo(&session, 1);
}

/// Section 17.5: A short download is widened within its allocation, so that the window carries it instead of
/// single words.
#[test]
fn a_short_copy_back_comes_by_the_window() {
    let bench = Bench::of(WINDOWED);
    let session = bench.attach();
    let address = allocate(&session, 4096);
    let data = pattern(3, 4096);
    copy_in(&session, address, &data);
    for (at, bytes, from) in [(0, 4, 0), (100, 1024, 100), (4000, 96, 3071), (3000, 1025, 3000)] {
        let before = bench.recorder.of(0x33).len();
        assert_eq!(copy_out(&session, address + at, bytes), data[at as usize..][..bytes]);
        let [low, high] = vgpu_wire::v1::split(address + from);
        assert_eq!(bench.recorder.of(0x33)[before].args, [low, high, 1025, 0], "{bytes} at {at}");
    }
}
