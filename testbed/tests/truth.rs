//! The last link of `vgpu-run check`, which starts Ollama's server. However the check ends, nothing of the
//! server remains: no process, no file, no port. If a service's server cannot be started, the check reports
//! no success.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_artifacts::executable;
use vgpu_testbed::bed::{Bed, PATIENCE, TICK, random_facts};
use vgpu_testbed::programs;

/// Environment variable of every process in a scene, whose value is the scene's directory.
const MARK: &str = "STANDIN_SCENE";

/// A device, and a stand-in for Ollama whose server does what `STANDIN_SERVE` says.
struct Scene {
    folder: TempDir,
    bed: Bed,
}

/// A process of a scene, with its ID and its port.
struct Process {
    pid: u32,
    words: String,
    /// Port at which the process was told to listen.
    port: Option<u16>,
}

impl Scene {
    fn new() -> Self {
        let folder = TempDir::with_prefix("vgpu-truth-").unwrap();
        for name in ["bin", "lib/ollama", "tmp", "path"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let standin = programs::standin().unwrap();
        executable::copy(&standin.with_file_name("ollama-era-c"), &folder.path().join("bin/ollama")).unwrap();
        Self { folder, bed: Bed::start("soft", &[random_facts(&["8.6"])]).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        executable::write(&self.path("path").join(name), format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
    }

    /// Returns a check of the link `truth` alone, whose server does `what`.
    fn check(&self, what: &str, more: &[&str]) -> Command {
        let mut command = Command::new(programs::launcher().unwrap());
        command
            .args(["check", "--json", "--only", "truth", "--ollama"])
            .arg(self.path("bin/ollama"))
            .args(more);
        command.env(MARK, self.folder.path()).env("STANDIN_SERVE", what).env("TMPDIR", self.path("tmp"));
        command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.path("path").display()));
        command.env("VGPU_SYSFS", self.bed.sysfs()).env_remove("VGPU_LOG").stdin(Stdio::null());
        command
    }

    /// Returns all processes started by a check of this scene.
    fn processes(&self) -> Vec<Process> {
        let mark = format!("{MARK}={}", self.folder.path().display());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid: u32| {
            let text = |name: &str| {
                Some(
                    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{name}")).ok()?)
                        .replace('\0', "\n"),
                )
            };
            let environment = text("environ")?;
            let address = environment.lines().find_map(|line| line.strip_prefix("OLLAMA_HOST=127.0.0.1:"));
            let port = address.and_then(|port| port.parse().ok());
            let ours = environment.lines().any(|line| line == mark);
            ours.then_some(Process { pid, words: text("cmdline")?.replace('\n', " "), port })
        })
        .collect()
    }

    /// Returns the private directories that these processes have created.
    fn folders(&self, processes: &[Process]) -> Vec<PathBuf> {
        let own = fs::read_dir(self.path("tmp")).unwrap().flatten().map(|entry| entry.path());
        let shared = fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.path());
        let theirs = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("vgpu-run.")
                && processes.iter().any(|process| name.split('.').any(|part| part == process.pid.to_string()))
        };
        own.chain(shared.filter(theirs)).collect()
    }

    /// Waits until the server, its daemon, and its port exist, and returns the processes.
    fn served(&self, check: &mut Child) -> Vec<Process> {
        wait_for(|| {
            assert!(check.try_wait().unwrap().is_none(), "the check has ended before its server was there");
            let processes = self.processes();
            let mut servers = processes.iter().filter(|process| process.words.contains("bin/ollama serve"));
            let server = servers.find_map(|process| process.port)?;
            let daemon = processes.iter().any(|process| process.words.starts_with("sleep 600"));
            (daemon && TcpStream::connect(("127.0.0.1", server)).is_ok()).then_some(processes)
        })
    }

    /// Waits until these processes and their directories are gone, and checks that nobody listens at their
    /// ports.
    fn gone(&self, processes: &[Process]) {
        wait_for(|| {
            let left = self.processes();
            (left.is_empty() && self.folders(processes).is_empty()).then_some(())
        });
        for port in processes.iter().filter_map(|process| process.port) {
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "somebody listens at {port}");
        }
    }
}

/// Calls `look` until it returns a value, and returns that.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "what is waited for does not come");
        thread::sleep(TICK);
    }
}

fn report(command: &mut Command) -> (Option<i32>, Value) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (
        output.status.code(),
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}")),
    )
}

#[test]
fn a_check_that_is_killed_leaves_nothing() {
    let scene = Scene::new();
    for signal in [Signal::KILL, Signal::TERM] {
        let mut check = scene.check("hang", &["--timeout", "120"]).stdout(Stdio::null()).spawn().unwrap();
        let processes = scene.served(&mut check);
        assert!(!scene.folders(&processes).is_empty(), "the server's home is there");
        kill_process(Pid::from_child(&check), signal).unwrap();
        check.wait().unwrap();
        scene.gone(&processes);
    }
}

#[test]
fn a_check_that_ends_leaves_nothing() {
    let scene = Scene::new();
    for (what, cause) in [("cpu", "found-cpu"), ("die", "server-died"), ("hang", "server-silent")] {
        let (code, report) = report(&mut scene.check(what, &["--timeout", "120"]));
        assert_eq!((code, &report["first_failure"]["cause"]), (Some(1), &cause.into()), "{report:#}");
        assert!(scene.processes().is_empty() && scene.folders(&[]).is_empty(), "{what}");
    }
}

#[test]
fn a_check_without_time_leaves_nothing_and_calls_nothing_well() {
    let scene = Scene::new();
    let (code, report) = report(&mut scene.check("hang", &["--timeout", "0.5"]));
    assert_eq!((code, &report["incomplete"]), (Some(3), &serde_json::json!(["truth"])), "{report:#}");
    scene.gone(&[]);
}

/// A service's server is started by systemd-run; if that refuses, the check reports that it does not know.
#[test]
fn a_service_that_cannot_be_tried_is_not_called_well() {
    let scene = Scene::new();
    let unit = |scene: &Scene| {
        format!(
            "LoadState=loaded\nActiveState=active\nExecStart={} serve",
            scene.path("bin/ollama").display()
        )
    };
    scene.script("systemctl", &format!("echo '{}'", unit(&scene)));
    scene.script("systemd-run", "echo 'Failed to start transient service unit: Access denied' >&2; exit 1");
    let (code, report) = report(&mut scene.check("cpu", &["--service"]));
    assert_eq!((code, &report["verdict"]), (Some(3), &"incomplete".into()), "{report:#}");
    let found = report["checks"][0]["found"].as_str().unwrap();
    let expected = if rustix::process::geteuid().is_root() { "Access denied" } else { "only root can" };
    assert!(found.contains(expected), "{found}");
}
