//! Tests of processes that fork, die, and close descriptors that are not theirs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use vgpu_transport::{Device, OpenError, SessionError};
use vgpu_transport_bed::{
    Bed, Role, allocate, attach_in, echo, eventually, folder, functions, heard, listen_to_notices, null,
    signal, soft,
};
use vgpu_wire::body::session::Echo;

/// Runs `body` in a forked child. Returns its result, which is the child's exit code.
fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child of this process, which has threads, calls code that takes no lock of other threads,
    // and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = body();
        // SAFETY: ends the child without running anything of the test harness.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    // The child drops what `body` holds.
    std::mem::forget(body);
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn a_forked_child_gets_an_error_and_disturbs_nothing() {
    let bed = Bed::of(soft("forked"));
    let session = bed.attach();
    let address = allocate(&session, 1 << 20);
    let pinned = session.window_alloc(1 << 16).unwrap().unwrap();
    let word = session.word().unwrap();
    let function = session.function().clone();
    // Both happen at once: other threads use the session while the process forks.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cookie = 0;
            while !over.load(Ordering::Relaxed) {
                cookie += 1;
                echo(&session, cookie);
            }
        });
        for _ in 0..10 {
            let good = in_child(|| {
                let mut byte = 0u8;
                let forked = Err(SessionError::Forked);
                // SAFETY: one byte is there.
                let copied_in = unsafe { session.copy_in(0, address, &raw const byte, 1) };
                // SAFETY: as above.
                let copied_out = unsafe { session.copy_out(0, address, &raw mut byte, 1) };
                session.join(1);
                let echoed = session.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut []);
                let opened = Device::open(&function, None);
                session.close();
                session.send(&signal(word.mark()), &[]) == Err(SessionError::Forked)
                    && echoed == Err(SessionError::Forked)
                    && session.wait(word.index(), 1) == forked
                    && session.check() == forked
                    && copied_in == forked
                    && copied_out == forked
                    && session.window_alloc(1).map(drop) == forked
                    && session.reclaim() == Err(SessionError::Forked)
                    && session.late_error().is_some_and(|error| error.code == 3 && error.sticky)
                    && session.word().is_none()
                    && matches!(opened, Err(OpenError::Forked { .. }))
            });
            assert!(good);
        }
        over.store(true, Ordering::Relaxed);
    });
    // Values that the child drops still belong to the parent.
    let good = in_child(|| {
        drop(word);
        drop(pinned);
        drop(session);
        true
    });
    assert!(good);
    assert_eq!(bed.status().sessions.len(), 1);
}

#[test]
fn a_childs_exit_leaves_the_parents_session_alone() {
    let bed = Bed::of(null());
    let session = bed.attach();
    assert!(in_child(|| true));
    assert!(in_child(|| {
        session.close();
        true
    }));
    echo(&session, 1);
    // The locks are still held: a living process loses no channel.
    let mut other = Role::start("idle", bed.dir());
    assert_eq!(bed.status().sessions.len(), 2);
    other.end();
    echo(&session, 2);
}

#[test]
fn the_dead_are_reclaimed_and_the_living_go_on() {
    let mut counted = 0;
    for part in ["idle", "memory", "sending", "copying", "waiting"] {
        let bed = Bed::of(soft(part));
        let bed = if part == "sending" { Bed::of(null()) } else { bed };
        let session = bed.attach();
        let address = allocate(&session, 4096);
        let mut dying = Role::start(part, bed.dir());
        let status = bed.status();
        assert_eq!(status.sessions.len(), 2, "{part}");
        assert!(status.sessions.iter().any(|session| session.process == dying.id()));
        assert_eq!(session.reclaim(), Ok(0), "{part}: taken for dead");
        dying.kill();
        // A real BAR has no event for a death: the session stands until a process finds the lock free.
        let ended = session.reclaim().unwrap();
        assert!(ended <= 1, "{part}: {ended}");
        counted += ended;
        // The device is waited for two seconds at most.
        eventually("only the living are left", || {
            let status = bed.status();
            status.sessions.len() == 1 && status.allocated == 4096
        });
        // SAFETY: a byte is there.
        unsafe { session.copy_in(0, address, [1u8].as_ptr(), 1) }.unwrap();
        echo(&session, 1);
    }
    assert!(counted > 0, "none was counted in time");
}

#[test]
fn the_next_to_attach_reclaims_the_dead() {
    let bed = Bed::new(vec![null()], |config| config.channels = 2);
    let mut first = Role::start("idle", bed.dir());
    let mut second = Role::start("memory", bed.dir());
    first.kill();
    second.kill();
    assert_eq!(bed.status().sessions.len(), 2);
    let session = bed.attach();
    // The session whose channel it needed has ended, and the other has been told to.
    eventually("both have ended", || bed.status().sessions.len() == 1);
    assert_eq!(bed.status().free_channels, 1);
    echo(&session, 1);
}

