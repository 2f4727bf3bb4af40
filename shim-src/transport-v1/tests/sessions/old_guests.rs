//! Tests with processes of the old guest library beside new ones. A stand-in does what that library does: it
//! takes the same lock file, writes the registers, and copies through BAR1, or through pages of its own that
//! it registers once and then assumes to be the window. It checks every byte. That library's own `fopen`
//! creates no file, so it lists its process nowhere.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use vgpu_device::connect_bar;
use vgpu_transport_bed::{Role, allocate, copy_in, copy_out, pattern, say, signal, soft};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::{registers as reg, split};
use zerocopy::IntoBytes;

use crate::conformance::{PTX, function, load};
use crate::version1::{Bed, WINDOWED, attach_in};

/// Number of bytes copied at a time, more than fit BAR0.
const COPIED: usize = 30_000;
/// Maximum length in bytes of a block in a packet of the simulated bus.
const BLOCK: usize = 32 << 10;
/// Address of the old guest's own pages, at the end of the machine's memory.
const OWN: u64 = WINDOWED - (1 << 20);
const HALF: u32 = 64 << 10;

/// A BAR of the simulated bus.
struct Bar(OwnedFd);

impl Bar {
    fn open(bus: &Path, name: &str) -> Self {
        Self(connect_bar(&bus.join("bus/pci/devices/0000:00:05.0").join(name)).unwrap())
    }

    fn packet(&self, packet: &[u8]) -> Vec<u8> {
        send(&self.0, packet, SendFlags::NOSIGNAL).unwrap();
        let mut answer = vec![0; 40 << 10];
        let (bytes, _) = recv(&self.0, &mut answer[..], RecvFlags::empty()).unwrap();
        answer.truncate(bytes);
        answer
    }

    fn access(&self, request: [u32; 3]) -> u32 {
        let answer = self.packet(request.as_bytes());
        u32::from_le_bytes(answer[4..8].try_into().unwrap())
    }

    fn read(&self, offset: u32) -> u32 {
        self.access([1, offset, 0])
    }

    fn write(&self, offset: u32, value: u32) {
        self.access([2, offset, value]);
    }

    fn write_block(&self, offset: u32, data: &[u8]) {
        let head = [3, offset, data.len() as u32];
        self.packet(&[head.as_bytes(), data].concat());
    }

    fn read_block(&self, offset: u32, bytes: usize) -> Vec<u8> {
        self.packet([4, offset, bytes as u32].as_bytes()).split_off(8)
    }
}

/// A process that uses the old library.
struct Old {
    bar0: Bar,
    bar1: Bar,
    turn: File,
    /// The machine's memory, part of which the process has registered; `None` if it has no pages.
    pages: Option<File>,
    token: u32,
    address: u64,
}

impl Old {
    /// Starts as the old library does, with pages of its own or without.
    fn start(bus: &Path, pages: bool) -> Self {
        let turn =
            File::options().write(true).create(true).truncate(false).open(bus.join("vgpu_transport.lock"));
        let memory = || File::options().read(true).write(true).open(bus.join("ram")).unwrap();
        let (bar0, bar1) = (Bar::open(bus, "resource0"), Bar::open(bus, "resource1"));
        let mut old =
            Self { bar0, bar1, turn: turn.unwrap(), pages: pages.then(memory), token: 4711, address: 0 };
        if pages {
            old.in_turn(Self::register);
        }
        old.in_turn(|old| old.call(Op::PrimaryCtxRetain, &[0, 0], 0));
        old.in_turn(|old| old.call(Op::MemAlloc, &[COPIED as u32, 0, 0, 0], 0));
        old.address =
            u64::from(old.bar0.read(reg::RESULTS)) | u64::from(old.bar0.read(reg::RESULTS + 4)) << 32;
        old
    }

    fn in_turn<T>(&self, what: impl FnOnce(&Self) -> T) -> T {
        flock(&self.turn, FlockOperation::LockExclusive).unwrap();
        let done = what(self);
        flock(&self.turn, FlockOperation::Unlock).unwrap();
        done
    }

    fn register(&self) {
        let [low, high] = split(OWN);
        for (register, value) in [
            (reg::SHMEM_GPA_LO, low),
            (reg::SHMEM_GPA_HI, high),
            (reg::SHMEM_SIZE, 2 * HALF),
            (reg::SHMEM_CTRL, reg::SHMEM_REGISTER),
        ] {
            self.bar0.write(register, value);
        }
        assert_eq!(self.bar0.read(reg::STATUS), reg::DONE);
    }

    fn call(&self, op: Op, args: &[u32], bytes: usize) {
        for (register, value) in [
            (reg::SCRATCH, self.token),
            (reg::CUDA_OP, op as u32),
            (reg::CUDA_SEQ, 1),
            (reg::CUDA_NUM_ARGS, args.len() as u32),
            (reg::CUDA_DATA_LEN, bytes as u32),
        ] {
            self.bar0.write(register, value);
        }
        for (at, &arg) in (reg::CUDA_ARGS..).step_by(4).zip(args) {
            self.bar0.write(at, arg);
        }
        self.bar0.write(reg::CUDA_DOORBELL, reg::RING);
        while self.bar0.read(reg::STATUS) == reg::BUSY {
            std::thread::yield_now();
        }
        assert_eq!(self.bar0.read(reg::STATUS), reg::DONE, "{}", op.name());
    }

