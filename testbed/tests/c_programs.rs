//! C programs, linked against the shims as a user's are against NVIDIA's libraries, drive every
//! implemented call through the real loader: return codes, bad arguments, calls at the wrong time.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::programs;

use crate::support::{errors, failed_checks, launcher};

fn compile(folder: &Path, source: &str, flags: &[&str], libraries: &[&str]) -> PathBuf {
    programs::c_program(folder, source, flags, libraries).unwrap()
}

/// Runs the program under the launcher and evaluates its checks, which are lines `ok` and `not ok`.
fn run_checks(bed: &Bed, program: &Path, arguments: &[&str]) {
    let output = launcher(bed.sysfs()).arg(program).args(arguments).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let failed = failed_checks(&output);
    let held = out.lines().filter(|line| line.starts_with("ok")).count();
    let errors = errors(&output);
    assert!(failed.is_empty() && output.status.success(), "{}\n{failed:#?}\n{errors}", output.status);
    assert!(held > 20, "the program checks something: {out}");
    assert!(errors.is_empty(), "{errors}");
    println!("{}: {held} checks held", program.display());
}

/// Runs the program on three executors: the soft one, which executes everything; the one for real GPUs, with
/// the soft one behind it; and the null one, which accepts everything and does nothing.
fn drive(source: &str, flags: &[&str], libraries: &[&str], soft: &[&str], null: &[&str]) {
    let folder = TempDir::with_prefix("vgpu-c-").unwrap();
    let program = compile(folder.path(), source, flags, libraries);
    let facts = [random_facts(&["7.5"])];
    run_checks(&Bed::start("soft", &facts).unwrap(), &program, soft);
    run_checks(&Bed::start("cuda-loop", &facts).unwrap(), &program, soft);
    run_checks(&Bed::start("null", &facts).unwrap(), &program, null);
}

#[test]
fn the_driver_api() {
    drive("driver.c", &[], &["libcuda.so.1"], &["data", "graphs", "kernels"], &["graphs", "kernels"]);
}

#[test]
fn the_runtime_api_of_cuda_12() {
    let libraries = ["libcudart.so.12", "libcuda.so.1"];
    drive("runtime.c", &["-DCUDA=12"], &libraries, &["data", "graphs", "kernels"], &["graphs", "kernels"]);
}

#[test]
fn the_runtime_api_of_cuda_13() {
    let libraries = ["libcudart.so.13", "libcuda.so.1"];
    drive("runtime.c", &["-DCUDA=13"], &libraries, &["data", "graphs", "kernels"], &["graphs", "kernels"]);
}

/// Every copy and fill of the runtime API is tried between two and three devices, in every direction.
#[test]
fn copies_between_devices() {
    for (define, runtime) in [("-DCUDA=12", "libcudart.so.12"), ("-DCUDA=13", "libcudart.so.13")] {
        let folder = TempDir::with_prefix("vgpu-c-").unwrap();
        let program = compile(folder.path(), "devices.c", &[define], &[runtime, "libcuda.so.1"]);
        for count in [2, 3] {
            let mut facts: Vec<Facts> = Vec::new();
            while facts.len() < count {
                let next = random_facts(&["7.5"]);
                if facts.iter().all(|other| other.address != next.address) {
                    facts.push(next);
                }
            }
            let bed = Bed::start_with("soft", &facts, &["--adversarial", "13"]).unwrap();
            run_checks(&bed, &program, &[&count.to_string()]);
        }
    }
}

/// Devices of two device processes choose different addresses by themselves. If both were given equal ones, a
/// program uses one device, and the other is refused with a log line that names both.
#[test]
fn copies_between_devices_of_two_processes() {
    let folder = TempDir::with_prefix("vgpu-c-").unwrap();
    let program = compile(folder.path(), "devices.c", &["-DCUDA=13"], &["libcudart.so.13", "libcuda.so.1"]);
    let facts = ["0000:00:05.0", "0000:00:06.0"].map(|address| {
        let random = random_facts(&["7.5"]);
        [Facts { address: address.to_owned(), ..random }]
    });
    let beds = |options: &[&str]| {
        let [one, other] = facts.each_ref().map(|facts| Bed::start_with("soft", facts, options).unwrap());
        one.show(&other).unwrap();
        (one, other)
    };
    let (bed, _other) = beds(&["--adversarial", "13"]);
    run_checks(&bed, &program, &["2"]);

    let (bed, _other) = beds(&["--address-range", "43"]);
    let output = launcher(bed.sysfs()).arg(&program).arg("2").env("VGPU_LOG", "warn").output().unwrap();
    let errors = errors(&output);
    assert!(!output.status.success(), "{errors}");
    let told: Vec<&str> = errors.lines().filter(|line| line.contains("are also those of")).collect();
    assert!(
        matches!(told[..], [line] if line.contains("0000:00:05.0") && line.contains("0000:00:06.0")),
        "{errors}"
    );
}

