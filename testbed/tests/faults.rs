//! Creates every fault of the catalogue, which `vgpu-run check` must name: one test per fault.
//!
//! Faults are independent and created concurrently. A busy machine can make a host truly slow, which the
//! check then reports; so a fault with a wrong result is repeated alone, and only that result counts. As root
//! all faults must be created; otherwise those that need root are shown as ignored.

use std::process::{Command, ExitCode};
use std::sync::{Once, PoisonError, RwLock};
use std::thread;

use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use serde_json::Value;
use vgpu_testbed::{announce, programs};

/// A fault in the output of `vgpu-testbed faults --list --json`.
#[derive(Deserialize)]
struct Fault {
    name: String,
    expected: String,
    needs_root: bool,
}

/// Lock shared by faults that are created concurrently, and exclusive for a fault that is repeated alone.
static BESIDE_OTHERS: RwLock<()> = RwLock::new(());

/// Name of a scene that needs all programs.
const HEALTHY: &str = "era-a-cuda13";

/// Number of systems to change at random, which take about a minute.
const SYSTEMS: &str = "90";
const SEED: &str = "20";

/// Returns the number of concurrent scenes, several per processor since a check mostly waits.
fn at_once() -> usize {
    4 * thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `vgpu-testbed faults --json`.
fn faults(arguments: &[&str]) -> Result<Value, Failed> {
    let mut command = Command::new(programs::testbed()?);
    report_of(command.env_remove("CARGO").args(["faults", "--json"]).args(arguments))
}

/// Has cargo bring all programs up to date once, so that it need not check again for each fault.
fn build() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let Ok(testbed) = programs::testbed() else { return };
        // What comes of it is for the fault's own test to say.
        let _ = report_of(Command::new(testbed).args(["faults", "--json", "--exact", "--only", HEALTHY]));
    });
}

/// Runs a command of the fault bench and returns the JSON report.
fn report_of(command: &mut Command) -> Result<Value, Failed> {
    let output = command.output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {}", said()).into())
}

/// Creates a fault and returns a description of the mismatch, if the check's report is wrong.
fn make_fault(name: &str) -> Result<Option<String>, Failed> {
    let report = faults(&["--exact", "--only", name, "--jobs", "1"])?;
    if report["skipped"] != Value::Array(Vec::new()) {
        return Err("it cannot be made here: it takes namespaces, mounts and other users".into());
    }
    assert_eq!(report["faults"], 1, "{report:#}");
    Ok((report["right"] != 1).then(|| format!("{:#}", report["wrong"])))
}

fn is_named(name: &str) -> Result<(), Failed> {
    build();
    let wrong = {
        let _beside = BESIDE_OTHERS.read().unwrap_or_else(PoisonError::into_inner);
        make_fault(name)?
    };
    let Some(wrong) = wrong else { return Ok(()) };
    let _alone = BESIDE_OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    match make_fault(name)? {
        None => {
            println!("{name} is right only when alone: {wrong}");
            Ok(())
        }
        Some(wrong) => Err(wrong.into()),
    }
}

/// In reproducible random systems, the check never reports "works" if the server does not use the GPU, nor
/// "broken" if it does.
fn changed_at_random() -> Result<(), Failed> {
    build();
    let _alone = BESIDE_OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    announce("faults: 90 systems that are changed at random");
    let run = |jobs: usize| faults(&["--random", SYSTEMS, "--seed", SEED, "--jobs", &jobs.to_string()]);
    let is_fine = |report: &Value| {
        ["wrong", "not_made"].iter().all(|list| report[*list].as_array().is_some_and(Vec::is_empty))
    };
    let mut report = run(at_once())?;
    if !is_fine(&report) {
        // As a single fault is repeated: neighbours can make a host truly slow.
        report = run(1)?;
    }
    let (wrong, not_made) = (&report["wrong"], &report["not_made"]);
    let fine = is_fine(&report);
    println!("{} of {} right, {} work", report["right"], report["faults"], report["working"]);
    if fine { Ok(()) } else { Err(format!("{wrong:#}\n{not_made:#}").into()) }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(at_once());
    let listed =
        faults(&["--list"]).unwrap_or_else(|error| panic!("{}", error.message().unwrap_or("failed")));
    let mut listed: Vec<Fault> = serde_json::from_value(listed).unwrap();
    // Those that wait for a time limit first, so that none is waited for alone.
    listed.sort_by_key(|fault| !fault.expected.ends_with("/timed-out"));
    let count = listed.len();
    let root = rustix::process::geteuid().is_root();
    let trials = listed.into_iter().map(|Fault { name, needs_root, .. }| {
        Trial::test(name.clone(), move || is_named(&name)).with_ignored_flag(needs_root && !root)
    });
    let mut trials: Vec<Trial> = trials.collect();
    trials.push(Trial::test("the_catalogue_is_as_large_as_it_was", move || {
        if count >= 65 { Ok(()) } else { Err(format!("{count} faults").into()) }
    }));
    trials.push(Trial::test("changed_at_random", changed_at_random).with_ignored_flag(!root));
    libtest_mimic::run(&arguments, trials).exit_code()
}