    /// Uploads and downloads data, and compares it. The process registers its pages before each upload, as
    /// the old library does, and never before a download.
    #[track_caller]
    fn round_trip(&self, seed: u64) {
        assert!(COPIED <= BLOCK && COPIED as u32 <= HALF);
        let data = pattern(seed, COPIED);
        let [low, high] = split(self.address);
        let args = [low, high, COPIED as u32, 0];
        self.in_turn(|old| {
            if let Some(pages) = &old.pages {
                old.register();
                pages.write_all_at(&data, OWN).unwrap();
            } else {
                old.bar1.write_block(reg::BAR1_TO_HOST, &data);
            }
            old.call(Op::MemcpyHtoD, &args, COPIED);
        });
        let back = self.receive(&args);
        let wrong = back.iter().zip(&data).filter(|(back, data)| back != data).count();
        assert_eq!(wrong, 0, "wrong bytes of {COPIED} in round {seed}");
    }

    fn receive(&self, args: &[u32]) -> Vec<u8> {
        self.in_turn(|old| {
            old.call(Op::MemcpyDtoH, args, 0);
            assert_eq!(old.bar0.read(reg::RESULT_DATA_LEN) as usize, COPIED);
            let Some(pages) = &old.pages else { return old.bar1.read_block(reg::BAR1_TO_GUEST, COPIED) };
            let mut data = vec![0; COPIED];
            pages.read_exact_at(&mut data, OWN + u64::from(HALF)).unwrap();
            data
        })
    }
}

fn bed() -> Bed {
    let mediator = vgpu_device_v1::Mediator::new(soft("version 1"), vgpu_device_v1::MediatorRules::default());
    Bed::with(vgpu_device_v1::MediatorPlace::Local(mediator.unwrap()), WINDOWED, None)
}

/// Q10, Q30: A process releases the window (`SHMEM_RELEASE`) at detach, so that an old guest reads its own
/// data afterwards.
#[test]
fn after_a_process_that_detached_an_old_one_reads_what_is_its() {
    let bed = bed();
    let session = attach_in(bed.dir());
    // Without a copy or a synchronize, it keeps its window to the end.
    assert_eq!((load(&session, 1, PTX), function(&session)), (0, 0));
    assert_eq!(Bar::open(bed.dir(), "resource0").read(reg::SHMEM_CTRL), 1, "it has a window");
    session.close();
    Old::start(bed.dir(), false).round_trip(1);
}

#[test]
fn after_a_process_that_was_killed_the_next_turn_releases_its_window() {
    let bed = bed();
    let mut killed = Role::start("copying-up", bed.dir());
    killed.kill();
    // Another new process makes a call that copies nothing.
    drop(attach_in(bed.dir()));
    Old::start(bed.dir(), false).round_trip(1);
}

/// A process that was idle before the old one came, after a copy or after a wait for its launches, does not
/// disturb the old one.
#[test]
fn beside_a_process_that_is_idle_an_old_one_reads_what_is_its() {
    for waits in [false, true] {
        let bed = bed();
        let session = attach_in(bed.dir());
        let address = allocate(&session, 1 << 20);
        let data = pattern(1, 1 << 20);
        copy_in(&session, address, &data);
        if waits {
            assert_eq!((load(&session, 1, PTX), function(&session)), (0, 0));
            let word = session.word().unwrap();
            let mark = word.mark();
            session.send(&signal(mark), &[]).unwrap();
            session.wait(mark.word, mark.value).unwrap();
        }
        let old = Old::start(bed.dir(), false);
        old.round_trip(1);
        assert!(copy_out(&session, address, data.len()) == data, "waits: {waits}");
        old.round_trip(2);
    }
}

/// Between two calls of this process with the same arguments, a guest of an older version runs and leaves its
/// own arguments in the registers.
#[test]
fn after_an_old_one_that_came_and_went_an_upload_arrives() {
    let bed = bed();
    let session = attach_in(bed.dir());
    let address = allocate(&session, 1 << 20);
    copy_in(&session, address, &pattern(1, 1 << 20));
    drop(Old::start(bed.dir(), false));
    let data = pattern(2, 1 << 20);
    copy_in(&session, address, &data);
    assert!(copy_out(&session, address, data.len()) == data);
    assert_eq!(session.late_error(), None);
}

/// New and old processes, one of those with pages and one without, make calls in turn, and none reads
/// another's bytes.
#[test]
fn beside_a_process_that_works_old_ones_read_what_is_theirs() {
    for pages in [false, true] {
        let bed = bed();
        let session = attach_in(bed.dir());
        let address = allocate(&session, 1 << 20);
        let old = Old::start(bed.dir(), pages);
        for round in 0..20 {
            let data = pattern(round, 200_000 + round as usize);
            copy_in(&session, address, &data);
            old.round_trip(round);
            assert!(copy_out(&session, address, data.len()) == data, "round {round}, pages {pages}");
            old.round_trip(round + 1000);
        }
        assert_eq!(session.late_error(), None);
    }
}

/// Uploads in a loop until the process is killed, and never waits for completion.
pub fn copying_up(dir: &Path) {
    let session = attach_in(dir);
    let address = allocate(&session, 1 << 20);
    for count in 0_u64.. {
        copy_in(&session, address, &pattern(count, 100_000));
        if count == 3 {
            say("ready");
        }
    }
}
