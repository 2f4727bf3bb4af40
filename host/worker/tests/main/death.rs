//! Tests of workers that die in each state: their session ends, its neighbour continues, and no memory is
//! left in use.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use vgpu_device::Limits;
use vgpu_host_testing::bench::{address, folder};
use vgpu_host_testing::commands::allocate;
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::area;
use vgpu_wire::body::memory::MemInfo;
use vgpu_wire::body::session::WindowFree;
use vgpu_wire::body::stream::Signal as SignalBody;
use vgpu_wire::registers::{Refusal, channel};
use vgpu_wire::{Mark, body::session::WindowAlloc};

use crate::bench::{DEVICE, WITHOUT_PIDFD, WorkerBench, log_lines, worker_config};
use crate::data::{launch, wait_until_done};
use crate::probe;

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).expect("a process")
}

pub fn signal(number: u32, signal: Signal) {
    kill_process(pid(number), signal).expect("a process that lives");
}

pub fn kill(number: u32) {
    signal(number, Signal::KILL);
}

/// A device with a session that may hang, and with a neighbour that works.
struct DeathScene {
    bench: WorkerBench,
    victim: Guest,
    neighbour: Guest,
    value: u64,
}

impl DeathScene {
    fn new(kind: &str) -> Self {
        let bench = WorkerBench::new(kind);
        let (victim, neighbour) = (bench.guest(0), bench.guest(1));
        Self { bench, victim, neighbour, value: 0 }
    }

    fn neighbour_works(&mut self) {
        self.value += 1;
        self.neighbour.send(&launch(1), &[]);
        let mark = Mark::new(1, self.value);
        self.neighbour.send(&SignalBody { stream: 0, reserved: 0, mark }, &[]);
        self.neighbour.wait_word(1, self.value);
        self.neighbour.echo();
    }

    /// Makes the victim hang in its worker, and returns when it does.
    fn hang(&mut self) {
        self.victim.send(&launch(1), &[]);
        wait_until_done(&self.victim);
        let number = self.victim.send(&launch(probe::HANG_FOR_EVER), &[]);
        self.victim.wait_word(probe::HANGING, 1);
        until("the ring is read", || self.bench.session(0).messages == number);
    }

    /// Kills the victim's worker, which ends its session with these words in the log.
    fn kill(self, words: &[&str]) {
        let worker = self.bench.worker(0);
        kill(worker);
        let killed = format!("worker process {worker} was killed by signal: 9 (SIGKILL)");
        self.ended(&[&[killed.as_str()][..], words].concat());
    }

    /// Checks that the victim's session has ended with CUDA's error, that its channel can be used again, and
    /// that its neighbour continues.
    fn ended(mut self, words: &[&str]) {
        let (code, flags, _) = self.victim.ended();
        assert_eq!((code, flags), (999, area::ERROR_STICKY | area::ERROR_ENDED));
        assert_eq!(self.victim.register(channel::ERROR), Refusal::Executor as u32);
        let session = format!("session={}", self.victim.register(channel::SESSION));
        let lines = log_lines(&[&session, "session ended", &format!("process={}", std::process::id())]);
        let said = lines.iter().filter(|line| words.iter().all(|word| line.contains(word)));
        assert_eq!(said.count(), 1, "{words:?} in {lines:?}");
        self.neighbour_works();
        self.bench.until_running(1);
        self.victim.detach();
        let mut next = self.bench.guest(0);
        next.send(&launch(1), &[]);
        wait_until_done(&next);
        next.detach();
        self.neighbour_works();
        self.neighbour.detach();
        let status = self.bench.status();
        assert_eq!((status.workers_running, status.charged_bytes, status.allocated), (Some(0), 0, 0));
    }
}

