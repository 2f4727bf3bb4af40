//! Reserved device addresses through the whole stack: as many contexts of GGML as a program can have, each of
//! which reserves 32 GiB, whatever the device's memory; and the error when no addresses are left.

use tempfile::TempDir;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::programs;

use crate::support::{errors, failed_checks, launcher};

/// Memory sizes of devices in MiB: from 256 MiB to the 140 GiB of the largest single GPU of its kind.
const MEMORY_MIB: [u64; 5] = [256, 1 << 10, 8 << 10, 80 << 10, 140 << 10];

fn bed(executor: &str, memory_mib: u64, options: &[&str]) -> Bed {
    Bed::start_with(executor, &[Facts { memory_mib, ..random_facts(&["7.5"]) }], options).unwrap()
}

/// Runs the program that makes reservations, which must succeed, and returns its log.
fn run_reserver(bed: &Bed, words: &[&str]) -> String {
    let folder = TempDir::with_prefix("vgpu-c-").unwrap();
    let program = programs::c_program(folder.path(), "reserve.c", &[], &["libcuda.so.1"]).unwrap();
    let output = launcher(bed.sysfs()).arg(program).args(words).env("VGPU_LOG", "warn").output().unwrap();
    let (failed, log) = (failed_checks(&output), errors(&output));
    assert!(failed.is_empty() && output.status.success(), "{}\n{failed:#?}\n{log}", output.status);
    log
}

/// Creates two dozen contexts three times on each memory size, and checks that nothing is logged.
fn two_dozen_contexts(executor: &str) {
    for memory_mib in MEMORY_MIB {
        let bed = bed(executor, memory_mib, &[]);
        let log = run_reserver(&bed, &[]);
        assert!(log.is_empty(), "{executor}, {memory_mib} MiB: {log}");
        bed.until_nothing_is_left().unwrap();
    }
}

#[test]
fn two_dozen_contexts_on_the_soft_executor() {
    two_dozen_contexts("soft");
}

#[test]
fn two_dozen_contexts_on_the_executor_for_gpus() {
    two_dozen_contexts("cuda-loop");
}

/// The host's explanation of a refusal appears in the program's log.
#[test]
fn a_refusal_says_what_was_asked_for_and_what_is_left() {
    for executor in ["soft", "cuda-loop"] {
        let log = run_reserver(&bed(executor, 1 << 10, &[]), &["until-full"]);
        let told: Vec<&str> = log.lines().filter(|line| line.contains("MemReserve is refused")).collect();
        let [line] = told[..] else { panic!("{executor}: {log}") };
        let words =
            ["reserve 32768 MiB of device addresses: ", " MiB are left, ", " MiB of them in one piece"];
        let rest = words.iter().try_fold(line, |rest, words| rest.split_once(words).map(|(_, rest)| rest));
        assert_eq!(rest, Some(""), "{executor}: {line}");
    }
}

/// Version 1 reports that it has no virtual memory management, and refuses reservations.
#[test]
fn version_1_has_none() {
    run_reserver(&bed("soft", 1 << 10, &["--protocol", "v1"]), &["none"]);
}
