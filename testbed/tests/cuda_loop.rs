//! Tests the executor for real GPUs without one: worker processes use our own libcuda on a soft device. A
//! worker that is killed, in any state, ends only its own session; a program that only queries devices starts
//! no worker; programs get an error from a GPU that disappears.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{Bed, PATIENCE, random_facts, session_of, sessions};
use vgpu_testbed::programs;
use vgpu_testbed::state::Program;

use crate::support::{good_report_of, launcher};

fn start(bed: &Bed, state: &str) -> Program {
    Program::start(bed.sysfs(), state).unwrap()
}

fn bed() -> Bed {
    Bed::start("cuda-loop", &[random_facts(&["6.1"])]).unwrap()
}

/// Returns whether a session has unfinished work.
fn is_behind(session: &Value) -> bool {
    session["messages"].as_u64() > session["done"].as_u64()
}

/// Kills the worker of a program in `state` while another program works. With `held`, the GPU executes
/// nothing once the program continues.
fn killed_in(state: &str, held: bool) {
    let bed = bed();
    let behind = bed.behind().unwrap();
    let waits = held || ["launching", "graph"].contains(&state);
    let mut other = start(&bed, "working");
    other.beyond(3).unwrap();

    let mut victim = start(&bed, state);
    let bytes = victim.ready().unwrap();
    let pid = victim.pid();
    if held {
        behind.control("hold").unwrap();
        victim.go_on().unwrap();
    }
    let status = bed
        .until("the session is in its state", |status| {
            session_of(status, pid).is_some_and(|session| {
                let allocated = session["allocated"].as_u64().is_some_and(|allocated| allocated >= bytes);
                allocated && (!waits || is_behind(session))
            })
        })
        .unwrap();
    let worker = session_of(&status, pid).unwrap()["worker"].as_u64().expect("a worker");
    let worker = Pid::from_raw(i32::try_from(worker).unwrap()).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    let lost = |status: &Value| session_of(status, pid).is_none_or(|session| session["state"] == "failed");
    bed.until("the session has ended", lost).unwrap();
    if held {
        behind.control("release").unwrap();
    }
    let now = other.beyond(0).unwrap();
    other.beyond(now + 10).unwrap();
    if state == "capturing" {
        // It makes no more calls.
        drop(victim);
    } else {
        assert!(victim.finish().is_err(), "a program whose session was lost has succeeded");
    }

    // The next worker has the GPU give back what the dead one held.
    let mut third = start(&bed, "working");
    third.beyond(10).unwrap();
    third.finish().unwrap();
    let now = other.beyond(0).unwrap();
    other.beyond(now + 10).unwrap();
    other.finish().unwrap();
    bed.until_nothing_is_left().unwrap();
}

/// The killed session has memory, but no unfinished work.
#[test]
fn killed_while_idle() {
    killed_in("capturing", false);
}

#[test]
fn killed_between_messages() {
    killed_in("message", false);
}

#[test]
fn killed_in_a_copy() {
    killed_in("copy", false);
}

#[test]
fn killed_in_a_copy_that_waits() {
    killed_in("waiting", true);
}

#[test]
fn killed_in_a_kernel() {
    killed_in("launching", false);
}

#[test]
fn killed_in_a_graph() {
    killed_in("graph", false);
}

#[test]
fn killed_while_it_compiles() {
    killed_in("compiling", true);
}

/// As many processes as Ollama starts to search for GPUs start no worker, and so create no context.
#[test]
fn who_only_looks_makes_no_context() {
    let bed = bed();
    let backend = Backend::Cuda12.folder().unwrap().join("libggml-cuda.so");
    for _ in 0..15 {
        let standin = programs::standin().unwrap();
        let found = good_report_of(launcher(bed.sysfs()).arg("--").arg(standin).arg("ggml").arg(&backend))
            .to_string();
        assert!(found.contains("VGPU-STUB test"), "{found}");
    }
    let status = bed.status().unwrap();
    assert_eq!(status["devices"][0]["workers_started"], 0, "{status}");
    assert!(sessions(&bed.behind().unwrap().status().unwrap()).is_empty());
    let mut working = start(&bed, "working");
    working.beyond(1).unwrap();
    assert_eq!(bed.status().unwrap()["devices"][0]["workers_started"], 1);
    working.finish().unwrap();
}

/// The time that a worker counts appears in the device's report and in the output of `vgpu-run status` in the
/// guest.
#[test]
fn gpu_time_is_shown_on_both_sides() {
    let bed = bed();
    let mut working = start(&bed, "working");
    let pid = working.pid();
    working.beyond(1).unwrap();
    let figures = || good_report_of(launcher(bed.sysfs()).args(["status", "--json"]));
    // Registers follow in steps of 10 ms, so the program works until there is one.
    let end = Instant::now() + PATIENCE;
    let (shown, report) = loop {
        let report = figures();
        let process = report["devices"][0]["processes"][0].clone();
        assert_eq!(process["pid"], pid, "{report}");
        let shown = process["gpu_seconds"].as_f64().unwrap();
        if shown > 0.0 {
            break (shown, report);
        }
        assert!(Instant::now() < end, "no time is shown: {report}");
    };
    assert!(report["devices"][0]["utilization"].as_f64().is_some_and(|share| share <= 1.0), "{report}");
    let status = bed.status().unwrap();
    let session = session_of(&status, pid).unwrap();
    assert!(session["busy_us"].as_f64().unwrap() / 1e6 >= shown, "{shown} {session}");
    assert_eq!((&session["contexts"], &status["devices"][0]["contexts"]), (&1.into(), &1.into()));
    working.finish().unwrap();
    bed.until_nothing_is_left().unwrap();
    assert_eq!(bed.status().unwrap()["devices"][0]["contexts"], 0);
}

/// Code that the driver compiles for workers is stored in the named directory, which only they can access.
#[test]
fn compiled_code_is_kept_in_the_directory_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = folder.path().join("compiled");
    let options = ["--compiled", compiled.to_str().unwrap()];
    let bed = Bed::start_with("cuda-loop", &[random_facts(&["6.1"])], &options).unwrap();
    assert_eq!(compiled.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let mut working = start(&bed, "working");
    working.beyond(1).unwrap();
    working.finish().unwrap();
}

/// When a GPU falls off its bus, each program that uses it ends with an error, and the device still answers.
#[test]
fn a_gpu_that_goes_away_is_told() {
    let mut bed = bed();
    let mut programs = ["working", "copy", "message"].map(|state| start(&bed, state));
    programs[0].beyond(3).unwrap();
    for program in &mut programs[1..] {
        program.ready().unwrap();
    }
    bed.kill_behind().unwrap();
    for program in programs {
        assert!(program.finish().is_err(), "a program without a GPU has succeeded");
    }
    let none = |status: &Value| status["devices"][0]["workers_running"] == 0;
    let status = bed.until("the workers end", none).unwrap();
    assert_eq!(status["devices"][0]["allocated"], 0, "{status}");
}