#[test]
fn cublas_of_cuda_12() {
    let libraries = ["libcublas.so.12", "libcublasLt.so.12", "libcuda.so.1"];
    drive("blas.c", &["-DCUDA=12"], &libraries, &["numbers"], &[]);
}

#[test]
fn cublas_of_cuda_13() {
    let libraries = ["libcublas.so.13", "libcublasLt.so.13", "libcuda.so.1"];
    drive("blas.c", &["-DCUDA=13"], &libraries, &["numbers"], &[]);
}

#[test]
fn nvml() {
    let folder = TempDir::with_prefix("vgpu-c-").unwrap();
    let program = compile(folder.path(), "nvml-query.c", &[], &[]);
    let facts = random_facts(&["8.9"]);
    let bed = Bed::start("soft", std::slice::from_ref(&facts)).unwrap();
    let uuid = &facts.uuid;
    let parts = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]];
    let arguments = [
        "devices=1".to_owned(),
        format!("name={}", facts.name),
        format!("uuid=GPU-{}", parts.join("-")),
        format!("pci={}", facts.address),
        "driver=590.44.01".to_owned(),
        format!("total={}", facts.memory_mib << 20),
    ];
    run_checks(&bed, &program, &arguments.each_ref().map(String::as_str));
}

/// State queries send no messages: the program counts messages and fails if one was sent.
#[test]
fn launches_and_state_queries() {
    let folder = TempDir::with_prefix("vgpu-c-").unwrap();
    let program = compile(folder.path(), "launches.c", &[], &["libcudart.so.12", "libcuda.so.1"]);
    let bed = Bed::start("null", &[random_facts(&["7.5"])]).unwrap();
    let output = launcher(bed.sysfs()).arg(program).args(["20000", "1"]).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}{}", errors(&output));
    let figures: serde_json::Value = serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap();
    assert!(figures.is_object(), "{figures}");
}

/// All processes of version 1 share the host's context. After a kernel's fault every wait and later call of
/// its process returns 700, and other processes, running or new, lose nothing. Tested with windows and with
/// BAR1.
#[test]
fn a_fault_over_version_1_is_700_and_its_processs_own() {
    for options in [&["--protocol", "v1"][..], &["--protocol", "v1", "--ram", "1M"]] {
        a_fault_is_its_processs_own("soft", options);
    }
}

/// In the executor for real GPUs the fault destroys the context of its worker, and no other worker's.
#[test]
fn a_fault_in_the_cuda_executor_is_700_and_its_processs_own() {
    a_fault_is_its_processs_own("cuda-loop", &[]);
}

fn a_fault_is_its_processs_own(executor: &str, options: &[&str]) {
    let folder = TempDir::with_prefix("vgpu-c-").unwrap();
    let program = compile(folder.path(), "fault.c", &[], &["libcuda.so.1"]);
    let bed = Bed::start_with(executor, &[random_facts(&["7.5"])], options).unwrap();
    let start = |word: &str| {
        launcher(bed.sysfs())
            .arg(&program)
            .arg(word)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut beside = start("good");
    let mut line = String::new();
    BufReader::new(beside.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    for word in ["bad", "good", "bad"] {
        let output = start(word).wait_with_output().unwrap();
        let said = errors(&output);
        assert!(output.status.success(), "{executor}, {options:?}, {word}: {}: {said}", output.status);
    }
    let output = beside.wait_with_output().unwrap();
    assert!(output.status.success(), "the one beside, {executor}, {options:?}: {output:?}");
}
