//! Tests of the rights that a worker has given up before it reads its first message.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use rustix::io::Errno;
use vgpu_device::{Limits, RangeLocks};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::module::{Occupancy, OccupancyReply};
use vgpu_worker::{WorkerConfig, WorkerError, WorkerExecutor};
use zerocopy::FromBytes;

use crate::bench::{WorkerBench, worker_config};
use crate::data::{launch, wait_until_done};
use crate::probe;

/// Error that a refused call returns.
const REFUSED: u32 = Errno::PERM.raw_os_error().cast_unsigned();
/// Error that every connect of a worker returns if it may not connect.
const ABSENT: u32 = Errno::NOENT.raw_os_error().cast_unsigned();

/// Runs a function of the probe and returns its result.
fn look(guest: &mut Guest, function: u32) -> u32 {
    let body = Occupancy { reply: 0, function, block_threads: 32, flags: 0, shared_bytes: 0 };
    let (status, data) = guest.call(body, &[]);
    assert_eq!(status, 0, "{function}");
    OccupancyReply::read_from_bytes(&data).expect("an answer").blocks
}

pub fn calls_are_refused() {
    // A descriptor that every child would inherit.
    let leaked =
        std::fs::File::open("/etc/hostname").or_else(|_| std::fs::File::open("/etc/passwd")).expect("a file");
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).expect("a flag");
    refused_as_expected(worker_config("probe"));
}

/// Checks that workers of this configuration are refused what they may not do, and nothing else.
fn refused_as_expected(config: WorkerConfig) {
    let bench = WorkerBench::with(config, Limits::default());
    let mut guest = bench.guest(0);
    for (function, expected) in [
        (probe::SOCKET_INET, REFUSED),
        (probe::CONNECT_UNIX, ABSENT),
        (probe::ACCEPT_UNIX, REFUSED),
        (probe::DATAGRAMS, 0),
        (probe::EXEC, REFUSED),
        (probe::KILL_PARENT, REFUSED),
        (probe::UNSHARE, REFUSED),
        (probe::KILL_SELF, 0),
        (probe::THREAD, 0),
        (probe::OPEN_DEVICE, 0),
        (probe::OWN_LIMITS, 0),
        // Standard input, output and error, the socket's copies, and the session's memory.
        (probe::FOREIGN_FILES, 0),
    ] {
        assert_eq!(look(&mut guest, function), expected, "{function}");
    }
}

pub fn calls_that_are_explained_are_refused_as_others() {
    let config = || WorkerConfig { explains: true, ..worker_config("probe") };
    refused_as_expected(config());
    // A second worker, in which each call is refused twice.
    let bench = WorkerBench::with(config(), Limits::default());
    let mut guest = bench.guest(0);
    for function in [probe::UNSHARE, probe::CONNECT_UNIX].repeat(2) {
        look(&mut guest, function);
    }
}

