//! Tests of when a context is created, and of how sessions end.

use vgpu_device::Executor;
use vgpu_executor_cuda::{Cuda, CudaOptions, LoadError};
use vgpu_host_testing::bench::MEMORY;
use vgpu_host_testing::commands::{
    LAUNCH, allocate, copy_in, function, launch, load, params, read, read_u32, stream, synchronize,
};
use vgpu_wire::body::gemm::Gemm;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemInfo, MemInfoReply};
use vgpu_wire::body::stream::{
    EventCreate, EventRecord, Signal, StreamDestroy, StreamHold, StreamRelease, StreamWait,
};
use vgpu_wire::facts::exec;
use vgpu_wire::registers::channel;
use vgpu_wire::{JOIN_ALL, Mark, area};
use zerocopy::{FromBytes, FromZeros};

use crate::place::{looped, looped_on, options};

#[test]
fn who_only_looks_costs_no_context() {
    looped("sessions::who_only_looks_costs_no_context", |looped| {
        let facts = looped.cuda.facts();
        assert!(facts.name.starts_with(b"Second GPU\0"), "the GPU's own name");
        assert_eq!((facts.total_bytes, facts.granularity), (MEMORY, 2 << 20));
        assert_ne!(
            facts.abilities & exec::HOLDS,
            0,
            "functions wait, though its streams do not wait for words"
        );
        let mut guest = looped.bench.guest(0);
        guest.echo();
        let (status, data) = guest.call(MemInfo { reply: 0, reserved: 0 }, &[]);
        let info = MemInfoReply::read_from_bytes(&data).unwrap();
        assert_eq!((status, info.free, info.total), (0, MEMORY, MEMORY));
        stream(&mut guest, 1, 1);
        guest.send(&EventCreate { event: 1, flags: 0 }, &[]);
        guest.send(&EventRecord { event: 1, stream: 1, mark: Mark::new(3, 1) }, &[]);
        guest.send(&StreamWait { stream: 1, event: 1 }, &[]);
        guest.send(&Signal { stream: JOIN_ALL, reserved: 0, mark: Mark::new(4, 1) }, &[]);
        guest.send(&StreamDestroy { stream: 1, reserved: 0 }, &[]);
        guest.wait_word(3, 1);
        guest.wait_word(4, 1);
        synchronize(&mut guest);
        assert_eq!(looped.cuda.contexts(), 0);
        allocate(&mut guest, 1);
        assert_eq!(looped.cuda.contexts(), 1);
        let mut other = looped.bench.guest(1);
        other.echo();
        assert_eq!((looped.cuda.contexts(), guest.late(), other.late()), (1, None, None));
    });
}

#[test]
fn a_fault_is_one_sessions_and_its_neighbour_goes_on() {
    looped("sessions::a_fault_is_one_sessions_and_its_neighbour_goes_on", |looped| {
        let mut guest = looped.bench.guest(0);
        load(&mut guest, 1);
        function(&mut guest, 1, "scale");
        function(&mut guest, 2, "trapped");
        let p = allocate(&mut guest, 4);
        launch(&mut guest, Launch { function: 2, ..LAUNCH }, &[]);
        launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(p, &[1, 1]));
        synchronize(&mut guest);
        let (code, flags, number) = guest.late().expect("a late error");
        assert_eq!((code, flags), (719, area::ERROR_STICKY), "message {number}");
        assert_eq!(guest.call(MemInfo { reply: 0, reserved: 0 }, &[]).0, 719);
        assert_eq!(guest.register(channel::STATE), channel::STATE_ATTACHED);
        // Marks are stored after the loss, so nobody waits for them forever.
        guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::new(7, 1) }, &[]);
        guest.wait_word(7, 1);
        guest.detach();
    });
}

