//! `vgpu-testbed siege`: hostile programs of every class beside good ones that compare every byte, on three
//! buses. What a guest can do to a host is found here, and what has to hold all the same.

mod booted;
mod mediated;
mod plan;
mod report;
mod simulated;
mod site;
mod verdict;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use report::Bus;
use site::Site;

/// Number of concurrent hostile programs in a long run.
const HOSTILE: usize = 4;
/// Size in KiB of a good program's upload.
const KIB: usize = 1024;
/// Size in KiB of a good program's upload on an emulated processor, which is slow to compute and compare the
/// bytes.
const GUEST_KIB: usize = 256;
/// Number of rounds in a long run, above those by which the device's memory is judged.
const ROUNDS: u32 = verdict::LAST as u32 + 2;
/// Seconds for which programs run concurrently in a round of a short run.
const SHORT: f64 = 1.5;
/// Fraction of a long run's round in which programs run concurrently. The rest is for starting and ending
/// them.
const BESIDE: f64 = 0.7;

/// Buses that can be besieged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BusKind {
    /// The simulated bus with a device of version 2.
    Simulated,
    /// Simulated buses of several machines, whose version 1 devices share a mediator.
    #[value(name = "version-1")]
    Version1,
    /// A booted virtual machine with a device of version 2.
    Guest,
}

/// Options of `siege`.
#[derive(clap::Args)]
pub struct SiegeArgs {
    /// Number of minutes, shared among the buses; fractions are allowed. Each bus has at least 10 rounds.
    #[arg(long, default_value_t = 10.0, conflicts_with = "rounds")]
    minutes: f64,
    /// Run this many short rounds on each bus instead; only bytes, charges and completion are judged.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Bus to besiege. Can be given several times; by default all.
    #[arg(long, value_enum)]
    bus: Vec<BusKind>,
    /// Number of concurrent hostile programs. By default 4 in a long run, and in a short one as many as give
    /// every class its turn.
    #[arg(long)]
    hostile: Option<usize>,
    /// Number of concurrent good programs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    good: u32,
    /// Use only these classes of hostile programs. Can be given several times.
    #[arg(long)]
    class: Vec<String>,
    /// Seed of the choice of hostile programs and of the bytes that good programs send. Drawn at random if
    /// not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the report as JSON; docs/development.md describes its keys.
    #[arg(long)]
    json: bool,
}

