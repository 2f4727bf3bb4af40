//! Played VMs: their programs are threads of this process, and each access to a register is a message to the
//! device.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use vgpu_testbed::unit::Instance;
use vgpu_testbed::vmm::Vmm;
use vgpu_wire::registers as reg;

use super::figures::{Interval, Outcome, gaps, length, longest, longest_during};
use super::options::ReloadArgs;
use super::programs::{self, Kind, Stream};
use super::reloader::{Reloads, reload};
use super::site::TrialHost;

/// Channel of the stream. Those behind it are for the others.
const STREAM: u32 = 0;
/// Pause between two accesses to a register.
const ACCESS_PAUSE: Duration = Duration::from_micros(500);

/// Streams in all VMs at a time, without and then with reloads.
pub(super) fn run(arguments: &ReloadArgs, site: &TrialHost) -> Result<Vec<Outcome>> {
    let expected = programs::tokens(arguments.tokens);
    let vmms: Vec<Vmm> =
        site.devices.iter().map(|device| Vmm::connect(&device.socket()?)).collect::<Result<_>>()?;
    let part = |reloads: bool| -> Result<Vec<VmObservations>> {
        thread::scope(|scope| {
            let parts: Vec<_> = (site.devices.iter().zip(&vmms))
                .map(|(device, vmm)| scope.spawn(move || play(arguments, device, vmm, reloads)))
                .collect();
            parts
                .into_iter()
                .map(|part| part.join().map_err(|_| anyhow!("a VM's thread panicked"))?)
                .collect()
        })
    };
    let (without, with) = (part(false)?, part(true)?);
    let outcomes = without.into_iter().zip(with);
    Ok(outcomes.map(|(without, with)| outcome(arguments, &expected, without, with)).collect())
}

/// What a VM's programs have noticed in a part of the trial.
struct VmObservations {
    tokens: Vec<u32>,
    moments: Vec<Instant>,
    accesses: Vec<Interval>,
    rounds: BTreeMap<&'static str, u64>,
    waits: Vec<Interval>,
    errors: Vec<String>,
    reloads: Reloads,
}

/// Returns what the programs beside the stream do.
fn kinds(arguments: &ReloadArgs) -> Vec<Kind> {
    let others = arguments.sessions.saturating_sub(1) as usize;
    let attaching = arguments.sessions as usize / 4;
    let (device, window) = (Kind::Device(arguments.copy_mib << 20), Kind::Window(arguments.window_mib << 20));
    let special = [device, Kind::Graph, Kind::Modules, window, Kind::Waiting];
    let mut kinds: Vec<Kind> = vec![Kind::Attaching; attaching.min(others)];
    kinds.extend(special.into_iter().take(others - kinds.len()));
    kinds.resize(others, Kind::Small);
    kinds.extend(arguments.endless.then_some(Kind::Endless));
    kinds
}

/// Runs a program, and returns what it panics with as an error.
fn caught<T>(name: &str, program: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(program)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        format!("{name}: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic"))
    })
}

/// Plays a VM for as long as it streams.
fn play(arguments: &ReloadArgs, device: &Instance, vmm: &Vmm, reloads: bool) -> Result<VmObservations> {
    let over = AtomicBool::new(false);
    let going = || !over.load(Ordering::Relaxed);
    let (told, tokens) = mpsc::channel();
    let generation = vmm.register(reg::V2_GENERATION)?;
    thread::scope(|scope| {
        let sysfs = vmm.sysfs();
        let others: Vec<_> = (STREAM + 1..)
            .zip(kinds(arguments))
            .map(|(channel, kind)| {
                let run = move || programs::run(kind, sysfs, channel, &going);
                (kind.name(), scope.spawn(move || caught(kind.name(), run)))
            })
            .collect();
        let looking = scope.spawn(|| look(vmm, generation, &going));
        let streaming = scope.spawn(move || caught("the stream", || stream(arguments, sysfs, &told)));
        let reloads = if reloads { reload(device, arguments, &tokens) } else { Ok(Reloads::default()) };
        let stream = streaming.join().map_err(|_| anyhow!("a thread panicked"));
        over.store(true, Ordering::Relaxed);
        let mut errors = Vec::new();
        let (mut rounds, mut waits) = (BTreeMap::new(), Vec::new());
        for (name, other) in others {
            match other.join().map_err(|_| anyhow!("a thread panicked"))? {
                Ok(done) => {
                    *rounds.entry(name).or_default() += done.rounds;
                    waits.extend(done.waits);
                }
                Err(error) => errors.push(error),
            }
        }
        let accesses = looking.join().map_err(|_| anyhow!("a thread panicked"))??;
        let (tokens, moments) = stream?.unwrap_or_else(|error| {
            errors.push(error);
            Default::default()
        });
        let [_, refused, stale] = vmm.counts()?;
        if (refused, stale) != (0, 0) {
            errors.push(format!("{refused} accesses were refused, and {stale} replies not expected"));
        }
        Ok(VmObservations { tokens, moments, accesses, rounds, waits, errors, reloads: reloads? })
    })
}

/// Streams the tokens, and tells of each.
fn stream(arguments: &ReloadArgs, sysfs: &Path, told: &Sender<()>) -> (Vec<u32>, Vec<Instant>) {
    let mut stream = Stream::attach(sysfs, STREAM);
    let (mut tokens, mut moments) = (Vec::new(), Vec::new());
    for _ in 0..arguments.tokens {
        tokens.push(stream.token());
        moments.push(Instant::now());
        // Nobody hears it where there are no reloads.
        let _ = told.send(());
    }
    stream.leave();
    (tokens, moments)
}

/// Reads a register again and again.
fn look(vmm: &Vmm, generation: u32, going: &dyn Fn() -> bool) -> Result<Vec<Interval>> {
    let mut accesses = Vec::new();
    while going() {
        let start = Instant::now();
        let found = vmm.register(reg::V2_GENERATION)?;
        accesses.push((start, Instant::now()));
        if found != generation {
            return Err(anyhow!("the device is another one: generation {found} instead of {generation}"));
        }
        thread::sleep(ACCESS_PAUSE);
    }
    Ok(accesses)
}

fn outcome(
    arguments: &ReloadArgs,
    expected: &[u32],
    without: VmObservations,
    with: VmObservations,
) -> Outcome {
    let different = |tokens: &[u32]| {
        let pairs = expected.iter().zip(tokens).filter(|(expected, token)| expected != token);
        pairs.count() + expected.len() - tokens.len()
    };
    let lengths = |intervals: &[Interval]| intervals.iter().map(length).collect::<Vec<f64>>();
    let Reloads { intervals, pauses, streaming } = with.reloads;
    let (gaps_with, gaps_without) = (gaps(&with.moments), gaps(&without.moments));
    Outcome {
        different: different(&without.tokens) + different(&with.tokens),
        reloads: intervals.len(),
        streaming,
        rounds: with.rounds,
        errors: [without.errors, with.errors].concat(),
        pauses,
        accesses: longest_during(&with.accesses, &intervals),
        gaps: longest_during(&gaps_with, &intervals),
        waits: longest_during(&with.waits, &intervals),
        accesses_without: longest(lengths(&without.accesses), arguments.reloads),
        gaps_without: lengths(&gaps_without),
    }
}