#[test]
fn what_is_missing_is_refused_and_the_session_goes_on() {
    let without = || CudaOptions { libcublas: Some("/nowhere/libcublas.so.13".into()), ..options() };
    looped_on("sessions::what_is_missing_is_refused_and_the_session_goes_on", without, |looped| {
        let mut guest = looped.bench.guest(0);
        let p = allocate(&mut guest, 64);
        for _ in 0..2 {
            let product =
                Gemm { batch: 1, size: [1; 3], leading: [1; 3], matrix: [p; 3], ..Gemm::new_zeroed() };
            let number = guest.send(&product, &[]);
            guest.echo();
            assert_eq!(guest.late(), Some((801, 0, number)));
        }
        copy_in(&mut guest, 0, p, &[7; 4]);
        assert_eq!(read_u32(&mut guest, p), 0x0707_0707);
        // Another session has memory of its own.
        let mut other = looped.bench.guest(1);
        let number = copy_in(&mut other, 0, p, &[1; 4]);
        other.echo();
        assert_eq!(other.late(), Some((1, 0, number)));
        assert_eq!(read(&mut guest, p, 4), [7; 4]);
    });
}

#[test]
fn what_the_host_lacks_is_said_in_a_sentence() {
    looped("sessions::what_the_host_lacks_is_said_in_a_sentence", |_| {
        let failed =
            |options: CudaOptions| Cuda::new(&options).expect_err("nothing to execute on").to_string();
        let nowhere = CudaOptions { libcuda: Some("/nowhere/libcuda.so.1".into()), ..options() };
        assert!(failed(nowhere).starts_with("load the NVIDIA driver: /nowhere/libcuda.so.1: "));
        let uuid = Some([7; 16]);
        let text = failed(CudaOptions { uuid, ..options() });
        let wanted = "no GPU of this host has UUID GPU-07070707-0707-0707-0707-070707070707; it has GPU-";
        assert!(text.starts_with(wanted), "{text}");
        let none = CudaOptions { context_bytes: 1 << 40, ..options() };
        assert!(matches!(Cuda::new(&none), Err(LoadError::Memory { workers: 1, .. })));
        // This library has no function of the driver.
        let libc = CudaOptions { libcuda: Some("libc.so.6".into()), ..options() };
        assert!(failed(libc).contains("libc.so.6 has no cuInit: the driver is too old"));
    });
}

/// Two streams of a guest wait for functions of the guest, while a third one goes on. The work behind them is
/// carried out after the release, or at the end of the session.
#[test]
fn streams_wait_for_the_guest_until_it_releases_them_or_ends() {
    looped("sessions::streams_wait_for_the_guest_until_it_releases_them_or_ends", |looped| {
        for releases in [true, false] {
            let mut guest = looped.bench.guest(0);
            (1..4).for_each(|number| stream(&mut guest, number, 1));
            let p = allocate(&mut guest, 64);
            copy_in(&mut guest, 3, p, &[1; 4]);
            for hold in 1..3 {
                guest.send(&StreamHold { stream: hold, hold, mark: Mark::new(10 + hold, 1) }, &[]);
                copy_in(&mut guest, hold, p + 16 * u64::from(hold), &[2; 4]);
                guest.send(&Signal { stream: hold, reserved: 0, mark: Mark::new(20 + hold, 1) }, &[]);
            }
            guest.wait_word(11, 1);
            copy_in(&mut guest, 3, p, &[3; 4]);
            guest.send(&Signal { stream: 3, reserved: 0, mark: Mark::new(30, 1) }, &[]);
            guest.wait_word(30, 1);
            assert_eq!([21, 22].map(|word| guest.word(word)), [0, 0], "the streams are held");
            if releases {
                for hold in 1..3 {
                    guest.wait_word(10 + hold, 1);
                    guest.send(&StreamRelease { hold, reserved: 0 }, &[]);
                    guest.wait_word(20 + hold, 1);
                }
                assert_eq!(read_u32(&mut guest, p + 16), 0x0202_0202);
            }
            guest.detach();
            assert_eq!(looped.bench.allocated(), 0);
        }
    });
}