/// The tests of this module and of the walls pass where the system has no descriptors of processes.
pub fn a_system_without_descriptors_of_processes_will_do() {
    let program = std::env::current_exe().expect("this program");
    for module in ["death::killed", "death::rubbish", "death::a_worker_that", "memory::", "walls::"] {
        // Those that need such descriptors themselves, or start other tests.
        let skipped = ["--skip", "a_worker_whose_device_is_killed", "--skip", "each_refused_call"];
        let output = Command::new(&program).arg(WITHOUT_PIDFD).arg(module).args(skipped).output();
        let output = output.expect("the tests are started");
        assert!(output.status.success(), "{module}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Makes all processes from this one on get ENOSYS from `pidfd_open` and `pidfd_send_signal`, as in gVisor.
pub fn take_pidfds_away() {
    let rules = [libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal].map(|call| (call, vec![]));
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let filter =
        SeccompFilter::new(rules.into(), SeccompAction::Allow, absent, TargetArch::x86_64).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    apply_filter(&program).expect("the filter is applied");
    let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    assert_eq!(own.err(), Some(Errno::NOSYS));
}

pub fn killed_while_it_starts() {
    let bench = WorkerBench::new("stuck");
    let mut victim = bench.guest(0);
    let neighbour = bench.guest(1);
    victim.send(&launch(1), &[]);
    until("a worker starts", || bench.session(0).worker.is_some());
    let worker = bench.worker(0);
    kill(worker);
    assert_eq!(victim.ended().0, 999);
    assert!(!log_lines(&[&format!("worker process {worker} was killed by signal: 9 (SIGKILL)")]).is_empty());
    assert_eq!(neighbour.register(channel::STATE), channel::STATE_ATTACHED);
    victim.detach();
    assert_eq!(bench.workers(), (1, 0));
}

pub fn killed_while_idle() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    allocate(&mut scene.victim, 4096);
    wait_until_done(&scene.victim);
    scene.kill(&["kind=\"MemAlloc\"", "number=2"]);
}

pub fn killed_in_the_middle_of_a_message() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    scene.hang();
    scene.kill(&["kind=\"Launch\""]);
}

pub fn killed_with_work_queued() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    // Window memory that the worker does not release is free when it is dead.
    let window = WindowAlloc { reply: 0, reserved: 0, bytes: 0x1_0000 };
    let (_, data) = scene.victim.call(window, &[]);
    let offset = u64::from_le_bytes(data[..8].try_into().expect("an offset"));
    scene.hang();
    for _ in 0..1000 {
        scene.victim.send(&launch(1), &[]);
    }
    scene.victim.send(&WindowFree { offset }, &[]);
    let value = SignalBody { stream: 0, reserved: 0, mark: Mark::new(9, 1) };
    let number = scene.victim.send(&value, &[]);
    until("all is passed on", || scene.bench.session(0).messages == number);
    assert!(scene.bench.session(0).done < number - 1000);
    let worker = scene.bench.worker(0);
    kill(worker);
    scene.victim.ended();
    assert_eq!(scene.victim.word(9), 0, "no mark of work that was not done");
    scene.ended(&[&format!("worker process {worker} was killed by signal: 9")]);
}

pub fn killed_with_a_full_ring() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    scene.hang();
    // This exceeds the worker's ring, so the session's thread waits for space.
    let tail = vec![0; 0x7000];
    let body = vgpu_wire::body::launch::Launch { param_bytes: tail.len() as u32, ..launch(1) };
    let rings = (1 << 20) / tail.len() + 2;
    for _ in 0..rings {
        scene.victim.send(&body, &tail);
    }
    let most = scene.victim.number;
    until("the ring is full", || {
        scene.bench.session(0).messages < most && scene.bench.session(0).messages > 30
    });
    scene.kill(&["kind=\"Launch\""]);
}

pub fn killed_while_the_device_waits_for_it() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    scene.hang();
    // The device reports the amount of free memory when earlier messages are carried out.
    let number = scene.victim.send(&MemInfo { reply: 2, reserved: 0 }, &[]);
    until("the device waits", || scene.bench.session(0).messages == number);
    scene.kill(&["kind=\"MemInfo\""]);
}

