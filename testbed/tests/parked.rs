//! A session that is parked inside one chunk of work delays no attach, detach, status read or register access
//! of others, and SIGTERM ends the device whatever is parked. Shown with the real processes on the simulated
//! bus, over version 1, and in a booted guest.
//!
//! `--wrong Fill:park=FILE` parks the first fill of a program in the state `message`; the state `working`
//! makes none. The file stays until the processes have ended, so whoever waited for the parked session would
//! never be done.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use vgpu_testbed::bed::{Bed, PATIENCE, random_facts, session_of, sessions, terminate};
use vgpu_testbed::machine::{GuestMachine, Options};
use vgpu_testbed::programs;
use vgpu_testbed::state::Program;

/// Limit of a command in an emulated guest, which takes seconds on an idle machine.
const GUEST_LIMIT: Duration = Duration::from_mins(5);
/// Number of bytes that the stand-in `message` has allocated when its first fill arrives.
const HELD: u64 = 1 << 20;

/// File of the park hook, in a directory of its own.
struct Park {
    folder: TempDir,
}

impl Park {
    fn new() -> Self {
        let folder = TempDir::with_prefix_in("vgpu-parked-", "/dev/shm").unwrap();
        let park = Self { folder };
        std::fs::write(park.file(), "").unwrap();
        park
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("park")
    }

    /// Returns the value of `--wrong`.
    fn wrong(&self) -> String {
        format!("Fill:park={}", self.file().display())
    }

