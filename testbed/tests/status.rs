//! `vgpu-run status` beside processes that use the device: what it prints is what the host counts, and nobody
//! notices that it was asked.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vgpu_testbed::bed::{Bed, random_facts, sessions};
use vgpu_testbed::programs;

fn vgpu_run(bed: &Bed) -> Command {
    let mut command = Command::new(programs::launcher().unwrap());
    command.env("VGPU_SYSFS", bed.sysfs()).env_remove("CUDA_VISIBLE_DEVICES");
    command
}

/// A process in a state, and the bytes that it holds.
struct StateProgram(Child, u64);

impl StateProgram {
    fn start(bed: &Bed, state: &str) -> Self {
        let mut command = vgpu_run(bed);
        command.arg("--").arg(programs::standin().unwrap()).args(["state", state]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let bytes = line.trim().strip_prefix("ready ").unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        Self(child, bytes)
    }
}

impl Drop for StateProgram {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json(bed: &Bed) -> Value {
    let output = vgpu_run(bed).args(["status", "--json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Number of each session, by process.
fn numbers(bed: &Bed) -> Vec<(u64, u64)> {
    let status = bed.status().unwrap();
    let number =
        |session: &Value| (session["process"].as_u64().unwrap(), session["session"].as_u64().unwrap());
    sessions(&status).into_iter().map(number).collect()
}

#[test]
fn processes_are_shown_with_what_the_host_counts() {
    let facts = random_facts(&["7.5"]);
    let bed = Bed::start("soft", std::slice::from_ref(&facts)).unwrap();
    let empty = json(&bed);
    let device = &empty["devices"][0];
    assert_eq!(
        (&device["name"], &device["address"]),
        (&facts.name.clone().into(), &facts.address.clone().into())
    );
    assert_eq!(device["memory_total"], facts.memory_mib << 20);
    assert_eq!((device["processes"].as_array().unwrap().len(), &device["memory_used"]), (0, &0.into()));

    let guests = [StateProgram::start(&bed, "copy"), StateProgram::start(&bed, "capturing")];
    let before = numbers(&bed);
    let report = json(&bed);
    assert_eq!(numbers(&bed), before, "nobody noticed");
    let device = &report["devices"][0];
    let processes = device["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{report:#}");
    for (guest, command) in guests.iter().zip(["vgpu-standin state copy", "vgpu-standin state capturing"]) {
        let process = processes.iter().find(|process| process["pid"] == guest.0.id()).unwrap();
        assert_eq!(
            (&process["command"], &process["memory"]),
            (&command.into(), &guest.1.into()),
            "{process}"
        );
    }
    assert!(device["memory_used"].as_u64().unwrap() >= guests[0].1 + guests[1].1, "{device}");
    let worked = |guest: &StateProgram, key: &str| {
        let process = processes.iter().find(|process| process["pid"] == guest.0.id()).unwrap();
        process[key].as_f64().unwrap_or_else(|| panic!("{key}: {process}"))
    };
    // One copies without end; the other has only recorded what to do.
    assert!(worked(&guests[0], "gpu_seconds") > worked(&guests[1], "gpu_seconds"), "{report:#}");
    assert_eq!((worked(&guests[1], "gpu_seconds"), worked(&guests[1], "utilization")), (0.0, 0.0));
    let host = bed.status().unwrap();
    let copying = vgpu_testbed::bed::session_of(&host, guests[0].0.id()).unwrap();
    assert!(copying["busy_us"].as_f64().unwrap() / 1e6 >= worked(&guests[0], "gpu_seconds"), "{copying}");

    let output = vgpu_run(&bed).args(["status", "--color", "never"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with(&facts.name) && text.contains("vgpu-standin state copy"), "{text}");
    let pid = guests[1].0.id().to_string();
    assert!(text.lines().any(|line| line.contains(&pid) && line.contains("4 MiB")), "{text}");
}

#[test]
fn watching_goes_on_until_it_is_ended() {
    let bed = Bed::start("null", &[random_facts(&["7.5"])]).unwrap();
    let mut command = vgpu_run(&bed);
    let mut watch =
        command.args(["status", "--watch", "0.05", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut processes = || -> usize {
        let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        report["devices"][0]["processes"].as_array().unwrap().len()
    };
    assert_eq!((processes(), processes()), (0, 0));
    let guest = StateProgram::start(&bed, "capturing");
    while processes() == 0 {}
    drop(guest);
    // Not SIGINT: a test run that a shell started in the background ignores it, and so would the child.
    kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
    assert_eq!(watch.wait().unwrap().signal(), Some(15));
}
