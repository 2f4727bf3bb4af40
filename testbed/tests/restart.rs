//! A host of version 1 that ends and restarts during traffic, and one that rejects its guests: programs get a
//! CUDA error and exit by themselves, none hangs or crashes, and later programs find a working host.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use vgpu_device::{Executor, GpuConfig};
use vgpu_device_v1::{Mediator, MediatorRules, Server};
use vgpu_executor_soft::Soft;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{Bed, PATIENCE, random_facts, sessions};
use vgpu_testbed::programs;

use crate::support::{launcher, report_of};

/// Text of the error `CUDA_ERROR_DEVICE_UNAVAILABLE` in a program's output.
const UNAVAILABLE: &str = "returned 46";
/// Number of concurrent programs.
const PROGRAMS: u64 = 3;
/// Arguments for a duration above that of any test, so that these programs end only by an error.
const FOR_GOOD: [&str; 2] = ["--seconds", "300"];
const SHORT: [&str; 2] = ["--operations", "80"];

/// A program with random operations under the launcher.
struct SoakProgram {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl SoakProgram {
    fn start(sysfs: &Path, seed: u64, length: [&str; 2]) -> Self {
        let mut child = launcher(sysfs)
            .arg(programs::standin().unwrap())
            .args(["soak", "--seed", &seed.to_string()])
            .args(length)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Starts several programs and waits until all of them work.
    fn several(sysfs: &Path) -> Vec<Self> {
        let mut all: Vec<Self> = (0..PROGRAMS).map(|seed| Self::start(sysfs, seed, FOR_GOOD)).collect();
        for program in &mut all {
            let mut line = String::new();
            program.lines.read_line(&mut line).unwrap();
            assert_eq!(line.trim(), "working", "{}", program.errors());
        }
        all
    }

    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }

    /// Waits until the program ends, and returns its exit status and its error messages.
    fn wait(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "a program hangs");
            std::thread::sleep(Duration::from_millis(5));
        };
        (status, self.errors())
    }

    /// Checks that the program exits by itself with the CUDA error for an unavailable device.
    fn ends_told(self) {
        let (status, errors) = self.wait();
        assert_eq!(status.code(), Some(1), "{status}: {errors}");
        assert!(errors.contains(UNAVAILABLE) && !errors.contains("panicked"), "{errors}");
    }
}

/// Checks that the launcher refuses to start a program when nothing serves the device, and that it reports
/// `why`.
fn ends_unstarted(sysfs: &Path, why: &str) {
    let (status, errors) = SoakProgram::start(sysfs, 1, SHORT).wait();
    assert_eq!(status.code(), Some(125), "{status}: {errors}");
    assert!(errors.contains("has nothing behind it") && errors.contains(why), "{errors}");
}

impl Drop for SoakProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks that new programs work without a wrong byte.
fn run_programs(sysfs: &Path) {
    let programs: Vec<SoakProgram> =
        (0..PROGRAMS).map(|seed| SoakProgram::start(sysfs, seed, SHORT)).collect();
    for mut program in programs {
        let mut said = String::new();
        program.lines.read_to_string(&mut said).unwrap();
        let (status, errors) = program.wait();
        assert!(status.success(), "{status}: {errors}{said}");
        let report: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!((&report["wrong"], &report["operations"]), (&Value::from(0), &Value::from(80)));
    }
}

fn bed(more: &[&str]) -> Bed {
    let facts = Facts { memory_mib: 4096, ..random_facts(&["6.1"]) };
    Bed::start_with("soft", &[facts], &[&["--protocol", "v1"], more].concat()).unwrap()
}

/// Returns the number of a device's doorbells, each of which is an attempted call.
fn doorbells(bed: &Bed) -> u64 {
    bed.status().unwrap()["devices"][0]["accesses"]["doorbells"].as_u64().unwrap()
}

fn a_device_comes_back(more: &[&str]) {
    let mut bed = bed(more);
    for _ in 0..2 {
        let programs = SoakProgram::several(bed.sysfs());
        bed.kill().unwrap();
        for program in programs {
            program.ends_told();
        }
        bed.restart().unwrap();
        run_programs(bed.sysfs());
    }
    let status = bed.status().unwrap();
    assert!(sessions(&status).iter().all(|session| session["state"] == "no context"), "{status}");
    assert_eq!(status["devices"][0]["allocated"], 0, "{status}");
}

#[test]
fn a_device_with_windows_is_killed_and_comes_back() {
    a_device_comes_back(&[]);
}

#[test]
fn a_device_without_windows_is_killed_and_comes_back() {
    a_device_comes_back(&["--ram", "1M"]);
}

fn soft() -> std::sync::Arc<dyn Executor> {
    let gpu = GpuConfig { memory_bytes: 4 << 30, ..GpuConfig::new("VGPU-STUB mediated").unwrap() };
    std::sync::Arc::new(Soft::new(&gpu).unwrap())
}

/// The device stays while its mediator ends with all resources and another one is started.
#[test]
fn a_mediator_goes_and_another_comes() {
    let folder = TempDir::with_prefix_in("vgpu-mediator-", "/dev/shm").unwrap();
    let socket = folder.path().join("mediator.sock");
    let serve = || Server::start(&socket, &Mediator::new(soft(), MediatorRules::default()).unwrap()).unwrap();
    let first = serve();
    let bed = bed(&["--mediator", socket.to_str().unwrap()]);
    let programs = SoakProgram::several(bed.sysfs());
    drop(first);
    for program in programs {
        program.ends_told();
    }
    // Who comes meanwhile is told, too.
    ends_unstarted(bed.sysfs(), "the mediator on its host is gone");
    let _second = serve();
    run_programs(bed.sysfs());
}

/// Calls are rejected temporarily, which only delays programs, and then permanently, which is reported to
/// them.
#[test]
fn a_mediator_answers_busy_then_quarantined() {
    let folder = TempDir::with_prefix_in("vgpu-mediator-", "/dev/shm").unwrap();
    let socket = folder.path().join("mediator.sock");
    let mediator = Mediator::new(soft(), MediatorRules::default()).unwrap();
    let _server = Server::start(&socket, &mediator).unwrap();
    let bed = bed(&["--mediator", socket.to_str().unwrap()]);
    run_programs(bed.sysfs());
    let free = doorbells(&bed);

    // So few that even programs on a busy machine make too many.
    mediator.set_rules(MediatorRules::new(Some(20), []));
    run_programs(bed.sysfs());
    let limited = doorbells(&bed) - free;
    assert!(
        limited > free,
        "calls were turned away and made again: {limited} doorbells, {free} without limit"
    );

    let programs = SoakProgram::several(bed.sysfs());
    mediator.set_rules(MediatorRules::new(Some(100), [0]));
    for program in programs {
        program.ends_told();
    }
    let (report, _) = report_of(launcher(bed.sysfs()).args(["check", "--json"]));
    let failure = &report["first_failure"];
    assert_eq!(
        (&failure["link"], &failure["cause"]),
        (&"host".into(), &"session-refused".into()),
        "{report:#}"
    );
    assert!(report.to_string().contains("quarantine"), "{report:#}");
    ends_unstarted(bed.sysfs(), "its host has quarantined this virtual machine");

    mediator.set_rules(MediatorRules::default());
    run_programs(bed.sysfs());
}
