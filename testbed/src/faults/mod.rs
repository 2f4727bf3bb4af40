//! `vgpu-testbed faults`: creates each fault of the catalogue (testbed/faults) in a real system, runs
//! `vgpu-run check` in it, and compares the headline with the expected one.

mod catalogue;
mod makers;
mod patch;
mod plan;
mod random;
mod rights;
mod scene;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};

use catalogue::{Case, Expected};
use plan::ScenePlan;
use rights::may_change_the_system;
use scene::Scene;

/// Options of `faults`.
#[derive(clap::Args)]
pub struct FaultsArgs {
    /// Print one JSON object: `faults`, `right`, `wrong[]`, `again[]` (wrong beside others, right alone),
    /// `skipped[]`.
    #[arg(long)]
    json: bool,
    /// Run only cases whose name contains this text. Can be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run only cases whose complete name is given with `--only`.
    #[arg(long)]
    exact: bool,
    /// List the cases without running them. With `--json`: an array of `name`, `expected` and `needs_root`.
    #[arg(long)]
    list: bool,
    /// Number of concurrent cases; by default one per CPU.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print the check's report on each case.
    #[arg(long)]
    verbose: bool,
    /// Change this many systems at random instead, and compare the check's verdict with what the server does
    /// in each.
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "exact", "list"])]
    random: Option<u64>,
    /// Seed of the random changes; drawn if not given.
    #[arg(long, value_name = "S", requires = "random")]
    seed: Option<u64>,
    /// Also write each system, with the check's whole report, to the file NUMBER.json of this directory, as
    /// soon as it was tried. Systems that have such a file already are not tried again; their outcomes count.
    /// One of another seed, commit or Ollama is refused.
    #[arg(long, value_name = "DIRECTORY", requires = "seed")]
    record: Option<PathBuf>,
    /// Run only the system with this number, as the report names it.
    #[arg(long, value_name = "NUMBER", requires = "seed")]
    case: Option<u64>,
    /// Use a real Ollama in place of the stand-ins: the path of its program, with ../lib/ollama beside it.
    #[arg(long, value_name = "PATH", requires = "random")]
    ollama: Option<PathBuf>,
}

impl FaultsArgs {
    /// Returns the number of concurrent scenes.
    fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
    }
}

/// A case whose result is wrong.
#[derive(Debug, Serialize)]
struct Mismatch {
    fault: String,
    expected: String,
    found: String,
    evidence: Value,
}

/// A completed case with its result.
struct Ran {
    name: String,
    found: String,
    wrong: Option<Mismatch>,
    took: Duration,
    report: Value,
}

/// Returns the headline of a report: `LINK/CAUSE`, or the verdict.
fn headline(report: &Value) -> String {
    match (&report["first_failure"]["link"], &report["first_failure"]["cause"]) {
        (Value::String(link), Value::String(cause)) => format!("{link}/{cause}"),
        _ => report["verdict"].as_str().unwrap_or("no verdict").to_owned(),
    }
}

fn wanted(expected: &Expected) -> String {
    match expected {
        Expected::Works { .. } => "works".to_owned(),
        Expected::Broken { link, cause, .. } => format!("{link}/{cause}"),
    }
}

/// Returns the report's entry for a link.
fn of_link<'a>(report: &'a Value, link: &str) -> &'a Value {
    let checks = report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    checks.iter().find(|check| check["id"] == link).unwrap_or(&Value::Null)
}

/// Returns a description of the first mismatch between a case's report and its expectation.
fn judge(case: &Case, tried: &Tried) -> Option<String> {
    let Tried { report, exit, serves } = tried;
    let (found, wanted) = (headline(report), wanted(&case.expected));
    if found != wanted {
        return Some(found);
    }
    match &case.expected {
        Expected::Works { .. } if *exit != Some(0) => Some(format!("works, and exit code {exit:?}")),
        Expected::Works { warns, evidence } => {
            let found = warnings(report, *serves);
            let unexpected = (found != *warns).then(|| format!("works, and warns of {found:?}"));
            unexpected.or_else(|| missing("works", report, evidence))
        }
        Expected::Broken { .. } if *exit != Some(1) => Some(format!("{found}, and exit code {exit:?}")),
        Expected::Broken { link, evidence, alone, .. } => missing(&found, of_link(report, link), evidence)
            .or_else(|| {
                others(report, link).filter(|_| *alone).map(|others| format!("{found}, and {others}"))
            }),
    }
}

/// Returns the first of the texts that the report lacks.
fn missing(found: &str, reported: &Value, evidence: &[String]) -> Option<String> {
    let text = reported.to_string();
    let missing = evidence.iter().find(|piece| !text.contains(piece.as_str()))?;
    Some(format!("{found}, without its evidence {missing:?}"))
}