#[test]
fn memory_of_the_dead_is_found_when_there_is_no_room() {
    let bed = Bed::new(vec![soft("room")], |config| config.window_bytes = 64 << 20);
    let session = bed.attach();
    let mut dying = Role::start("memory", bed.dir());
    assert!(session.window_alloc(20 << 20).unwrap().is_none());
    dying.kill();
    assert!(session.window_alloc(20 << 20).unwrap().is_some());
}

#[test]
fn a_process_that_exits_is_as_good_as_dead() {
    let bed = Bed::of(null());
    let mut leaving = Role::start("exit", bed.dir());
    leaving.end();
    assert_eq!(bed.status().sessions.len(), 1);
    let session = bed.attach();
    // The attach has told the other session to end; if that takes a moment, this waits for it.
    assert!(session.reclaim().unwrap() <= 1);
    eventually("its session has ended", || bed.status().sessions.len() == 1);
    drop(session);
    eventually("nobody is left", || bed.status().sessions.is_empty());
}

#[test]
fn a_busy_process_exits_with_its_own_code() {
    for (part, left) in [("exit-busy", 1), ("exit-closing", 0)] {
        let mut best = Duration::MAX;
        for _ in 0..5 {
            let bed = Bed::of(soft(part));
            let start = Instant::now();
            assert_eq!(Role::start(part, bed.dir()).code(), Some(7), "{part}");
            best = best.min(start.elapsed());
            // A device that is slow is not waited for.
            eventually("the session has ended, or is left", || bed.status().sessions.len() == left);
            assert!(bed.attach().late_error().is_none());
            eventually("the session that was left has ended", || bed.status().allocated == 0);
        }
        assert!(best < Duration::from_secs(3), "{part}: {best:?} at best");
    }
}

#[test]
fn descriptors_that_the_program_closes_are_opened_again() {
    let bed = Bed::of(null());
    let mut closing = Role::start("closing", bed.dir());
    // The process has locked its channel again.
    let session = bed.attach();
    assert_eq!(session.reclaim(), Ok(0));
    assert_eq!(bed.status().sessions.len(), 2);
    closing.go_on();
    assert_eq!(closing.said(), "fine");
    closing.end();
    echo(&session, 1);
}

/// Tests a process that makes no call, so that it does not take its lock again.
#[test]
fn a_process_that_closed_its_descriptors_keeps_its_session() {
    let bed = Bed::of(null());
    let mut daemon = Role::start("daemon", bed.dir());
    let session = bed.attach();
    assert_eq!(session.reclaim(), Ok(0));
    assert_eq!(bed.status().sessions.len(), 2);
    daemon.kill();
    assert!(session.reclaim().unwrap() <= 1);
    eventually("its session has ended", || bed.status().sessions.len() == 1);
    echo(&session, 1);
}

/// A forked child inherits its parent's descriptors and mappings, but not its session.
#[test]
fn the_death_of_a_parent_is_seen_while_its_child_lives() {
    let bed = Bed::of(null());
    let mut parent = Role::start("parent", bed.dir());
    let child = Pid::from_raw(parent.said().parse().unwrap()).unwrap();
    let watch = inotify::init(CreateFlags::CLOEXEC).unwrap();
    let file = functions(bed.dir())[0].dir.join("resource2");
    inotify::add_watch(&watch, file, WatchFlags::CLOSE_WRITE).unwrap();
    parent.kill();
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let seen = poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&limit));
    let alive = test_kill_process(child);
    let session = bed.attach();
    eventually("the session of the dead has ended", || bed.status().sessions.len() == 1);
    kill_process(child, Signal::KILL).unwrap();
    assert_eq!((seen, alive), (Ok(1), Ok(())));
    echo(&session, 1);
}

#[test]
fn one_processor_is_left_to_the_device() {
    let bed = Bed::of(null());
    Role::start("one-processor", bed.dir()).end();
}

#[test]
fn a_paused_device_is_waited_for() {
    let dir = folder();
    let device = Role::start("device-null", dir.path());
    let session = attach_in(dir.path());
    echo(&session, 1);
    listen_to_notices();
    device.pause();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| echo(&session, 2));
        eventually("the silence is told of", || heard("the device has not answered for 1 s, waiting"));
        assert!(!caller.is_finished());
        device.resume();
        caller.join().unwrap();
    });
    assert!(heard("the device answers again"));
    // A paused device does not keep a process from closing either.
    device.pause();
    let start = Instant::now();
    session.close();
    // The device is paused, so that a close that waited for it would not return.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    device.resume();
    let next = attach_in(dir.path());
    echo(&next, 1);
    eventually("only one is left", || next.reclaim().is_ok());
    assert_eq!(functions(dir.path()).len(), 1);
}