pub fn killed_while_it_ends() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    scene.hang();
    let worker = scene.bench.worker(0);
    let number = scene.victim.register(channel::SESSION);
    let at = channel::base(0) + channel::DETACH_SESSION;
    scene.victim.function.write(at, number);
    // The worker may have been killed already if this takes longer than its time limit.
    let _ = kill_process(pid(worker), Signal::KILL);
    until("the channel is free", || scene.victim.register(channel::STATE) == channel::STATE_FREE);
    scene.neighbour_works();
    assert_eq!(scene.bench.workers().1, 1);
    assert_eq!(scene.victim.late(), None, "nobody reads it any more");
}

pub fn a_worker_that_does_not_stop_is_killed() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    scene.hang();
    scene.victim.detach();
    assert_eq!(scene.bench.workers().1, 1);
    scene.neighbour_works();
    // A worker that checks its flag ends by itself.
    let mut next = scene.bench.guest(0);
    next.send(&launch(probe::HANG), &[]);
    next.detach();
    assert_eq!(scene.bench.workers().1, 1);
}

pub fn a_worker_whose_device_is_killed_ends() {
    for function in [1, probe::HANG_FOR_EVER] {
        let dir = folder();
        let mut command = Command::new("/proc/self/exe");
        command.arg(DEVICE).arg(dir.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut device = command.spawn().expect("a device");
        let mut line = String::new();
        BufReader::new(device.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let mut guest = Guest::attach(dir.path(), address(), 0);
        guest.send(&launch(function), &[]);
        let mut worker = None;
        until("a worker", || {
            worker = status(dir.path())["devices"][0]["sessions"][0]["worker"].as_u64();
            worker.is_some()
        });
        let worker =
            pidfd_open(pid(worker.expect("a worker") as u32), PidfdFlags::empty()).expect("it lives");
        device.kill().expect("the device");
        device.wait().expect("the device");
        let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&worker, PollFlags::IN)], Some(&limit)), Ok(1), "an orphan");
    }
}

fn status(folder: &std::path::Path) -> serde_json::Value {
    let mut socket = UnixStream::connect(folder.join("control")).expect("the control socket");
    socket.set_read_timeout(Some(Duration::from_mins(1))).expect("a limit");
    std::io::Write::write_all(&mut socket, b"{\"cmd\":\"status\"}\n").expect("a command");
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

pub fn a_worker_that_cannot_be_started_ends_its_session() {
    let missing = vgpu_worker::WorkerConfig { program: "/nowhere/vgpu".into(), ..worker_config("null") };
    let failing = worker_config("no such executor");
    for (config, words) in [(missing, "start a worker process"), (failing, "there is no executor")] {
        let bench = WorkerBench::with(config, Limits::default());
        let mut guest = bench.guest(0);
        guest.send(&launch(1), &[]);
        assert_eq!(guest.ended().0, 999);
        let session = format!("session={} ", guest.register(channel::SESSION));
        assert!(!log_lines(&[words, &session]).is_empty());
        guest.detach();
        assert_eq!(bench.workers().1, 0);
        // A session without a worker is not affected.
        bench.guest(0).echo();
    }
}

pub fn rubbish_ends_the_session() {
    for function in [probe::RUBBISH_KIND, probe::RUBBISH_LENGTH, probe::RUBBISH_MEMORY, probe::RUBBISH_NUMBER]
    {
        let mut scene = DeathScene::new("probe");
        scene.neighbour_works();
        scene.victim.send(&launch(1), &[]);
        wait_until_done(&scene.victim);
        let worker = scene.bench.worker(0);
        scene.victim.send(&launch(function), &[]);
        scene.ended(&[&format!("worker process {worker} violates the protocol")]);
    }
}

pub fn a_panic_ends_the_session() {
    let mut scene = DeathScene::new("probe");
    scene.neighbour_works();
    scene.victim.send(&launch(1), &[]);
    wait_until_done(&scene.victim);
    let worker = scene.bench.worker(0);
    scene.victim.send(&launch(probe::PANIC), &[]);
    scene.ended(&[&format!("worker process {worker}: panic: the probe was told to")]);
}
