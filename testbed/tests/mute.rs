//! The launcher refuses a device that answers nothing, with the cause id that `check` uses. Without that, the
//! program waits for half a minute and goes on with the CPU.

use std::process::{Command, Output};

use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::programs;

fn launch(bed: &Bed, arguments: &[&str]) -> Output {
    Command::new(programs::launcher().unwrap())
        .args(arguments)
        .env("VGPU_SYSFS", bed.sysfs())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .unwrap()
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