    /// Waits until a session is parked, at most for `limit`.
    fn wait(&self, limit: Duration) {
        let end = Instant::now() + limit;
        while std::fs::read_to_string(self.file()).unwrap() != "Fill\n" {
            assert!(Instant::now() < end, "no fill has come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts the stand-in in the state `state`.
fn start(sysfs: &Path, state: &str) -> Program {
    Program::start(sysfs, state).unwrap()
}

/// Waits for `count` more rounds of the state `working`.
fn rounds(program: &mut Program, count: usize) {
    for _ in 0..count {
        program.round().unwrap();
    }
}

/// Runs a program that attaches, works, and detaches.
fn run_program(sysfs: &Path) {
    let mut program = start(sysfs, "working");
    rounds(&mut program, 5);
    program.finish().unwrap();
}

/// Returns the text that `vgpu-testbed status` prints.
fn status_text(sysfs: &Path) -> String {
    let bus = format!("sim:{}", sysfs.display());
    let output = Command::new(programs::testbed().unwrap()).args(["status", "--bus", &bus]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the longest access and the longest attach that a device has counted, in microseconds.
fn figures(device: &Value) -> (u64, u64) {
    let figure = |key: &str| device[key].as_u64().unwrap();
    (figure("longest_access_us"), figure("longest_attach_us"))
}

#[test]
fn a_parked_session_delays_nobody_on_the_simulated_bus_nor_sigterm() {
    let park = Park::new();
    let mut bed = Bed::start_with("soft", &[random_facts(&["6.1"])], &["--wrong", &park.wrong()]).unwrap();
    let mut other = start(bed.sysfs(), "working");
    rounds(&mut other, 3);
    let victim = start(bed.sysfs(), "message");
    let pid = victim.pid();
    park.wait(PATIENCE);
    let status = bed.status().unwrap();
    let parked = session_of(&status, pid).expect("the parked session").clone();
    assert!(parked["allocated"].as_u64() >= Some(HELD), "{parked}");
    assert!(parked["messages"].as_u64() > parked["done"].as_u64(), "{parked}");
    run_program(bed.sysfs());

    drop(victim);
    // Whoever attaches finds it dead, and begins its end, which waits for the fill.
    for _ in 0..3 {
        run_program(bed.sysfs());
        rounds(&mut other, 3);
        let status = bed.status().unwrap();
        let ending = session_of(&status, pid).expect("it is not over");
        assert_eq!(ending["state"], "ending", "{ending}");
        assert_eq!((&ending["allocated"], &ending["done"]), (&parked["allocated"], &parked["done"]));
    }
    other.finish().unwrap();
    let status = bed.until("the others are gone", |status| sessions(status).len() == 1).unwrap();
    let (access, attach) = figures(&status["devices"][0]);
    let said = format!("longest register access {access} us, longest attach {attach} us");
    let text = status_text(bed.sysfs());
    assert!(text.contains(&said), "{text}");

    let took = bed.terminate().unwrap();
    println!("simulated bus: {said}; SIGTERM to exit {} ms", took.as_millis());
    assert!(park.file().exists(), "the fill was parked to the end");
}

/// A mediator process.
struct Mediator {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Mediator {
    fn start(socket: &Path, wrong: &str) -> Self {
        let mut command = Command::new(programs::testbed().unwrap());
        command.arg("mediator").arg("--socket").arg(socket);
        command.args(["--executor", "soft", "--until-stdin-closes", "--wrong", wrong]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child, stdin, stdout }
    }

    /// Queries the mediator's status, with its owners.
    fn status(&mut self) -> Value {
        writeln!(self.stdin, "status").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the owner of machine 1 whose fill is parked, if there is one.
    fn parked(&mut self) -> Option<Value> {
        let status = self.status();
        let owners = status["sessions"].as_array().unwrap().iter();
        let mut filling = owners.filter(|owner| owner["channel"] == 1 && owner["kinds"]["MemsetD8"] == 1);
        filling.next().cloned()
    }
}

impl Drop for Mediator {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A device of version 1 executes one call at a time, so the programs that must not be delayed belong to
/// another machine.
#[test]
fn a_parked_session_delays_nobody_over_version_1_nor_sigterm() {
    let park = Park::new();
    let socket = park.folder.path().join("mediator");
    let mut mediator = Mediator::start(&socket, &park.wrong());
    let machine = |number: &str| {
        let options = ["--protocol", "v1", "--mediator", socket.to_str().unwrap(), "--vm-id", number];
        Bed::start_with("soft", &[random_facts(&["6.1"])], &options).unwrap()
    };
    let (mut stuck, good) = (machine("1"), machine("2"));
    let mut other = start(good.sysfs(), "working");
    rounds(&mut other, 3);
    let victim = start(stuck.sysfs(), "message");
    park.wait(PATIENCE);
    let owner = mediator.parked().expect("the parked session");
    assert!(owner["allocated"].as_u64() >= Some(HELD), "{owner}");
    run_program(good.sysfs());

    drop(victim);
    for _ in 0..3 {
        run_program(good.sysfs());
        rounds(&mut other, 3);
        assert!(mediator.parked().is_some(), "it is not over: {}", mediator.status());
        // The device's own registers and control socket answer, too.
        assert!(status_text(stuck.sysfs()).contains("calls to a mediator"));
    }
    let device = stuck.terminate().unwrap();
    run_program(good.sysfs());
    rounds(&mut other, 3);
    other.finish().unwrap();
    let took = terminate(&mut mediator.child).unwrap();
    println!(
        "version 1: SIGTERM to exit {} ms for the device, {} ms for the mediator",
        device.as_millis(),
        took.as_millis()
    );
    assert!(!socket.exists(), "it has cleaned up");
    assert!(park.file().exists(), "the fill was parked to the end");
}

#[test]
fn sigterm_ends_a_device_of_version_1_whose_own_mediator_is_parked() {
    let park = Park::new();
    let options = ["--protocol", "v1", "--wrong", &park.wrong()];
    let mut bed = Bed::start_with("soft", &[random_facts(&["6.1"])], &options).unwrap();
    let victim = start(bed.sysfs(), "message");
    park.wait(PATIENCE);
    drop(victim);
    let status = bed.status().unwrap();
    assert!(status["devices"][0]["allocated"].as_u64() >= Some(HELD), "{status}");
    let took = bed.terminate().unwrap();
    println!("version 1 in one process: SIGTERM to exit {} ms", took.as_millis());
    assert!(park.file().exists(), "the fill was parked to the end");
}

/// Runs a command as the unprivileged user, which must succeed, and returns its stdout.
fn run_in_guest(guest: &mut GuestMachine, script: &str) -> String {
    let (end, out, err) = guest.output("guest", &["sh", "-c", script], GUEST_LIMIT).unwrap();
    assert_eq!(end.code(), 0, "{script}: {out}\n{err}\nconsole:\n{}", guest.console());
    out
}

#[test]
fn a_parked_session_delays_nobody_in_a_booted_guest_nor_sigterm() {
    let park = Park::new();
    let device = vec!["--wrong".to_owned(), park.wrong()];
    let mut guest = GuestMachine::boot(&Options { device, ..Options::default() }).unwrap();
    // It is a session of its own, with no pipe of the command's, so that the command ends and it stays.
    let start = "setsid vgpu-run -- vgpu-standin state message </dev/null >/dev/null 2>&1 & echo $!";
    let pid: u32 = run_in_guest(&mut guest, start).trim().parse().unwrap();
    park.wait(GUEST_LIMIT);
    // A device alone in its status, not a bus's.
    let session = |guest: &mut GuestMachine| {
        let status = guest.device_status().unwrap();
        let sessions = status["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "nobody else is left: {status}");
        (sessions[0].clone(), figures(&status))
    };
    let (parked, _) = session(&mut guest);
    assert_eq!((&parked["process"], &parked["state"]), (&pid.into(), &"attached".into()));
    assert!(parked["allocated"].as_u64() >= Some(HELD), "{parked}");
    assert!(parked["messages"].as_u64() > parked["done"].as_u64(), "{parked}");

    let works = "vgpu-run -- vgpu-standin state working </dev/null";
    assert!(run_in_guest(&mut guest, works).starts_with("round 0\n"));
    run_in_guest(&mut guest, &format!("kill -9 {pid}"));
    for _ in 0..2 {
        assert!(run_in_guest(&mut guest, works).starts_with("round 0\n"));
        let (ending, _) = session(&mut guest);
        assert_eq!((&ending["process"], &ending["state"]), (&pid.into(), &"ending".into()));
        assert_eq!((&ending["allocated"], &ending["done"]), (&parked["allocated"], &parked["done"]));
    }
    let (_, (access, attach)) = session(&mut guest);
    let took = guest.terminate_device().unwrap();
    println!(
        "booted guest: longest register access {access} us, longest attach {attach} us; SIGTERM to exit {} ms",
        took.as_millis()
    );
    assert!(park.file().exists(), "the fill was parked to the end");
}
