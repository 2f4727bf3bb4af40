//! Tests that kill a process in each state of a call of version 1: other processes continue, the lock is
//! free, and the objects of the dead process are freed.
//!
//! The device brings a process into a state by stopping it at the access with which the state starts, or the
//! process does so itself, at memory that faults in the middle of a copy. No state is reached by waiting for
//! a time.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vgpu_device_v1::Bar;
use vgpu_device_v1::{BarAccess, Watch};
use vgpu_transport::Session;
use vgpu_transport_bed::{
    Role, allocate, copy_in, copy_out, eventually, listen_to_notices, pattern, say, soft,
};
use vgpu_wire::Span;
use vgpu_wire::body::module::{IMAGE_PTX, ModuleData, ModuleLoad, ModuleOpen};
use vgpu_wire::v1::registers as reg;

use crate::version1::{Bed, NO_MEMORY, WINDOWED, attach_in};

/// Maximum time that any step may take before the test fails.
const PATIENCE: Duration = Duration::from_mins(1);
/// Length in bytes of the device memory that a victim allocates.
const HELD: u64 = 32 << 20;
/// Length in bytes of a victim's copies: several calls each way, and not a whole number of them.
const COPIED: usize = (20 << 20) + 12_345;
/// Length in bytes of the other processes' copies, which go through BAR1 or the window.
const OTHERS: usize = 100_000;

/// Returns whether to stop a process at its next access, the last of those that it has made since the watch
/// started.
type Here = fn(&[BarAccess]) -> bool;

/// Stops one process at one access.
#[derive(Debug, Default)]
pub struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    wanted: Option<(u32, Here)>,
    seen: Vec<BarAccess>,
    reached: bool,
    dead: bool,
}

impl Watch for Stop {
    fn admits(&self, seen: BarAccess) -> bool {
        let mut state = self.lock();
        let Some((_, here)) = state.wanted.filter(|(process, _)| *process == seen.process) else {
            return true;
        };
        state.seen.push(seen);
        if !here(&state.seen) {
            return true;
        }
        state.reached = true;
        self.changed.notify_all();
        // The wait is limited, so that a test that failed meanwhile ends.
        drop(self.changed.wait_timeout_while(state, PATIENCE, |state| !state.dead));
        false
    }
}

impl Stop {
    /// Locks the state. Poisoning is ignored, so that the device's threads continue when a test has failed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the process at the access that `here` accepts.
    fn at(&self, process: u32, here: Here) {
        *self.lock() = State { wanted: Some((process, here)), ..State::default() };
    }

    /// Waits until the process has stopped.
    fn reached(&self) {
        let state = self.lock();
        let (state, _) = self.changed.wait_timeout_while(state, PATIENCE, |state| !state.reached).unwrap();
        assert!(state.reached, "the process is not held up: {:x?}", state.seen);
    }

    /// Ends the stop of a process that is dead, without performing its access.
    fn forget(&self) {
        self.lock().dead = true;
        self.changed.notify_all();
    }
}

fn last(seen: &[BarAccess]) -> BarAccess {
    seen[seen.len() - 1]
}

fn reads(seen: BarAccess, offset: u32) -> bool {
    (seen.bar, seen.write, seen.offset) == (Bar::Bar0, false, offset)
}

fn writes(seen: BarAccess, offset: u32) -> bool {
    (seen.bar, seen.write, seen.offset) == (Bar::Bar0, true, offset)
}

fn doorbells(seen: &[BarAccess]) -> usize {
    seen.iter().filter(|seen| writes(**seen, reg::CUDA_DOORBELL)).count()
}

/// How a victim is brought into the state in which it is killed.
enum Way {
    /// The device stops it at an access.
    Held(Here),
    /// The device stops it at an access, and the mediator executes no calls.
    HeldBusy(Here),
    /// The process reports that it has reached the state.
    Says,
}

