//! Tests of devices that are lost.

use std::time::{Duration, Instant};

use vgpu_transport::{Device, GoneReason, OpenError, Session, SessionError};
use vgpu_transport_bed::{
    Bed, Role, allocate, attach_in, echo, folder, functions, heard, listen_to_notices, null, signal, soft,
};
use vgpu_wire::body::session::Echo;

/// Maximum time until a lost device is noticed, as the documentation promises.
const NOTICED: Duration = Duration::from_secs(1);

const GONE: SessionError = SessionError::Gone { reason: GoneReason::Socket };

/// Memory that the work on a device with memory may use.
const MEMORY: u64 = 32 << 20;

/// Kills devices after `work` has started, which gets the address of [`MEMORY`] bytes if the device has any,
/// and checks that `work` ends with the right error. One of several runs must end in time: other processes
/// may take the processors for a second, but not in each run.
fn lost_during(part: &str, work: impl Fn(&Session, u64) -> SessionError + Sync) {
    let mut times = Vec::new();
    while times.len() < 5 {
        let (noticed, late) = lost_once(part, &work);
        if noticed < NOTICED && late < Duration::from_millis(300) {
            return;
        }
        times.push((noticed, late));
    }
    panic!("{times:?}");
}

/// Returns the time until the work ended, and the time that later calls took.
fn lost_once(part: &str, work: &(impl Fn(&Session, u64) -> SessionError + Sync)) -> (Duration, Duration) {
    let dir = folder();
    let mut device = Role::start(part, dir.path());
    listen_to_notices();
    let session = attach_in(dir.path());
    echo(&session, 1);
    let memory = if part == "device-soft" { allocate(&session, MEMORY) } else { 0 };
    let took = std::thread::scope(|scope| {
        let worker = scope.spawn(|| (work(&session, memory), Instant::now()));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!worker.is_finished());
        let killed = Instant::now();
        device.kill();
        let (lost, noticed) = worker.join().unwrap();
        assert_eq!(lost, GONE);
        assert_eq!(lost.code(), 46);
        let took = noticed.saturating_duration_since(killed);
        println!("noticed after {took:?}");
        took
    });
    assert!(heard("0000:00:05.0: the device is gone: its register socket is closed"));
    // From here on, every call returns the error at once.
    let late = session.late_error().unwrap();
    assert_eq!((late.code, late.sticky, late.ended), (46, true, true));
    let start = Instant::now();
    assert_eq!(session.wait(1, 1), Err(GONE));
    assert_eq!(session.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut []), Err(GONE));
    assert_eq!(session.reclaim(), Err(GONE));
    session.close();
    (took, start.elapsed())
}

#[test]
fn in_a_wait() {
    lost_during("device-null", |session, _| {
        let word = session.word().unwrap();
        session.wait(word.index(), 1).unwrap_err()
    });
}

#[test]
fn in_calls() {
    lost_during("device-null", |session, _| {
        loop {
            let answer = session.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut []);
            if let Err(lost) = answer {
                return lost;
            }
        }
    });
}

/// Sends messages, with a pause after each, until the session is lost.
fn send_until_lost(session: &Session, pause: Duration) -> SessionError {
    let word = session.word().unwrap();
    loop {
        if let Err(lost) = session.send(&signal(word.mark()), &[]) {
            return lost;
        }
        std::thread::sleep(pause);
    }
}

#[test]
fn in_sends_that_fill_the_ring() {
    lost_during("device-null", |session, _| send_until_lost(session, Duration::ZERO));
}

#[test]
fn in_sends_now_and_then() {
    lost_during("device-null", |session, _| send_until_lost(session, Duration::from_millis(20)));
}

#[test]
fn in_a_loop_that_polls() {
    lost_during("device-null", |session, _| {
        let word = session.word().unwrap();
        loop {
            if session.word_value(word.index()) == 0
                && let Err(lost) = session.check()
            {
                return lost;
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn in_copies() {
    lost_during("device-soft", |session, address| {
        let source = vec![1u8; MEMORY as usize];
        let mut target = vec![0; MEMORY as usize];
        loop {
            // SAFETY: the vector has that many bytes.
            if let Err(lost) = unsafe { session.copy_in(0, address, source.as_ptr(), source.len()) } {
                return lost;
            }
            // SAFETY: the vector has that many bytes and is used by nobody else.
            if let Err(lost) = unsafe { session.copy_out(0, address, target.as_mut_ptr(), target.len()) } {
                return lost;
            }
        }
    });
}

#[test]
fn a_device_that_was_taken_off_in_good_order_is_gone_too() {
    let bed = Bed::of(soft("taken off"));
    let session = bed.attach();
    echo(&session, 1);
    let start = Instant::now();
    let dir = bed.stop();
    let word = session.word().unwrap();
    let lost = session.wait(word.index(), 1).unwrap_err();
    // The device's last late error or the closed socket ends the session.
    assert!(matches!(lost, SessionError::Gone { .. } | SessionError::Ended { .. }), "{lost}");
    // The device is examined twice a second, and the machine may be busy.
    assert!(start.elapsed() < Duration::from_secs(30));
    assert!(functions(dir.path()).is_empty());
}

#[test]
fn a_session_does_not_survive_into_the_next_device() {
    let bed = Bed::of(null());
    let session = bed.attach();
    let function = session.function().clone();
    let dir = bed.stop();
    assert!(matches!(Device::open(&function, None), Err(OpenError::Open { .. })));
    let mut device = Role::start("device-null", dir.path());
    let next = attach_in(dir.path());
    echo(&next, 1);
    assert!(matches!(
        session.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut []),
        Err(SessionError::Gone { .. } | SessionError::Ended { .. })
    ));
    drop(session);
    echo(&next, 2);
    device.kill();
}