/// Runs the test above in a process whose standard error, which is that of its workers, is read.
pub fn each_refused_call_is_named_once() {
    let test = "walls::calls_that_are_explained_are_refused_as_others";
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args([test, "--exact"]).output().expect("the test is started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let mut lines: Vec<_> = text.lines().filter(|line| line.contains("refused system call")).collect();
    lines.sort_unstable();
    let line =
        |call, name, error| format!("vgpu-worker: refused system call {call} ({name}) with error {error}");
    let (shared, alone) = (
        [line(308, "setns", REFUSED), line(42, "connect", ABSENT)],
        // Of the first worker: sockets and pairs of other kinds, a connection that would be accepted, and a
        // signal to another process.
        [
            line(288, "accept4", REFUSED),
            line(41, "socket", REFUSED),
            line(53, "socketpair", REFUSED),
            line(62, "kill", REFUSED),
        ],
    );
    let mut expected = [shared.clone(), shared].concat();
    expected.extend(alone);
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

pub fn sockets_are_connected_to_where_that_is_allowed() {
    let bench =
        WorkerBench::with(WorkerConfig { connects: true, ..worker_config("probe") }, Limits::default());
    let mut guest = bench.guest(0);
    for (function, expected) in [
        (probe::CONNECT_UNIX, 0),
        (probe::SOCKET_INET, REFUSED),
        (probe::ACCEPT_UNIX, REFUSED),
        (probe::DATAGRAMS, 0),
        (probe::EXEC, REFUSED),
    ] {
        assert_eq!(look(&mut guest, function), expected, "{function}");
    }
}

pub fn what_nvidias_driver_does_when_it_starts_works() {
    let mut configs = vec![worker_config("probe")];
    if rustix::process::geteuid().is_root() {
        configs.push(WorkerConfig { user: Some("nobody".to_owned()), ..worker_config("probe") });
    }
    for config in configs {
        let user = config.user.clone();
        let bench = WorkerBench::with(config, Limits::default());
        let mut guest = bench.guest(0);
        for function in [probe::LISTEN_UNIX, probe::NAME_THREAD, probe::MEMORY_FILE, probe::THREAD] {
            assert_eq!(look(&mut guest, function), 0, "{function} of {user:?}");
        }
    }
}

pub fn compiled_code_is_kept_for_this_device_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let compiled = folder.path().join("compiled");
    let config = || WorkerConfig { compiled: Some(compiled.clone()), ..worker_config("probe") };
    // The directory still exists when the device starts again.
    for _ in 0..2 {
        let bench = WorkerBench::with(config(), Limits::default());
        assert_eq!(look(&mut bench.guest(0), probe::KEEP_COMPILED), 0);
        let mode = std::fs::metadata(&compiled).expect("a directory").permissions();
        assert_eq!(mode.mode() & 0o777, 0o700);
        std::fs::remove_file(compiled.join("kernel")).expect("it was kept there");
    }
    assert_eq!(look(&mut WorkerBench::new("probe").guest(0), probe::KEEP_COMPILED), probe::NOT_KEPT);
    let nowhere = WorkerConfig { compiled: Some("/nowhere/compiled".into()), ..worker_config("probe") };
    assert!(matches!(WorkerExecutor::new(nowhere), Err(WorkerError::Compiled { .. })));
    if rustix::process::geteuid().is_root() {
        // The workers' user has access to the parent directories.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).expect("a mode");
        let config = WorkerConfig { user: Some("nobody".to_owned()), ..config() };
        let bench = WorkerBench::with(config, Limits::default());
        assert_eq!(look(&mut bench.guest(0), probe::KEEP_COMPILED), 0);
    }
}

/// Returns the fields of a file such as `/proc/PID/status`, by name.
fn fields(path: &str) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.split_whitespace().map(str::to_owned).collect()))
    };
    text.lines().filter_map(field).collect()
}

pub fn rights_are_given_up() {
    let bench = WorkerBench::new("probe");
    let mut guest = bench.guest(0);
    guest.send(&launch(1), &[]);
    wait_until_done(&guest);
    let worker = bench.worker(0);
    let status = fields(&format!("/proc/{worker}/status"));
    assert_eq!(status["NoNewPrivs"], ["1"]);
    assert_eq!(status["Seccomp"], ["2"]);
    // The checks apply to every thread, including those of the executor.
    for thread in std::fs::read_dir(format!("/proc/{worker}/task")).expect("threads") {
        let path = thread.expect("a thread").path().join("status");
        assert_eq!(fields(&path.to_string_lossy())["Seccomp"], ["2"]);
    }
    let limits = std::fs::read_to_string(format!("/proc/{worker}/limits"));
    if let Ok(limits) = limits {
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a line");
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
    }
    // The files in /proc of a process that is not dumpable belong to root.
    let owner = std::fs::metadata(format!("/proc/{worker}/environ")).expect("a process");
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
}

pub fn another_user_is_who_was_asked_for() {
    let as_user = |user: &str| WorkerConfig { user: Some(user.to_owned()), ..worker_config("soft") };
    if !rustix::process::geteuid().is_root() {
        assert!(matches!(WorkerExecutor::new(as_user("nobody")), Err(WorkerError::NotRoot(_))));
        return;
    }
    assert!(matches!(WorkerExecutor::new(as_user("no-such-user")), Err(WorkerError::NoUser(_))));
    let bench = WorkerBench::with(as_user("nobody"), Limits::default());
    let mut guest = bench.guest(0);
    vgpu_host_testing::commands::allocate(&mut guest, 4096);
    let status = fields(&format!("/proc/{}/status", bench.worker(0)));
    let user = status["Uid"].first().expect("a user").clone();
    assert_ne!(user, "0");
    assert!(status["Uid"].iter().all(|id| *id == user), "{:?}", status["Uid"]);
    assert!(!status["Gid"].iter().chain(&status["Groups"]).any(|id| id == "0"), "{:?}", status["Groups"]);
    assert_eq!(status["CapEff"], ["0000000000000000"]);
}

pub fn addresses_stay_the_devices_while_it_has_an_executor() {
    let dir = tempfile::tempdir().expect("a directory");
    let locks = RangeLocks::open(dir.path()).expect("locks");
    let addresses = locks.draw().expect("a range");
    let index = addresses.index();
    let executor = WorkerExecutor::new(WorkerConfig { addresses, ..worker_config("null") }).expect("workers");
    assert_ne!(locks.draw().expect("another range").index(), index);
    drop(executor);
    assert_eq!(locks.draw().expect("the range").index(), index);
}
