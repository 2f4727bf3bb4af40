//! Tests of the gate's two holders, as guests see them.

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::thread::{Pid, gettid};
use vgpu_device::{DeviceConfig, Gate, GateMode, GateReport};
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{Bench, config, gpu};
use vgpu_host_testing::commands::{LAUNCH, function, launch, load, params};
use vgpu_host_testing::guest::until;
use vgpu_wire::Mark;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::MemFree;
use vgpu_wire::body::stream::{Signal, StreamCreate, StreamHold, StreamRelease};

/// First completion word for marks of this module.
const WORD: u32 = 700;

type Told = Arc<Mutex<Vec<GateReport>>>;

fn bench() -> (Bench, Arc<Gate>, Told) {
    let (gate, told) = (Arc::<Gate>::default(), Told::default());
    let all = Arc::clone(&told);
    gate.set_listener(Box::new(move |report| all.lock().unwrap().push(report)));
    let config = DeviceConfig { gate: Arc::clone(&gate), ..config(Soft::new(&gpu()).unwrap()) };
    (Bench::with(config), gate, told)
}

fn until_told(told: &Told, turn: u32, work: bool, in_flight: bool) {
    let report = GateReport { turn, work, in_flight };
    until(&format!("{report:?}"), || told.lock().unwrap().last() == Some(&report));
}

#[test]
fn messages_wait_while_either_holder_shuts_the_gate() {
    let (bench, gate, told) = bench();
    let mut guest = bench.guest(0);
    gate.arbitrate(1, GateMode::Shut);
    let number = guest.send(&MemFree { address: 0 }, &[]);
    until_told(&told, 1, true, false);
    assert!(guest.done() < number);
    // A session that the operator holds asks for none of the GPU's time.
    bench.bus.hold();
    gate.arbitrate(2, GateMode::Metered);
    until_told(&told, 2, false, false);
    assert!(guest.done() < number);
    bench.bus.release();
    until("the message is carried out", || guest.done() >= number);
    until_told(&told, 2, false, false);
    gate.arbitrate(3, GateMode::Open);
    guest.echo();
}

#[test]
fn a_session_that_waits_at_the_gate_can_end() {
    let (bench, gate, told) = bench();
    let mut guest = bench.guest(0);
    gate.arbitrate(1, GateMode::Shut);
    guest.send(&MemFree { address: 0 }, &[]);
    until_told(&told, 1, true, false);
    guest.detach();
    until_told(&told, 1, false, false);
}

#[test]
fn nobody_is_told_of_what_passes_an_open_gate() {
    let (bench, gate, told) = bench();
    let mut guest = bench.guest(0);
    for _ in 0..100 {
        guest.echo();
    }
    assert_eq!(*told.lock().unwrap(), []);
    gate.arbitrate(1, GateMode::Metered);
    until_told(&told, 1, false, false);
    gate.arbitrate(2, GateMode::Open);
    let before = told.lock().unwrap().len();
    for _ in 0..100 {
        guest.echo();
    }
    assert_eq!(told.lock().unwrap().len(), before);
}

/// The soft executor knows which tasks wait for the guest.
#[test]
fn a_held_stream_has_no_work_in_flight() {
    let (bench, gate, told) = bench();
    let mut guest = bench.guest(0);
    guest.send(&StreamCreate { stream: 1, flags: 1, priority: 0, reserved: 0 }, &[]);
    gate.arbitrate(1, GateMode::Metered);
    guest.send(&StreamHold { stream: 1, hold: 1, mark: Mark::new(WORD, 1) }, &[]);
    guest.send(&Signal { stream: 1, reserved: 0, mark: Mark::new(WORD + 1, 1) }, &[]);
    guest.wait_word(WORD, 1);
    until_told(&told, 1, false, false);
    assert_eq!(guest.word(WORD + 1), 0);
    guest.send(&StreamRelease { hold: 1, reserved: 0 }, &[]);
    guest.wait_word(WORD + 1, 1);
    until_told(&told, 1, false, false);
}

/// Returns a number from the status file of a thread of this process.
fn of_thread(thread: Pid, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{}/status", thread.as_raw_nonzero())).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(field)).expect(field);
    value.trim_start_matches(':').trim().parse().expect("a number")
}

/// A session's thread that waits for the work in flight sleeps until a completion wakes it. It does not poll.
#[test]
fn a_session_that_waits_for_its_work_sleeps() {
    const SWITCHES: &str = "voluntary_ctxt_switches";
    let (bench, gate, told) = bench();
    let mut guest = bench.guest(0);
    load(&mut guest, 1);
    function(&mut guest, 1, "endless");
    let threads = Arc::<Mutex<Vec<Pid>>>::default();
    let all = Arc::clone(&threads);
    gate.set_listener(Box::new(move |report| {
        all.lock().unwrap().push(gettid());
        told.lock().unwrap().push(report);
    }));
    gate.arbitrate(1, GateMode::Metered);
    let own = gettid();
    let session = || threads.lock().unwrap().iter().find(|thread| **thread != own).copied();
    until("the session's thread has said that it rests", || session().is_some());
    let session = session().expect("a thread");
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(0, &[]));
    let last = (0..100).map(|_| guest.send(&Signal { stream: 0, reserved: 0, mark: Mark::NONE }, &[])).last();
    let mut done = 0;
    until("the session's thread waits", || {
        let before = std::mem::replace(&mut done, guest.done());
        thread::sleep(Duration::from_millis(20));
        done > 1 && done == before
    });
    assert!(done < last.expect("a number"), "work in flight is bounded");
    let before = of_thread(session, SWITCHES);
    thread::sleep(Duration::from_millis(300));
    let woken = of_thread(session, SWITCHES) - before;
    assert!(woken < 10, "{woken} times in 300 ms");
    guest.detach();
}
