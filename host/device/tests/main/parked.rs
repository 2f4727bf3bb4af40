//! Tests that a session in the middle of work that does not stop delays nobody else: no attach, detach,
//! status request or register access. A register write that arrives late affects only the session for which
//! it was meant.

use std::sync::{Arc, mpsc};

use vgpu_device::DeviceConfig;
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{Bench, CHANNELS, address, config, gpu};
use vgpu_host_testing::guest::{Function, Guest, PATIENCE, until};
use vgpu_host_testing::parking::{ParkAt, Parking};
use vgpu_wire::Body;
use vgpu_wire::body::memory::MemFree;
use vgpu_wire::registers::{self as reg, Refusal, channel};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION};

use crate::memory::allocate;
use crate::sessions::window_alloc;

/// Guard that opens the parking when it is dropped, so that parked work also ends if the test fails.
struct LetGo(Arc<Parking>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn bench(at: ParkAt) -> (Bench, LetGo) {
    let parking = Arc::new(Parking::default());
    let soft =
        parking.around(Arc::new(Soft::new(&gpu()).unwrap()), at, |body| matches!(body, Body::MemFree(_)));
    let bench = Bench::with(DeviceConfig { executor: soft, ..config(Null::new(&gpu()).unwrap()) });
    (bench, LetGo(parking))
}

/// Attaches a guest whose channel holds memory and whose session is parked, either at once or when it ends.
fn park(bench: &Bench, parking: &Parking, at: ParkAt, channel: u32) -> Guest {
    let mut guest = bench.guest(channel);
    allocate(&mut guest, 1 << 20).unwrap();
    window_alloc(&mut guest, 1 << 20).unwrap();
    let address = allocate(&mut guest, 1 << 20).unwrap();
    guest.send(&MemFree { address }, &[]);
    match at {
        ParkAt::Message => parking.wait_for(1),
        // The echo is answered after the message.
        ParkAt::End => guest.echo(),
    }
    guest
}

fn try_attach(bench: &Bench, channel: u32) -> Result<Guest, u32> {
    let function = Function::open(bench.folder(), address());
    Guest::try_attach(function, channel, WIRE_VERSION, TABLE_DIGEST).map_err(|(why, _)| why)
}

/// Checks that other guests can use the device while one channel is not free.
fn others_go_on(bench: &Bench) {
    let function = Function::open(bench.folder(), address());
    for index in 1..CHANNELS {
        let mut guest = try_attach(bench, index).unwrap();
        guest.hello();
        allocate(&mut guest, 1 << 20).unwrap();
        guest.echo();
        let status = bench.bus.status();
        assert_eq!(status.devices[0].sessions.len(), 2);
        for offset in (0..channel::base(CHANNELS)).step_by(4) {
            assert!(function.try_read(offset).is_some(), "{offset:#x} is not answered");
        }
        guest.detach();
    }
}

fn delays_nobody(at: ParkAt) {
    let (bench, parking) = bench(at);
    let guest = park(&bench, &parking.0, at, 0);
    let session = guest.register(channel::SESSION);
    others_go_on(&bench);

    // The detach is answered, and only starts the end of the session.
    guest.function.write(channel::base(0) + channel::DETACH_SESSION, session);
    parking.0.wait_for(1);
    let ending = || {
        assert_eq!(guest.register(channel::STATE), channel::STATE_ENDING);
        assert_eq!(guest.register(channel::SESSION), session);
        assert_eq!(guest.function.read(reg::V2_ATTACHED_LO), 1);
        let status = bench.session(0).unwrap();
        assert_eq!((status.state.as_str(), status.session), ("ending", session));
        assert_eq!(bench.bus.status().devices[0].free_channels, CHANNELS as usize - 1);
    };
    ending();
    // Neither a second detach nor an attach waits, or changes anything.
    guest.function.write(channel::base(0) + channel::DETACH_SESSION, session);
    assert_eq!(try_attach(&bench, 0).err(), Some(Refusal::Busy as u32));
    ending();
    others_go_on(&bench);

    parking.0.open();
    until("the channel is free", || guest.register(channel::STATE) == channel::STATE_FREE);
    assert_eq!((guest.register(channel::SESSION), guest.register(channel::ERROR)), (0, 0));
    assert_eq!((bench.allocated(), guest.function.read(reg::V2_ATTACHED_LO)), (0, 0));
    let mut next = try_attach(&bench, 0).unwrap();
    next.hello();
    assert_eq!(bench.session(0).unwrap().window_bytes, 0);
}

#[test]
fn a_parked_session_delays_no_attach_detach_status_read_or_register_access() {
    delays_nobody(ParkAt::Message);
}

#[test]
fn a_session_whose_end_takes_long_delays_nobody_either() {
    delays_nobody(ParkAt::End);
}

/// Runs `what` on a separate thread, and fails if it has not returned after [`PATIENCE`].
fn in_time<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, waiting) = mpsc::channel();
    std::thread::spawn(move || drop(done.send(what())));
    waiting.recv_timeout(PATIENCE).expect("it does not wait for the parked session")
}

