//! `vgpu-run status` beside processes that use the device: it prints what the host counts, and does not
//! disturb them.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vgpu_device::{DeviceConfig, GpuConfig, ShareSource, SimBus};
use vgpu_executor_soft::Soft;
use vgpu_testbed::bed::{Bed, random_facts, sessions};
use vgpu_testbed::state::Program;
use vgpu_wire::share::VmShare;

use crate::support::{errors, launcher};

fn json(sysfs: &Path) -> Value {
    let output = launcher(sysfs).args(["status", "--json"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns process and number of each session.
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
    let empty = json(bed.sysfs());
    let device = &empty["devices"][0];
    assert_eq!(
        (&device["name"], &device["address"]),
        (&facts.name.clone().into(), &facts.address.clone().into())
    );
    assert_eq!(device["memory_total"], facts.memory_mib << 20);
    assert_eq!((device["processes"].as_array().unwrap().len(), &device["memory_used"]), (0, &0.into()));

    let mut guests = ["copy", "capturing"].map(|state| Program::start(bed.sysfs(), state).unwrap());
    let held = guests.each_mut().map(|guest| guest.ready().unwrap());
    // Registers follow in steps of 10 ms.
    let copier = guests[0].pid();
    bed.until("it has copied for a while", |status| {
        vgpu_testbed::bed::session_of(status, copier)
            .is_some_and(|session| session["busy_us"].as_u64() > Some(50_000))
    })
    .unwrap();
    let before = numbers(&bed);
    let report = json(bed.sysfs());
    assert_eq!(numbers(&bed), before, "nobody noticed");
    let device = &report["devices"][0];
    let processes = device["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{report:#}");
    let process_of =
        |guest: &Program| processes.iter().find(|process| process["pid"] == guest.pid()).unwrap();
    for ((guest, held), state) in guests.iter().zip(held).zip(["copy", "capturing"]) {
        let (process, command) = (process_of(guest), format!("vgpu-standin state {state}"));
        assert_eq!((&process["command"], &process["memory"]), (&command.into(), &held.into()), "{process}");
    }
    assert!(device["memory_used"].as_u64().unwrap() >= held[0] + held[1], "{device}");
    let worked = |guest: &Program, key: &str| {
        let process = process_of(guest);
        process[key].as_f64().unwrap_or_else(|| panic!("{key}: {process}"))
    };
    // One copies without end; the other has only recorded what to do.
    assert!(worked(&guests[0], "gpu_seconds") > worked(&guests[1], "gpu_seconds"), "{report:#}");
    assert_eq!((worked(&guests[1], "gpu_seconds"), worked(&guests[1], "utilization")), (0.0, 0.0));
    let host = bed.status().unwrap();
    let copying = vgpu_testbed::bed::session_of(&host, guests[0].pid()).unwrap();
    assert!(copying["busy_us"].as_f64().unwrap() / 1e6 >= worked(&guests[0], "gpu_seconds"), "{copying}");

    let output = launcher(bed.sysfs()).args(["status", "--color", "never"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with(&facts.name) && text.contains("vgpu-standin state copy"), "{text}");
    let pid = guests[1].pid().to_string();
    assert!(text.lines().any(|line| line.contains(&pid) && line.contains("4 MiB")), "{text}");
}

#[test]
fn watching_goes_on_until_it_is_ended() {
    let bed = Bed::start("null", &[random_facts(&["7.5"])]).unwrap();
    let mut command = launcher(bed.sysfs());
    let mut watch =
        command.args(["status", "--watch", "0.05", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut processes = || -> usize {
        let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        report["devices"][0]["processes"].as_array().unwrap().len()
    };
    assert_eq!((processes(), processes()), (0, 0));
    let mut guest = Program::start(bed.sysfs(), "capturing").unwrap();
    guest.ready().unwrap();
    while processes() == 0 {}
    drop(guest);
    // Not SIGINT: a test run that a shell started in the background ignores it, and so would the child.
    kill_process(Pid::from_child(&watch), Signal::TERM).unwrap();
    assert_eq!(watch.wait().unwrap().signal(), Some(15));
}

/// The share of a VM that waits all the time, each reading a second after the last one.
#[derive(Debug, Default)]
struct Waiting(AtomicU64);

impl ShareSource for Waiting {
    fn share(&self) -> VmShare {
        let waited_us = self.0.fetch_add(1_000_000, Ordering::Relaxed);
        VmShare { enforced: true, ppm: 250_000, charged_us: 1_500_000, waited_us }
    }
}

/// A device of a host that shares its GPU among VMs; that of an older host tells nothing of it.
#[test]
fn a_guest_sees_its_share() {
    let serve = |share: Option<Arc<dyn ShareSource>>| {
        let folder = tempfile::tempdir().unwrap();
        let soft = Soft::new(&GpuConfig::new("shared").unwrap()).unwrap();
        let config = DeviceConfig::new("0000:00:05.0".parse().unwrap(), Arc::new(soft));
        let bus = SimBus::serve(folder.path(), vec![DeviceConfig { share, ..config }]).unwrap();
        (folder, bus)
    };
    let (folder, _bus) = serve(Some(Arc::new(Waiting::default())));
    // A busy machine may show nothing new between two readings.
    let tries = || 0..20;
    let mut shares = tries().map(|_| json(folder.path())["devices"][0]["share"].clone());
    let share = shares.find(|share| share["waiting"] == 1.0).expect("it waits");
    let shown = ["enforced", "part", "charged_seconds"].map(|key| share[key].clone());
    assert_eq!(shown, [Value::from(true), 0.25.into(), 1.5.into()], "{share}");
    assert!(share["waited_seconds"].as_f64().unwrap() > 0.0, "{share}");
    let text = || {
        let output = launcher(folder.path()).args(["status", "--color", "never"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = "\n  share 25 % of the GPU's time   waits 100 %, ";
    assert!(tries().any(|_| text().contains(expected)), "{}", text());

    let (older, _bus) = serve(None);
    assert!(json(older.path())["devices"][0]["share"].is_null());
    let output = launcher(older.path()).args(["status", "--color", "never"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("share "), "it has none");
}