/// Besieges the selected buses and prints the report.
pub fn run_siege(arguments: &SiegeArgs) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let mut rng = StdRng::seed_from_u64(seed);
    let kinds = if arguments.bus.is_empty() { BusKind::value_variants() } else { &arguments.bus };
    let mut buses = Vec::new();
    for &kind in kinds {
        let mut bus = besiege(kind, arguments, kinds.len(), &mut rng)?;
        verdict::correct(&mut bus);
        if arguments.rounds.is_none() {
            verdict::lasting(&mut bus);
        }
        if !arguments.json {
            print(&bus);
        }
        buses.push(bus);
    }
    let held = buses.iter().all(|bus| bus.failures.is_empty());
    if arguments.json {
        println!("{:#}", json!({ "seed": seed, "held": held, "buses": buses }));
    } else {
        println!("seed {seed}: {}", if held { "it holds" } else { "it does not hold" });
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn open(kind: BusKind) -> Result<Box<dyn Site>> {
    Ok(match kind {
        BusKind::Simulated => Box::new(simulated::Simulated::start()?),
        BusKind::Version1 => Box::new(mediated::Mediated::start()?),
        BusKind::Guest => Box::new(booted::Booted::start()?),
    })
}

/// Runs all rounds on a bus and returns its results.
#[allow(clippy::cast_precision_loss, reason = "units of a few seconds")]
fn besiege(kind: BusKind, arguments: &SiegeArgs, buses: usize, rng: &mut StdRng) -> Result<Bus> {
    let mut site = open(kind).with_context(|| format!("set {kind:?} up"))?;
    let classes: Vec<&'static str> = site
        .classes()
        .into_iter()
        .filter(|class| arguments.class.is_empty() || arguments.class.iter().any(|only| only == class))
        .collect();
    let mut bus = Bus { name: site.name(), ..Bus::default() };
    let long = Duration::from_secs_f64(arguments.minutes * 60.0 / buses as f64);
    let (rounds, seconds, end) = match arguments.rounds {
        Some(rounds) => (rounds, SHORT, None),
        None => (
            verdict::LAST as u32,
            long.as_secs_f64() * BESIDE / f64::from(ROUNDS),
            Some(Instant::now() + long),
        ),
    };
    let hostile = arguments.hostile.unwrap_or_else(|| match arguments.rounds {
        Some(rounds) => classes.len().div_ceil(rounds as usize),
        None => HOSTILE,
    });
    let kib = if kind == BusKind::Guest { GUEST_KIB } else { KIB };
    let good = arguments.good as usize;
    let alone = plan::Round { good: 1, kib, seconds, ..plan::Round::default() };
    let mut undisturbed = None;
    if end.is_some() {
        let done = site.round(&plan::Round { seed: rng.random(), ..alone.clone() })?;
        let rates = done.rates().next().context("a round without a good program")?;
        bus.good_alone = Some(rates.wall);
        bus.good_bound = Some(verdict::bound(hostile + good - 1));
        undisturbed = Some(rates);
    }
    let mut turns = plan::Turns::new(classes);
    while bus.rounds < u64::from(rounds) || end.is_some_and(|end| Instant::now() < end) {
        let hostile = turns.next(hostile, rng);
        let done = site.round(&plan::Round { hostile, good, seed: rng.random(), ..alone.clone() })?;
        if let Some(alone) = undisturbed {
            bus.good_share.extend(done.rates().map(|rates| rates.wall / alone.wall));
            if site.has_own_kernel() {
                bus.device_share.extend(done.rates().map(|rates| rates.unqueued / alone.unqueued));
            }
        }
        bus.add(&done);
        let (state, settled) = site::until(&mut *site, |state| state.sessions == 0 && state.charged == 0)?;
        if !settled {
            bus.failures.push(format!(
                "round {}: {:?} later the device still has {state:?}",
                bus.rounds,
                site::PATIENCE
            ));
        }
        bus.charged_after.push(state.charged);
        bus.kept_image_kib.push(state.kept_images >> 10);
        bus.rss_kib.push(site::rss_kib(site.pid()?)?);
        bus.longest_attach_us = state.longest_attach_us.or(bus.longest_attach_us);
        bus.longest_access_us = state.longest_access_us.or(bus.longest_access_us);
        if !settled {
            // Further rounds would add no information.
            break;
        }
    }
    bus.sigterm_us = Some(u64::try_from(site.terminate()?.as_micros()).unwrap_or(u64::MAX));
    Ok(bus)
}

/// Prints the report on a bus as text.
fn print(bus: &Bus) {
    println!(
        "{}: {} rounds, {} bytes compared, {} wrong",
        bus.name, bus.rounds, bus.compared_bytes, bus.wrong_bytes
    );
    let first_and_last =
        |list: &[u64]| (list.first().copied().unwrap_or(0), list.last().copied().unwrap_or(0));
    let (first, last) = first_and_last(&bus.rss_kib);
    println!(
        "  device {first} KiB after the first round, {last} KiB after the last, {} KiB of it kept images",
        first_and_last(&bus.kept_image_kib).1
    );
    if let (Some(alone), Some(bound)) = (bus.good_alone, bus.good_bound) {
        let least = |shares: &[f64]| shares.iter().copied().fold(f64::INFINITY, f64::min);
        println!(
            "  good programs: {alone:.1} units/s alone; beside hostile ones {:.3} of it at least, where {bound:.3} is asked",
            least(bus.judged_shares())
        );
        if !bus.device_share.is_empty() {
            println!("  that is of the device; with the guest's own processor {:.3}", least(&bus.good_share));
        }
    }
    let us = |value: Option<u64>| value.map_or_else(|| "not counted".to_owned(), |us| format!("{us} us"));
    println!(
        "  longest attach {}, longest register access {}, SIGTERM to exit {}",
        us(bus.longest_attach_us),
        us(bus.longest_access_us),
        us(bus.sigterm_us)
    );
    for (name, class) in &bus.classes {
        let outcomes: Vec<String> =
            class.outcomes.iter().map(|(outcome, count)| format!("{outcome}: {count}")).collect();
        println!("  {name}: {} rounds, {} starts; {}", class.rounds, class.starts, outcomes.join(", "));
    }
    for failure in &bus.failures {
        println!("  DOES NOT HOLD: {failure}");
    }
}