/// Returns the broken links other than `link`. The link `truth` is left out, since it repeats what the server
/// reports.
fn others(report: &Value, link: &str) -> Option<String> {
    let checks = report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let broken = checks
        .iter()
        .filter(|check| check["status"] == "fail" && check["id"] != link && check["id"] != "truth");
    let names: Vec<&str> = broken.filter_map(|check| check["id"].as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the warnings that a healthy system must not have. Those about time are left out, because the
/// machine may be busy, and those of the link `service` if the scene has no service: without one the check
/// examines whichever Ollama runs on the machine.
fn warnings(report: &Value, serves: bool) -> Vec<String> {
    const EXCUSED: [&str; 3] = ["device/device-slow", "host/echo-slow", "window/window-slow"];
    let excused = |issue: &str| EXCUSED.contains(&issue) || !serves && issue.starts_with("service/");
    let issues = report["issues"].as_array().map(Vec::as_slice).unwrap_or_default();
    issues.iter().filter_map(Value::as_str).filter(|issue| !excused(issue)).map(str::to_owned).collect()
}

/// Outcome of running a case.
struct Tried {
    /// JSON report that the check printed.
    report: Value,
    exit: Option<i32>,
    /// Whether the scene has a service of its own.
    serves: bool,
}

/// Builds the scene of a case and runs the check in it.
fn try_case(case: &Case) -> Result<Tried> {
    let mut plan = ScenePlan::healthy();
    for name in &case.makes {
        let maker = makers::maker(name).with_context(|| format!("nothing makes {name}"))?;
        maker(&mut plan);
    }
    let scene = Scene::build(&mut plan)?;
    let (report, output) = scene.check(&plan)?;
    Ok(Tried { report, exit: output.status.code(), serves: plan.service.is_some() })
}

fn run_case(case: &Case) -> Ran {
    let start = Instant::now();
    let (report, found) = match try_case(case) {
        Ok(tried) => {
            let found = judge(case, &tried);
            (tried.report, found)
        }
        Err(error) => (Value::Null, Some(format!("not made: {error:#}"))),
    };
    let wrong = found.map(|found| {
        let link = report["first_failure"]["link"].as_str().unwrap_or_default();
        let skipped = |check: &&Value| check["status"] != "pass";
        let checks = report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
        Mismatch {
            fault: case.name.clone(),
            expected: wanted(&case.expected),
            found,
            evidence: json!({
                "made": case.made,
                "headline": report["headline"],
                "link": of_link(&report, link),
                "not_passed": checks.iter().filter(skipped).map(|check| json!([check["id"], check["status"], check["found"]])).collect::<Vec<_>>(),
            }),
        }
    });
    Ran { name: case.name.clone(), found: headline(&report), wrong, took: start.elapsed(), report }
}

/// Runs all cases, `jobs` at a time, and calls `told` with each result.
fn run_all<T: Sync, R: Send>(
    cases: &[T],
    jobs: usize,
    run: &(dyn Fn(&T) -> R + Sync),
    told: &(dyn Fn(&R) + Sync),
) -> Vec<R> {
    let next = Mutex::new(cases.iter());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let case = next.lock().ok().and_then(|mut next| next.next());
                    let Some(case) = case else { return };
                    let ran = run(case);
                    told(&ran);
                    if let Ok(mut done) = done.lock() {
                        done.push(ran);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}

/// Repeats each failed case alone, because beside other scenes a host can truly be slow, which the check
/// reports. Returns the names of those that succeed now.
fn make_again_alone(cases: &[Case], ran: &mut [Ran], told: &(dyn Fn(&Ran) + Sync)) -> Vec<String> {
    let mut right = Vec::new();
    for ran in ran.iter_mut().filter(|ran| ran.wrong.is_some()) {
        let Some(case) = cases.iter().find(|case| case.name == ran.name) else { continue };
        *ran = run_case(case);
        told(ran);
        if ran.wrong.is_none() {
            right.push(ran.name.clone());
        }
    }
    right
}

/// Runs the selected cases and prints the report.
pub fn run_faults(arguments: &FaultsArgs) -> Result<ExitCode> {
    if let Some(count) = arguments.random {
        return random::run_random(arguments, count);
    }
    let mut cases = catalogue::cases()?;
    if !arguments.only.is_empty() {
        let wanted = |case: &Case, text: &String| {
            if arguments.exact { case.name == *text } else { case.name.contains(text) }
        };
        cases.retain(|case| arguments.only.iter().any(|text| wanted(case, text)));
    }
    if cases.is_empty() {
        bail!("no fault has such a name");
    }
    if arguments.list && arguments.json {
        let listed = cases.iter().map(|case| {
            json!({ "name": case.name, "expected": wanted(&case.expected), "needs_root": case.needs_root })
        });
        println!("{:#}", listed.collect::<Value>());
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.list {
        for case in &cases {
            println!("{:<40} {:<32} {}", case.name, wanted(&case.expected), case.made);
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Cases that wait for a time limit run first, so that none runs last and alone.
    cases.sort_by_key(|case| !wanted(&case.expected).ends_with("/timed-out"));
    let root = may_change_the_system();
    let (cases, skipped): (Vec<Case>, Vec<Case>) =
        cases.into_iter().partition(|case| root || !case.needs_root);
    let skipped: Vec<String> = skipped.into_iter().map(|case| case.name).collect();
    let jobs = arguments.jobs();
    let told = |ran: &Ran| {
        if arguments.json {
            return;
        }
        let mark = if ran.wrong.is_none() { "right" } else { "WRONG" };
        println!("{mark} {:<40} {:<32} {:.1} s", ran.name, ran.found, ran.took.as_secs_f64());
        if let Some(wrong) = &ran.wrong {
            println!("      expected {}, found {}\n      {:#}", wrong.expected, wrong.found, wrong.evidence);
        }
        if arguments.verbose {
            println!("{:#}", ran.report);
        }
    };
    let mut ran = run_all(&cases, jobs, &run_case, &told);
    let again = if jobs > 1 { make_again_alone(&cases, &mut ran, &told) } else { Vec::new() };
    let count = ran.len();
    let wrong: Vec<Mismatch> = ran.into_iter().filter_map(|ran| ran.wrong).collect();
    let right = count - wrong.len();
    if arguments.json {
        println!(
            "{:#}",
            json!({ "faults": count, "right": right, "wrong": wrong, "again": again, "skipped": skipped })
        );
    } else {
        println!("{right} of {count} right");
        if !again.is_empty() {
            println!("wrong beside others, right alone: {}", again.join(", "));
        }
        if !skipped.is_empty() {
            println!("not made, for want of rights: {}", skipped.join(", "));
        }
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
