//! A guest process that is killed, in any state of a call, leaves nothing behind and disturbs no other: the
//! next attach frees its resources, and the other session continues.

use std::mem::MaybeUninit;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use serde_json::Value;
use vgpu_testbed::bed::{Bed, random_facts, session_of, sessions};
use vgpu_testbed::state::Program;

use crate::support::launcher;

fn start(bed: &Bed, state: &str) -> Program {
    Program::start(bed.sysfs(), state).unwrap()
}

fn allocated(session: &Value) -> u64 {
    session["allocated"].as_u64().unwrap()
}

fn bed(executor: &str) -> Bed {
    Bed::start(executor, &[random_facts(&["6.1"])]).unwrap()
}

/// Kills a guest in `state` while another works; a third guest's attach then frees the memory of the dead
/// one.
fn killed_in(executor: &str, state: &str) {
    let bed = bed(executor);
    let mut other = start(&bed, "working");
    let before = other.beyond(3).unwrap();

    let mut victim = start(&bed, state);
    let held = victim.ready().unwrap();
    let victim_pid = victim.pid();
    let status = bed.status().unwrap();
    let session = session_of(&status, victim_pid).expect("the victim has a session");
    assert!(allocated(session) >= held, "{session}");
    drop(victim);

    // Nobody has told the device: what the victim held is still held, for proof of death is the lock.
    let status = bed.status().unwrap();
    assert!(session_of(&status, victim_pid).is_some_and(|session| allocated(session) >= held), "{status}");
    other.beyond(before + 10).unwrap();

    let mut third = start(&bed, "working");
    let third_pid = third.pid();
    third.beyond(1).unwrap();
    // The attach ends the victim's session, and does not wait for its work or its worker process to stop.
    let freed = |status: &Value| session_of(status, victim_pid).is_none();
    let status = bed.until("the next attach frees the channel", freed).unwrap();
    assert!(session_of(&status, third_pid).is_some());
    third.finish().unwrap();
    let now = other.beyond(0).unwrap();
    other.beyond(now + 10).unwrap();
    other.finish().unwrap();

    let status = bed.until("all sessions end", |status| sessions(status).is_empty()).unwrap();
    assert_eq!(status["devices"][0]["allocated"], 0, "{status}");
}

#[test]
fn killed_between_messages() {
    killed_in("soft", "message");
}

#[test]
fn killed_in_a_copy() {
    killed_in("soft", "copy");
}

#[test]
fn killed_while_capturing() {
    killed_in("soft", "capturing");
}

/// The worker process of the killed guest ends too.
#[test]
fn killed_behind_the_cuda_executor() {
    for state in ["message", "copy"] {
        killed_in("cuda-loop", state);
    }
}

#[test]
fn killed_while_waiting() {
    let bed = bed("soft");
    let mut other = start(&bed, "working");
    other.beyond(3).unwrap();
    let mut victim = start(&bed, "waiting");
    let held = victim.ready().unwrap();
    let pid = victim.pid();
    bed.control("hold").unwrap();
    // Its next line lets it go on into the wait, which the held device does not end.
    victim.go_on().unwrap();
    bed.until("the victim waits for work that is not done", |status| {
        session_of(status, pid).is_some_and(|session| session["messages"].as_u64() > session["done"].as_u64())
    })
    .unwrap();
    drop(victim);
    bed.control("release").unwrap();
    let now = other.beyond(0).unwrap();
    other.beyond(now + 10).unwrap();

    let mut third = start(&bed, "working");
    third.beyond(1).unwrap();
    let what = format!("{held} bytes are free again");
    bed.until(&what, |status| session_of(status, pid).is_none()).unwrap();
    third.finish().unwrap();
    other.finish().unwrap();
    bed.until("all sessions end", |status| sessions(status).is_empty()).unwrap();
}

#[test]
fn a_dead_guest_makes_room_for_an_allocation() {
    // 96 MiB, of which the victim takes 64: too little is left for another 64.
    let mut facts = random_facts(&["6.1"]);
    facts.memory_mib = 96;
    let bed = Bed::start("soft", &[facts]).unwrap();
    let mut hungry = start(&bed, "hungry");
    assert_eq!(hungry.ready().unwrap(), 0);
    let mut victim = start(&bed, "copy");
    assert_eq!(victim.ready().unwrap(), 64 << 20);
    drop(victim);
    // It attached before the victim did, so only its allocation can find the dead.
    hungry.go_on().unwrap();
    assert_eq!(hungry.line().unwrap(), "allocated");
    hungry.finish().unwrap();
}

/// Watches as systemd's path unit does, for the end of processes that had a file open for writing.
struct Watch(OwnedFd);

impl Watch {
    fn of(path: &Path) -> Self {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, path, WatchFlags::CLOSE_WRITE).unwrap();
        Self(watch)
    }

    /// Returns whether such a process has ended since the last call, or ends within the limit.
    fn has_seen(&self, limit: Timespec) -> bool {
        let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)).unwrap() > 0;
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.0, &mut space);
        while events.next().is_ok() {}
        ready
    }
}

/// Returns the file of a bus's device that has the channels' locks.
fn lock_file(bed: &Bed) -> std::path::PathBuf {
    let devices = bed.sysfs().join("bus/pci/devices");
    let device = std::fs::read_dir(devices).unwrap().next().unwrap().unwrap();
    device.path().join("resource2")
}

/// A killed program's endless kernel ends by `vgpu-run reap`. The program's death is seen by the lock file,
/// and the command itself does not look like one.
#[test]
fn the_dead_are_reaped_by_a_command_that_their_death_starts() {
    let bed = bed("soft");
    let watch = Watch::of(&lock_file(&bed));
    let mut other = start(&bed, "working");
    other.beyond(1).unwrap();
    let mut victim = start(&bed, "launching");
    victim.ready().unwrap();
    let pid = victim.pid();
    let reap = || {
        let output = launcher(bed.sysfs()).arg("reap").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(reap(), "", "both live");
    let seconds = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    // The launchers that became the programs, and asked the device before.
    watch.has_seen(seconds(0));
    assert!(session_of(&bed.status().unwrap(), pid).is_some());
    drop(victim);
    assert!(watch.has_seen(seconds(60)), "the kernel closes the file of the dead");
    assert_eq!(reap(), "1 session of programs that are gone ended\n");
    assert!(session_of(&bed.status().unwrap(), pid).is_none());
    assert_eq!(reap(), "");
    assert!(!watch.has_seen(seconds(1)), "reaping starts itself again");
    let now = other.beyond(0).unwrap();
    other.beyond(now + 2).unwrap();
    other.finish().unwrap();
}

#[test]
fn a_program_that_waits_reaps_the_dead() {
    let bed = bed("soft");
    let mut waiter = start(&bed, "waiting");
    waiter.ready().unwrap();
    let mut victim = start(&bed, "copy");
    victim.ready().unwrap();
    let pid = victim.pid();
    bed.control("hold").unwrap();
    waiter.go_on().unwrap();
    drop(victim);
    bed.until("the program that waits ends the session of the dead", |status| {
        session_of(status, pid).is_none()
    })
    .unwrap();
    drop(waiter);
}
