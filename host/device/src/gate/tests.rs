//! Tests of what the gate reports to the arbiter, and of its holders' independence.

use std::sync::{Arc, Mutex};
use std::thread;

use super::*;

fn gate() -> (Gate, Arc<Mutex<Vec<GateReport>>>) {
    let (gate, told) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let to = Arc::clone(&told);
    gate.set_listener(Box::new(move |report| to.lock().unwrap().push(report)));
    gate.enter(1, thread::current(), false);
    gate.enter(2, thread::current(), false);
    (gate, told)
}

fn report(turn: u32, work: bool, in_flight: bool) -> GateReport {
    GateReport { turn, work, in_flight }
}

#[test]
fn sessions_have_work_until_they_say_where_they_are() {
    let (gate, told) = gate();
    gate.arbitrate(4, GateMode::Metered);
    gate.moves(1, ThreadState::Rest);
    assert_eq!(*told.lock().unwrap(), [report(4, true, true)]);
    gate.moves(2, ThreadState::Rest);
    assert_eq!(*told.lock().unwrap(), [report(4, true, true), report(4, false, false)]);
    // Nothing has happened meanwhile, so another order changes nothing but its number.
    gate.arbitrate(5, GateMode::Shut);
    assert_eq!(told.lock().unwrap().last(), Some(&report(5, false, false)));
}

#[test]
fn work_is_in_flight_until_it_is_complete_or_its_session_has_ended() {
    let (gate, told) = gate();
    gate.arbitrate(1, GateMode::Metered);
    gate.moves(1, ThreadState::Rest);
    gate.moves(2, ThreadState::Inside);
    gate.asks(2, 7);
    gate.arbitrate(2, GateMode::Shut);
    assert_eq!(told.lock().unwrap().last(), Some(&report(2, true, true)));
    gate.moves(2, ThreadState::Gate);
    assert_eq!(told.lock().unwrap().last(), Some(&report(2, true, true)));
    gate.settled(2, 6);
    assert_eq!(told.lock().unwrap().last(), Some(&report(2, true, true)));
    gate.settled(2, u64::MAX);
    assert_eq!(told.lock().unwrap().last(), Some(&report(2, true, false)));
    gate.asks(2, 8);
    assert_eq!(told.lock().unwrap().last(), Some(&report(2, true, true)), "it was never complete");
    gate.leave(2);
    assert_eq!(told.lock().unwrap().last(), Some(&report(2, false, false)));
}

#[test]
fn the_holders_do_not_disturb_each_other() {
    let (gate, told) = gate();
    assert!(gate.is_open() && !gate.held());
    gate.set(true);
    assert!(!gate.is_open() && gate.held());
    assert_eq!(gate.passage(), GateMode::Open);
    gate.arbitrate(1, GateMode::Shut);
    assert_eq!((gate.passage(), gate.held()), (GateMode::Shut, true));
    gate.set(false);
    assert_eq!((gate.passage(), gate.held()), (GateMode::Shut, false));
    gate.arbitrate(2, GateMode::Metered);
    assert_eq!((gate.passage(), gate.is_open()), (GateMode::Metered, false));
    let before = told.lock().unwrap().len();
    gate.arbitrate(3, GateMode::Open);
    gate.moves(1, ThreadState::Inside);
    assert!(gate.is_open());
    // A session may be about to move when the gate opens.
    assert!(told.lock().unwrap().len() <= before + 1);
}

#[test]
fn a_session_that_waits_to_be_admitted_is_woken_by_a_completion_and_by_the_end_of_another() {
    const LONG: u64 = 5_000_000;
    let gate = Arc::new(Gate::default());
    gate.arbitrate(1, GateMode::Metered);
    for session in 1..=2 {
        gate.enter(session, thread::current(), false);
        assert!(gate.admit(session, LONG));
        gate.asks(session, 1);
    }
    for (session, frees) in [(3, 1), (4, 2)] {
        let (waits, waiting) = std::sync::mpsc::channel();
        let (its, sender) = (Arc::clone(&gate), waits.clone());
        let thread = thread::spawn(move || {
            its.enter(session, thread::current(), false);
            // On a machine that is busy the parts in flight may count no more.
            let admitted = its.admit(session, LONG);
            sender.send(()).unwrap();
            if !admitted {
                thread::park();
                assert!(its.admit(session, LONG));
            }
        });
        waiting.recv().unwrap();
        if frees == 1 {
            gate.settled(1, 1);
        } else {
            gate.leave(2);
        }
        thread.join().unwrap();
        gate.asks(session, 1);
    }
}

#[test]
fn nobody_waits_to_be_admitted_at_a_gate_that_is_not_metered() {
    let gate = Gate::default();
    gate.enter(1, thread::current(), false);
    assert!(!gate.admit(1, 0));
    assert_eq!(gate.presences().admission.first_waiting(), None);
}

#[test]
fn a_pause_is_nobodys_who_holds_the_gate() {
    let (gate, told) = gate();
    let calls = gate.calls();
    gate.set_paused(true);
    assert!(gate.is_paused() && !gate.is_open() && !gate.held());
    assert_eq!((gate.passage(), gate.calls()), (GateMode::Open, calls + 1), "sessions that wait look at it");
    gate.arbitrate(1, GateMode::Shut);
    gate.set(true);
    gate.arbitrate(2, GateMode::Open);
    gate.set(false);
    assert!(gate.is_paused() && !gate.is_open());
    assert_eq!(told.lock().unwrap().len(), 1, "the arbiter is not told of a pause");
    gate.set_paused(false);
    assert!(gate.is_open() && !gate.is_paused());
}