#[test]
fn a_reset_does_not_wait_for_a_parked_session() {
    let (bench, parking) = bench(ParkAt::Message);
    let guest = park(&bench, &parking.0, ParkAt::Message, 0);
    let other = bench.guest(1);
    let device = Arc::clone(bench.bus.devices()[0].device().unwrap());
    in_time(move || device.reset());
    assert_eq!(guest.register(channel::STATE), channel::STATE_ENDING);
    assert_eq!(other.register(channel::STATE), channel::STATE_FREE);
    assert_eq!(other.register(channel::PROCESS), 0);
    others_go_on(&bench);
    parking.0.open();
    until("the channel is free", || guest.register(channel::STATE) == channel::STATE_FREE);
}

#[test]
fn the_end_of_a_bus_does_not_wait_for_a_parked_session() {
    let (bench, parking) = bench(ParkAt::Message);
    let guest = park(&bench, &parking.0, ParkAt::Message, 0);
    let devices = bench.folder().join("bus/pci/devices");
    let bench = in_time(move || bench.stop());
    assert_eq!(std::fs::read_dir(devices).unwrap().count(), 0);
    assert_eq!(guest.function.read(reg::V2_GENERATION), reg::ALL_ONES);
    drop(bench);
}

/// A register write of a process that gave up waiting does not affect the next owner of its channel.
#[test]
fn a_write_that_arrives_late_ends_no_other_session() {
    let bench = Bench::soft();
    let old = bench.guest(0);
    let late = old.register(channel::SESSION);
    let mut next = bench.guest(0);
    let session = next.register(channel::SESSION);
    assert_ne!(session, late);
    let base = channel::base(0);
    for number in [late, 0, session + 1, u32::MAX] {
        old.function.write(base + channel::DETACH_SESSION, number);
        next.echo();
    }
    old.function.write(base + channel::PROCESS, 1);
    assert_eq!(try_attach(&bench, 0).err(), Some(Refusal::Busy as u32));
    next.echo();
    assert_eq!(next.register(channel::STATE), channel::STATE_ATTACHED);
    assert_eq!(next.register(channel::SESSION), session);
    let status = bench.session(0).unwrap();
    assert_eq!((status.session, status.process), (session, std::process::id()));
    // Neither does a write to a channel that is free, or that has failed.
    next.detach();
    old.function.write(base + channel::DETACH_SESSION, session);
    old.function.write(base + channel::DETACH_SESSION, 0);
    assert_eq!(next.register(channel::STATE), channel::STATE_FREE);
    let mut failed = bench.guest(0);
    failed.send_bytes(&[0xff; 16]);
    failed.ended();
    assert_eq!(try_attach(&bench, 0).err(), Some(Refusal::Busy as u32));
    old.function.write(base + channel::DETACH_SESSION, session);
    assert_eq!(failed.register(channel::STATE), channel::STATE_FAILED);
}

#[test]
fn the_longest_access_and_attach_are_reported() {
    let bench = Bench::soft();
    let before = bench.bus.status().devices[0].clone();
    assert_eq!((before.longest_access_us, before.longest_attach_us), (0, 0));
    let _guest = bench.guest(0);
    let after = bench.bus.status().devices[0].clone();
    // An attach starts a thread, which takes microseconds at least.
    assert!(after.longest_attach_us > 0 && after.longest_access_us >= after.longest_attach_us);
}
