//! The launcher queries the device, and refuses one that does not answer, with the cause id that `check`
//! uses. Otherwise the program would wait for half a minute and continue on the CPU.

use std::process::{Command, Output};

use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::programs;

use crate::support::launcher;

fn launch(bed: &Bed, arguments: &[&str]) -> Output {
    launcher(bed.sysfs()).args(arguments).output().unwrap()
}

#[test]
fn the_launcher_refuses_a_mute_device_by_checks_name() {
    let facts = random_facts(&["7.5"]);
    let bed = Bed::start("soft", std::slice::from_ref(&facts)).unwrap();
    let program = "/bin/true";
    assert!(launch(&bed, &[program]).status.success(), "a device that answers is taken");

    bed.stop().unwrap();
    let refused = launch(&bed, &[program]);
    let checked = launch(&bed, &["check", "--no-ollama", "--json"]);
    let allowed = launch(&bed, &["--allow-cpu", program]);
    bed.resume().unwrap();

    let sentence = format!("the registers of {} do not answer", facts.address);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{said}");
    assert!(said.contains(&sentence) && said.contains("device-mute"), "{said}");
    let report = String::from_utf8_lossy(&checked.stdout);
    assert!(report.contains(&sentence) && report.contains("device-mute"), "check says the same: {report}");
    assert!(allowed.status.success());
    let warned = String::from_utf8_lossy(&allowed.stderr);
    assert!(warned.contains(&sentence), "not without a word: {warned}");

    assert!(launch(&bed, &[program]).status.success(), "a device that answers again is taken again");
    let status = bed.status().unwrap();
    assert!(vgpu_testbed::bed::sessions(&status).is_empty(), "the look leaves no session behind: {status}");
}

/// Moving the querying thread to another processor only saves time, and hardened units kill processes that do
/// so (`SystemCallFilter=~@resources`).
#[test]
fn the_launcher_asks_under_a_filter_of_system_calls() {
    let bed = Bed::start("soft", &[random_facts(&["7.5"])]).unwrap();
    // 203 is sched_setaffinity(2).
    let started = Command::new(programs::standin().unwrap())
        .args(["sandbox", "--kill", "203", "--"])
        .args([programs::launcher().unwrap().as_os_str(), "/bin/true".as_ref()])
        .env("VGPU_SYSFS", bed.sysfs())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
}
