//! Tests of the tracer: this program defines the symbol by which the transport finds one.

use std::cell::RefCell;

use vgpu_trace_format::{RecordKind, WAIT_ANSWER};
use vgpu_transport_bed::{Bed, echo, null, signal};

/// An event: kind, index, start, end, result and argument.
type Told = (u32, u32, u64, u64, u64, u64);

thread_local! {
    /// Events of this thread's messages and waits; `None` unless the thread records them.
    static TOLD: RefCell<Option<Vec<Told>>> = const { RefCell::new(None) };
}

/// The tracer's function in this program, which records events.
#[unsafe(no_mangle)]
extern "C" fn vgpu_trace_event(kind: u32, index: u32, begin: u64, end: u64, result: u64, argument: u64) {
    TOLD.with_borrow_mut(|told| {
        if let Some(told) = told {
            told.push((kind, index, begin, end, result, argument));
        }
    });
}

#[test]
fn every_message_and_every_wait_is_told() {
    let _: vgpu_trace_format::Event = vgpu_trace_event;
    let bed = Bed::of(null());
    TOLD.set(Some(Vec::new()));
    let session = bed.attach();
    let word = session.word().unwrap();
    for cookie in 0..300 {
        session.send(&signal(word.mark()), &[]).unwrap();
        echo(&session, cookie);
    }
    session.wait(word.index(), word.last()).unwrap();
    let told = TOLD.take().unwrap();
    let of = |kind: RecordKind| told.iter().filter(move |told| told.0 == kind as u32);
    let counters = session.counters();
    for (kind, count) in session.kinds() {
        let told = of(RecordKind::Message).filter(|told| told.1 == u32::from(kind as u16)).count() as u64;
        assert_eq!(told, count, "{kind:?}");
    }
    assert_eq!(of(RecordKind::Message).count() as u64, counters.messages);
    let numbers: Vec<_> = of(RecordKind::Message).map(|told| told.5).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert!(of(RecordKind::Message).all(|told| told.4 >= 16 && told.4.is_multiple_of(8)));
    assert_eq!(of(RecordKind::Wait).count() as u64, counters.waits);
    assert_eq!(of(RecordKind::Wait).filter(|told| told.5 != 0).count() as u64, counters.sleeps);
    assert!(of(RecordKind::Wait).all(|told| told.2 > 0 && [WAIT_ANSWER, word.index()].contains(&told.1)));
}
