//! `vgpu-testbed faults --random N`: changes systems at random. The right verdict is not known in advance:
//! the server is started in each system as its users do, and its behaviour is compared with the verdict of
//! `vgpu-run check`.

mod change;
mod made;
mod real;
mod record;
mod start;
mod surroundings;
mod truth;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::plan::ScenePlan;
use super::rights::may_change_the_system;
use super::scene::Scene;
use super::{FaultsArgs, headline, run_all};
use change::Family;
use made::{Made, pick};
use real::Release;
use record::{Outcome, RandomSystem, RecordedRun, read_record, write_record};
use truth::Truth;

/// Draws the number of changes, mostly one or two.
fn changes(rng: &mut StdRng) -> usize {
    match rng.random_range(0..10) {
        0..6 => 1,
        6..9 => 2,
        _ => 3,
    }
}

/// Draws the plan of a case. The families take turns as that of the first change, so that each occurs equally
/// often.
fn draw(seed: u64, case: u64, release: Option<&Release>) -> (ScenePlan, Vec<Family>, Made) {
    let mut rng = StdRng::seed_from_u64(seed ^ case.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut plan = ScenePlan::healthy();
    let made = Made::default();
    change::system(&mut plan, &mut rng);
    if let Some(release) = release {
        release.plan(&mut plan);
    }
    let backends = plan.backends.iter().map(|backend| backend.name()).collect::<Vec<_>>().join(" and ");
    made.record(format!("era {:?}, {backends}, device of {}", plan.era, plan.devices[0].cc));
    let mut families = vec![Family::ALL[(case % Family::ALL.len() as u64) as usize]];
    for _ in 1..changes(&mut rng) {
        let family = *pick(&mut rng, &Family::ALL);
        // Two changes of one family may exclude each other: a killed host accepts no further ones.
        if !families.contains(&family) {
            families.push(family);
        }
    }
    for family in &families {
        family.draw(&mut plan, &made, &mut rng, release.is_some());
    }
    (plan, families, made)
}

fn compare(verdict: &str, truth: &Truth) -> Outcome {
    match (verdict, truth.uses_gpu()) {
        ("works", true) | ("broken", false) => Outcome::Right,
        ("works", false) => Outcome::WorksAndDoesNot,
        ("broken", true) => Outcome::BrokenAndWorks,
        _ => Outcome::Undecided,
    }
}

/// Returns the check's findings for the report's reader.
fn words(report: &Value) -> Value {
    let checks = report["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let others: Vec<Value> = checks
        .iter()
        .filter(|check| check["status"] != "pass" && check["status"] != "skip")
        .map(|check| json!([check["id"], check["status"], check["found"], check["fix"]]))
        .collect();
    json!({ "headline": report["headline"], "first_failure": report["first_failure"], "others": others })
}

fn try_case(plan: &mut ScenePlan) -> Result<(Value, Truth)> {
    let scene = Scene::build(plan)?;
    let (report, _) = scene.check(plan)?;
    let truth = truth::observe(&scene, plan)?;
    Ok((report, truth))
}

fn run_case(seed: u64, number: u64, release: Option<&Release>) -> RandomSystem {
    let start = Instant::now();
    let (mut plan, families, made) = draw(seed, number, release);
    let tried = try_case(&mut plan);
    let seconds = start.elapsed().as_secs_f64();
    let made = made.words();
    match tried {
        Ok((report, truth)) => {
            let verdict = report["verdict"].as_str().unwrap_or_default().to_owned();
            let outcome = compare(&verdict, &truth);
            let (headline, words) = (headline(&report), words(&report));
            RandomSystem {
                number,
                families,
                made,
                truth: Some(truth),
                verdict,
                headline,
                words,
                report,
                seconds,
                outcome,
            }
        }
        Err(error) => RandomSystem {
            number,
            families,
            made,
            truth: None,
            verdict: String::new(),
            headline: format!("not made: {error:#}"),
            words: Value::Null,
            report: Value::Null,
            seconds,
            outcome: Outcome::NotMade,
        },
    }
}

/// Runs `count` randomly changed systems.
pub fn run_random(arguments: &FaultsArgs, count: u64) -> Result<ExitCode> {
    if !may_change_the_system() {
        bail!("changes at random take root: modes, other users, limits");
    }
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let release = arguments.ollama.as_deref().map(Release::find).transpose()?;
    let first = arguments.case.unwrap_or(0);
    let count = if arguments.case.is_some() { 1 } else { count };
    let record = arguments.record.as_deref();
    if let Some(folder) = record {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let record = match record {
        Some(folder) => Some((folder, RecordedRun::new(seed, arguments.ollama.as_deref())?)),
        None => None,
    };
    let record = record.as_ref();
    let mut before = Vec::new();
    let mut numbers = Vec::new();
    for number in first..first + count {
        match record.map(|(folder, run)| read_record(folder, run, number)).transpose()?.flatten() {
            Some(case) => before.push(case),
            None => numbers.push(number),
        }
    }
    let recorded = before.len();
    let failed = Mutex::new(None);
    let run = |number: &u64| run_case(seed, *number, release.as_ref());
    let told = |case: &RandomSystem| {
        if !arguments.json {
            print_case(case, arguments.verbose);
        }
        if let Some(error) = record.and_then(|(folder, run)| write_record(folder, run, case).err()) {
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    let mut cases = run_all(&numbers, arguments.jobs(), &run, &told);
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    cases.extend(before);
    cases.sort_by_key(|case| case.number);
    Ok(report(arguments, seed, cases, recorded))
}

fn print_case(case: &RandomSystem, verbose: bool) {
    let works = case.truth.as_ref().map_or("-", |truth| if truth.uses_gpu() { "works" } else { "does not" });
    println!(
        "{:?} {:>4} server {works:<8} check {:<10} {:<36} {:.1} s  {}",
        case.outcome, case.number, case.verdict, case.headline, case.seconds, case.made
    );
    if verbose || !matches!(case.outcome, Outcome::Right) {
        println!("      {:#}", json!({ "check": case.words, "server": case.truth }));
    }
}

/// Prints the results and returns whether the check was never wrong, as an exit code. `recorded` is the
/// number of cases that were tried before.
fn report(arguments: &FaultsArgs, seed: u64, cases: Vec<RandomSystem>, recorded: usize) -> ExitCode {
    let of = |outcome: Outcome| cases.iter().filter(|case| case.outcome == outcome).count();
    let mut families: BTreeMap<Family, usize> = BTreeMap::new();
    for family in cases.iter().flat_map(|case| &case.families) {
        *families.entry(*family).or_default() += 1;
    }
    let (right, undecided, not_made) = (of(Outcome::Right), of(Outcome::Undecided), of(Outcome::NotMade));
    let working = cases.iter().filter(|case| case.truth.as_ref().is_some_and(Truth::uses_gpu)).count();
    let faults = cases.len();
    let wrong = faults - right - undecided - not_made;
    if arguments.json {
        let (wrong, others): (Vec<RandomSystem>, Vec<RandomSystem>) = cases
            .into_iter()
            .partition(|case| matches!(case.outcome, Outcome::WorksAndDoesNot | Outcome::BrokenAndWorks));
        let is = |outcome: Outcome| move |case: &&RandomSystem| case.outcome == outcome;
        println!(
            "{:#}",
            json!({
                "seed": seed, "faults": faults, "recorded": recorded, "right": right, "working": working,
                "families": families,
                "wrong": wrong,
                "undecided": others.iter().filter(is(Outcome::Undecided)).collect::<Vec<_>>(),
                "not_made": others.iter().filter(is(Outcome::NotMade)).collect::<Vec<_>>(),
                "agreed": others.iter().filter(is(Outcome::Right)).collect::<Vec<_>>(),
            })
        );
    } else {
        println!(
            "seed {seed}: {right} of {faults} right, {wrong} wrong, {undecided} undecided, {not_made} not made; {working} servers use \
             the GPU; {recorded} were recorded before"
        );
    }
    if wrong + not_made == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again() {
        for case in 0..24 {
            let (one, other) = (draw(7, case, None), draw(7, case, None));
            assert_eq!((one.1, one.2.words()), (other.1, other.2.words()));
            assert_eq!(one.0.limits, other.0.limits);
        }
    }

    #[test]
    fn each_family_comes_first_equally_often() {
        let firsts = (0..1100).map(|case| draw(1, case, None).1[0]);
        let mut counts: BTreeMap<Family, usize> = BTreeMap::new();
        firsts.for_each(|family| *counts.entry(family).or_default() += 1);
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [100; 11]);
    }

    #[test]
    fn only_a_verdict_that_contradicts_the_server_is_wrong() {
        let truth = |devices, on_device| Truth {
            devices,
            said: Vec::new(),
            answer: None,
            on_device,
            layers: None,
            log: Vec::new(),
        };
        assert_eq!(compare("works", &truth(1, 8)), Outcome::Right);
        assert_eq!(compare("works", &truth(1, 0)), Outcome::WorksAndDoesNot, "found, and not used");
        assert_eq!(compare("broken", &truth(0, 0)), Outcome::Right);
        assert_eq!(compare("broken", &truth(2, 8)), Outcome::BrokenAndWorks);
        let idle = Truth { layers: Some(0), ..truth(1, 8) };
        assert_eq!(compare("broken", &idle), Outcome::Right, "no layer is there");
        assert_eq!(compare("incomplete", &truth(1, 8)), Outcome::Undecided);
    }
}
