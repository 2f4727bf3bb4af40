//! Tests of what a session tells of memory that its guest has freed: until the driver has unmapped it, it is
//! held and about to become free, so that nobody is refused such memory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use serde_json::json;
use vgpu_device::{Executor, ExecutorError, Session, SessionHost};
use vgpu_executor_cuda::Cuda;
use vgpu_host_testing::bench::{Bench, config};
use vgpu_host_testing::commands::{allocate, synchronize, window};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::CopyIn;
use vgpu_wire::body::memory::{
    Address, MemCreate, MemFree, MemMap, MemRelease, MemReserve, MemSetAccess, MemUnmap,
};
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{Mark, Span};
use zerocopy::FromBytes as _;

use crate::gpu::RecordedGpu;

/// Memory that a guest takes, in whole units of mappings.
const BYTES: u64 = 4 << 20;

/// An executor that keeps the end of its first session at the device's side.
struct Watched {
    cuda: Cuda,
    host: Arc<OnceLock<SessionHost>>,
}

impl Executor for Watched {
    fn name(&self) -> &'static str {
        self.cuda.name()
    }

    fn facts(&self) -> DeviceFacts {
        self.cuda.facts()
    }

    fn allocated(&self) -> u64 {
        self.cuda.allocated()
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        self.host.get_or_init(|| host.clone());
        self.cuda.open(host)
    }
}

/// A device with one guest, whose work waits from now on.
struct HeldGuest {
    gpu: RecordedGpu,
    guest: Guest,
    host: Arc<OnceLock<SessionHost>>,
    place: u64,
}

impl HeldGuest {
    /// Returns a guest, and the address of memory that `take` has it allocate.
    fn new(take: impl FnOnce(&mut Guest) -> u64) -> (Self, u64) {
        let host = Arc::new(OnceLock::new());
        let watched = Arc::clone(&host);
        let gpu =
            RecordedGpu::with_bus(&json!({}), |cuda| Bench::with(config(Watched { cuda, host: watched })));
        let mut guest = gpu.guest();
        let (place, address) = (window(&mut guest, 4096), take(&mut guest));
        synchronize(&mut guest);
        gpu.hold();
        let held = Self { gpu, guest, host, place };
        assert_eq!((held.allocated(), held.freeing()), (BYTES, 0));
        (held, address)
    }

    fn allocated(&self) -> u64 {
        self.host.get().expect("a session").gauges().allocated.load(Ordering::Relaxed)
    }

    fn freeing(&self) -> u64 {
        self.host.get().expect("a session").gauges().freeing.load(Ordering::Relaxed)
    }

    /// Has work use memory at an address, and carries out `free`.
    fn free_behind_work(&mut self, address: u64, free: impl FnOnce(&mut Guest)) {
        let source = Span::bar(self.place, 4096);
        let copy = CopyIn { stream: 0, reserved: 0, destination: address, source, read: Mark::NONE };
        self.guest.send(&copy, &[]);
        free(&mut self.guest);
        until("the ring is read", || self.guest.done() == self.guest.number);
    }

    /// Lets the work end, and checks that the memory is free then.
    fn end_work(self) {
        self.gpu.release();
        self.end();
    }

    /// Waits until the memory is free.
    fn end(mut self) {
        until("all is unmapped", || (self.allocated(), self.freeing()) == (0, 0));
        synchronize(&mut self.guest);
        assert_eq!(self.gpu.bench.allocated(), 0);
        self.gpu.check_all(&self.guest);
    }
}

/// Has a guest map the same memory at two adjacent addresses. Returns the first one.
fn map_twice(guest: &mut Guest) -> u64 {
    let request = MemReserve { reply: 0, reserved: 0, bytes: 2 * BYTES, alignment: 0, hint: 0 };
    let (status, answer) = guest.call(request, &[]);
    assert_eq!(status, 0);
    let address = Address::read_from_bytes(&answer).expect("an address").address;
    assert_eq!(guest.call(MemCreate { reply: 0, handle: 1, bytes: BYTES }, &[]).0, 0);
    for address in [address, address + BYTES] {
        guest.send(&MemMap { handle: 1, reserved: 0, address, bytes: BYTES, offset: 0 }, &[]);
    }
    guest.send(&MemSetAccess { address, bytes: 2 * BYTES, access: 3, reserved: 0 }, &[]);
    address
}

const RELEASE: MemRelease = MemRelease { handle: 1, reserved: 0 };

#[test]
fn an_allocation_is_being_freed_until_its_work_is_over() {
    let (mut held, address) = HeldGuest::new(|guest| allocate(guest, BYTES));
    held.free_behind_work(address, |guest| {
        guest.send(&MemFree { address }, &[]);
    });
    assert_eq!((held.allocated(), held.freeing()), (BYTES, BYTES));
    held.end_work();
}

/// As GGML's pool does, which releases the handle as soon as the memory is mapped.
#[test]
fn memory_whose_handle_is_gone_is_being_freed_from_its_last_unmapping_on() {
    let (mut held, address) = HeldGuest::new(map_twice);
    held.free_behind_work(address, |guest| {
        guest.send(&RELEASE, &[]);
        guest.send(&MemUnmap { address, bytes: BYTES }, &[]);
    });
    assert_eq!((held.allocated(), held.freeing()), (BYTES, 0), "the guest can still use it");
    held.free_behind_work(address + BYTES, |guest| {
        guest.send(&MemUnmap { address: address + BYTES, bytes: BYTES }, &[]);
    });
    assert_eq!((held.allocated(), held.freeing()), (BYTES, BYTES));
    held.end_work();
}

#[test]
fn memory_without_mappings_is_being_freed_from_its_release_on() {
    let (mut held, address) = HeldGuest::new(map_twice);
    held.free_behind_work(address, |guest| {
        guest.send(&MemUnmap { address, bytes: 2 * BYTES }, &[]);
    });
    assert_eq!((held.allocated(), held.freeing()), (BYTES, 0), "the guest can map it again");
    held.guest.send(&RELEASE, &[]);
    until("the ring is read", || held.guest.done() == held.guest.number);
    assert_eq!((held.allocated(), held.freeing()), (BYTES, BYTES));
    held.end_work();
}

/// Nothing uses it, so the release itself frees it, and says so.
#[test]
fn memory_that_nothing_uses_is_free_with_its_release() {
    let (mut held, address) = HeldGuest::new(map_twice);
    held.gpu.release();
    held.guest.send(&MemUnmap { address, bytes: 2 * BYTES }, &[]);
    synchronize(&mut held.guest);
    until("it is unmapped", || held.gpu.count("cuMemUnmap") == 2);
    held.guest.send(&RELEASE, &[]);
    held.end();
}
