//! A guest process that is killed, in each state that a call can be in, leaves nothing behind and
//! disturbs nobody: the next attach frees what it held, the other session goes on.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use vgpu_testbed::bed::{Bed, Facts, PATIENCE, session_of, sessions};
use vgpu_testbed::programs;

/// A stand-in under the launcher, whose lines can be read.
struct Guest {
    child: Child,
    lines: BufReader<ChildStdout>,
    stdin: Option<ChildStdin>,
}

impl Guest {
    fn start(bed: &Bed, state: &str) -> Self {
        let mut child = Command::new(programs::launcher().unwrap())
            .arg(programs::standin().unwrap())
            .args(["state", state])
            .env("VGPU_SYSFS", bed.sysfs())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        Self { child, lines, stdin }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "the program ended: {:?}", self.child.wait());
        line.trim().to_owned()
    }

    /// Waits for `ready N` and returns N, the bytes of device memory that it holds.
    fn ready(&mut self) -> u64 {
        let line = self.line();
        line.strip_prefix("ready ").expect("the program says when it is ready").parse().unwrap()
    }

    /// The launcher becomes the program, so the child's pid is the session's.
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Reads lines until one with a round beyond `round`.
    fn beyond(&mut self, round: u64) -> u64 {
        let end = Instant::now() + PATIENCE;
        loop {
            let now: u64 = self.line().strip_prefix("round ").expect("a round").parse().unwrap();
            if now > round {
                return now;
            }
            assert!(Instant::now() < end, "the other session stands still at round {now}");
        }
    }

    fn finish(mut self) {
        drop(self.stdin.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

fn allocated(session: &Value) -> u64 {
    session["allocated"].as_u64().unwrap()
}

fn bed() -> Bed {
    Bed::start("soft", &[Facts::random(&["6.1"])]).unwrap()
}

/// Kills a guest in `state` while another works; a third, which attaches, makes room.
fn killed_in(state: &str) {
    let bed = bed();
    let mut other = Guest::start(&bed, "working");
    let before = other.beyond(3);

    let mut victim = Guest::start(&bed, state);
    let held = victim.ready();
    let victim_pid = victim.pid();
    let status = bed.status().unwrap();
    let session = session_of(&status, victim_pid).expect("the victim has a session");
    assert!(allocated(session) >= held, "{session}");
    victim.kill();

    // Nobody has told the device: what the victim held is still held, for proof of death is the lock.
    let status = bed.status().unwrap();
    assert!(session_of(&status, victim_pid).is_some_and(|session| allocated(session) >= held), "{status}");
    other.beyond(before + 10);

    let mut third = Guest::start(&bed, "working");
    let third_pid = third.pid();
    third.beyond(1);
    let status = bed.status().unwrap();
    assert!(session_of(&status, victim_pid).is_none(), "the next attach frees the channel: {status}");
    assert!(session_of(&status, third_pid).is_some());
    third.finish();
    let now = other.beyond(0);
    other.beyond(now + 10);
    other.finish();

    let status = bed.until("all sessions end", |status| sessions(status).is_empty()).unwrap();
    assert_eq!(status["devices"][0]["allocated"], 0, "{status}");
}

#[test]
fn killed_between_messages() {
    killed_in("message");
}

#[test]
fn killed_in_a_copy() {
    killed_in("copy");
}

#[test]
fn killed_while_capturing() {
    killed_in("capturing");
}

#[test]
fn killed_while_waiting() {
    let bed = bed();
    let mut other = Guest::start(&bed, "working");
    other.beyond(3);
    let mut victim = Guest::start(&bed, "waiting");
    let held = victim.ready();
    let pid = victim.pid();
    bed.control("hold").unwrap();
    // Its next line lets it go on into the wait, which the held device does not end.
    let stdin = victim.stdin.as_mut().unwrap();
    std::io::Write::write_all(stdin, b"\n").unwrap();
    bed.until("the victim waits for work that is not done", |status| {
        session_of(status, pid).is_some_and(|session| session["messages"].as_u64() > session["done"].as_u64())
    })
    .unwrap();
    victim.kill();
    bed.control("release").unwrap();
    let now = other.beyond(0);
    other.beyond(now + 10);

    let mut third = Guest::start(&bed, "working");
    third.beyond(1);
    let status = bed.status().unwrap();
    assert!(session_of(&status, pid).is_none(), "{held} bytes are free again: {status}");
    third.finish();
    other.finish();
    bed.until("all sessions end", |status| sessions(status).is_empty()).unwrap();
}

#[test]
fn a_dead_guest_makes_room_for_an_allocation() {
    // 96 MiB, of which the victim takes 64: too little is left for another 64.
    let mut facts = Facts::random(&["6.1"]);
    facts.memory_mib = 96;
    let bed = Bed::start("soft", &[facts]).unwrap();
    let mut hungry = Guest::start(&bed, "hungry");
    assert_eq!(hungry.ready(), 0);
    let mut victim = Guest::start(&bed, "copy");
    assert_eq!(victim.ready(), 64 << 20);
    victim.kill();
    // It attached before the victim did, so only its allocation can find the dead.
    std::io::Write::write_all(hungry.stdin.as_mut().unwrap(), b"\n").unwrap();
    assert_eq!(hungry.line(), "allocated");
    hungry.finish();
}