/// Returns whether the lock file of the machine, which is locked during a call, can be locked.
fn turn_is_free(dir: &Path) -> bool {
    let file = File::open(dir.join("vgpu_transport.lock")).unwrap();
    // SAFETY: the descriptor is the open file's.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}

fn round_trip(session: &Session, address: u64, seed: u64) {
    let source = pattern(seed, OTHERS);
    copy_in(session, address, &source);
    assert!(copy_out(session, address, OTHERS) == source, "wrong bytes in round {seed}");
}

/// Kills a process in the role `what`, and checks that its objects are freed.
fn killed(what: &str, ram: u64, way: &Way) {
    let stop = Arc::new(Stop::default());
    let bed = Bed::watched(soft("version 1"), ram, Arc::clone(&stop) as Arc<dyn Watch>);
    let witness = attach_in(bed.dir());
    let address = allocate(&witness, 1 << 20);
    let mut victim = Role::start(&format!("v1-{what}"), bed.dir());
    assert_eq!(bed.allocated(), HELD + (1 << 20));
    // Another process makes a call after the victim's last one, so that the victim reads the registers anew.
    round_trip(&witness, address, 1);

    let (Way::Held(here) | Way::HeldBusy(here)) = way else {
        victim.go_on();
        assert_eq!(victim.said(), "in the midst");
        assert!(!turn_is_free(bed.dir()), "it is killed in its turn");
        victim.kill();
        return nothing_is_left(&bed, &witness, address);
    };
    let busy = matches!(way, Way::HeldBusy(_));
    if busy {
        bed.bus().hold();
    }
    stop.at(victim.id(), *here);
    victim.go_on();
    stop.reached();
    assert!(!turn_is_free(bed.dir()), "it is killed in its turn");
    victim.kill();
    stop.forget();
    if busy {
        // The next caller has the dead process's owner cleaned up, waits for that, and only then makes its
        // own call.
        let rung = bed.accesses()[2];
        std::thread::scope(|scope| {
            let next = scope.spawn(|| round_trip(&witness, address, 2));
            let looks = bed.accesses()[1];
            eventually("the next looks at the status", || bed.accesses()[1] > looks + 3);
            assert!(!next.is_finished());
            let calls = bed.accesses()[2] - rung;
            bed.bus().release();
            assert_eq!(calls, 1, "the cleanup, and no call of its own");
        });
    }
    nothing_is_left(&bed, &witness, address);
}

fn nothing_is_left(bed: &Bed, witness: &Session, address: u64) {
    assert!(turn_is_free(bed.dir()));
    for round in 3..6 {
        round_trip(witness, address, round);
    }
    let other = Role::start("v1-check", bed.dir());
    // A process that attaches cleans up after dead ones, and so does one that is asked to reclaim.
    assert!(witness.reclaim().unwrap() <= 1);
    assert_eq!(bed.owners(), 2, "{:?}", bed.status());
    assert_eq!(
        bed.allocated(),
        HELD + (1 << 20),
        "the other process's and the witness's: {:?}",
        bed.status()
    );
    drop(other);
    round_trip(witness, address, 6);
    assert_eq!(witness.late_error(), None);
}

#[test]
fn in_its_turn_before_anything_is_staged() {
    killed("alloc", WINDOWED, &Way::Held(|seen| reads(last(seen), reg::STATUS)));
}

#[test]
fn in_the_midst_of_staging() {
    killed("alloc", WINDOWED, &Way::Held(|seen| writes(last(seen), reg::CUDA_NUM_ARGS)));
}

#[test]
fn staged_before_the_doorbell() {
    killed("alloc", WINDOWED, &Way::Held(|seen| writes(last(seen), reg::CUDA_DOORBELL)));
    killed("upload", WINDOWED, &Way::Held(|seen| writes(last(seen), reg::CUDA_DOORBELL)));
    killed("upload", NO_MEMORY, &Way::Held(|seen| writes(last(seen), reg::CUDA_DOORBELL)));
}

#[test]
fn while_the_call_is_under_way() {
    let rung: Here = |seen| doorbells(seen) == 1 && reads(last(seen), reg::STATUS);
    killed("alloc", WINDOWED, &Way::HeldBusy(rung));
    killed("upload", WINDOWED, &Way::HeldBusy(rung));
    killed("upload", NO_MEMORY, &Way::HeldBusy(rung));
    // The answer comes after the process that made the call is dead.
    killed("download", WINDOWED, &Way::HeldBusy(rung));
    killed("download", NO_MEMORY, &Way::HeldBusy(rung));
}

/// Kills a process whose allocation the host has made, before it reads the address.
#[test]
fn done_before_the_results_are_read() {
    killed("alloc", WINDOWED, &Way::Held(|seen| reads(last(seen), reg::RESULTS)));
    killed("download", WINDOWED, &Way::Held(|seen| reads(last(seen), reg::RESULT_DATA_LEN)));
}

#[test]
fn while_the_results_are_read() {
    killed("alloc", WINDOWED, &Way::Held(|seen| reads(last(seen), reg::RESULTS + 4)));
    let second: Here = |seen| {
        let blocks = seen.iter().filter(|seen| seen.bar == Bar::Bar1 && !seen.write);
        blocks.count() == 2
    };
    killed("download", NO_MEMORY, &Way::Held(second));
}

#[test]
fn while_the_window_is_made_its_own() {
    killed("upload", WINDOWED, &Way::Held(|seen| writes(last(seen), reg::SHMEM_SIZE)));
    killed("upload", WINDOWED, &Way::Held(|seen| writes(last(seen), reg::SHMEM_CTRL)));
    let registered: Here = |seen| {
        let [.., before, last] = seen else { return false };
        writes(*before, reg::SHMEM_CTRL) && reads(*last, reg::STATUS)
    };
    killed("upload", WINDOWED, &Way::Held(registered));
}

#[test]
fn while_payload_is_stored_to_bar1() {
    let third: Here = |seen| seen.iter().filter(|seen| seen.bar == Bar::Bar1 && seen.write).count() == 3;
    killed("upload", NO_MEMORY, &Way::Held(third));
}

#[test]
fn between_the_calls_of_a_copy() {
    let second: Here = |seen| writes(last(seen), reg::CUDA_DOORBELL) && doorbells(seen) == 2;
    for what in ["upload", "download"] {
        for ram in [WINDOWED, NO_MEMORY] {
            killed(what, ram, &Way::Held(second));
        }
    }
}

/// Kills a process between the parts of an image. The host keeps the parts until the last one arrives or
/// their owner is cleaned up.
#[test]
fn between_the_pieces_of_an_image() {
    let second: Here = |seen| writes(last(seen), reg::CUDA_DOORBELL) && doorbells(seen) == 2;
    for ram in [WINDOWED, NO_MEMORY] {
        killed("module", ram, &Way::Held(second));
    }
}

#[test]
fn in_the_midst_of_filling_the_window_or_bar1() {
    for ram in [WINDOWED, NO_MEMORY] {
        killed("torn-upload", ram, &Way::Says);
    }
}

#[test]
fn in_the_midst_of_emptying_the_window_or_bar1() {
    for ram in [WINDOWED, NO_MEMORY] {
        killed("torn-download", ram, &Way::Says);
    }
}

/// Returns memory whose second half cannot be accessed. A process that copies from or to it faults in the
/// middle, while it holds the lock.
fn torn(bytes: usize) -> *mut u8 {
    /// Reports the fault, and waits until the process is killed.
    extern "C" fn stay(_: c_int) {
        let word = b"@in the midst\n";
        // SAFETY: the word has that many bytes; a handler may write.
        unsafe { libc::write(1, word.as_ptr().cast(), word.len()) };
        loop {
            // SAFETY: a handler may wait for a signal.
            unsafe { libc::pause() };
        }
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, where the kernel likes.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    let half = (bytes / 2) & !0xfff;
    // SAFETY: `half` is within the mapping.
    let second = unsafe { memory.byte_add(half) };
    // SAFETY: the rest of the mapping, of which nobody knows yet.
    assert_eq!(unsafe { libc::mprotect(second, bytes - half, libc::PROT_NONE) }, 0);
    let handler: extern "C" fn(c_int) = stay;
    // SAFETY: the handler calls nothing that a handler may not.
    let old = unsafe { libc::signal(libc::SIGSEGV, handler as *const () as libc::sighandler_t) };
    assert_ne!(old, libc::SIG_ERR);
    memory.cast()
}

/// Runs the role of a victim, or of the process that follows it.
pub fn part(what: &str, dir: &Path) {
    listen_to_notices();
    let session = attach_in(dir);
    let address = allocate(&session, HELD);
    if what == "check" {
        round_trip(&session, address, 7);
        say("ready");
        return vgpu_transport_bed::stay();
    }
    // The buffers are made in advance, so that later only the copy is made.
    let source = pattern(8, COPIED);
    let mut target = vec![0; COPIED];
    say("ready");
    vgpu_transport_bed::stay();
    match what {
        "alloc" => drop(allocate(&session, 4 << 20)),
        "upload" => copy_in(&session, address, &source),
        "download" => {
            // SAFETY: the vector has that many bytes and is used by nobody else.
            unsafe { session.copy_out(0, address, target.as_mut_ptr(), target.len()) }.unwrap();
        }
        "module" => load(&session),
        "torn-upload" => {
            let memory = torn(COPIED);
            // SAFETY: that its second half is not readable is what ends the process.
            unsafe { session.copy_in(0, address, memory, COPIED) }.unwrap();
        }
        "torn-download" => {
            let memory = torn(COPIED);
            // SAFETY: that its second half is not writable is what ends the process.
            unsafe { session.copy_out(0, address, memory, COPIED) }.unwrap();
        }
        other => panic!("there is no victim {other}"),
    }
    say("not killed");
}

/// Loads a module whose image is sent in several parts.
fn load(session: &Session) {
    let image = format!(".version 7.0\n.target sm_50\n.address_size 64\n//{}\n", "-".repeat(17 << 20));
    let image = image.as_bytes();
    let open = ModuleOpen {
        reply: 0,
        module: 1,
        image: IMAGE_PTX,
        reserved: 0,
        bytes: image.len() as u64,
        digest: [0; 32],
    };
    session.call(open, &[], &mut [0; 8]).unwrap();
    for (index, piece) in image.chunks(16 << 10).enumerate() {
        let offset = (index * (16 << 10)) as u64;
        let data = Span::inline(piece.len() as u64);
        session.send(&ModuleData { module: 1, reserved: 0, offset, data }, &[piece]).unwrap();
    }
    session.call(ModuleLoad { reply: 0, module: 1 }, &[], &mut []).unwrap();
}
