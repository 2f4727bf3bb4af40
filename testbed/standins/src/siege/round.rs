//! One round of a siege. Good programs run beside hostile ones for a while; then these are killed, and one
//! more good program on each bus verifies that the device still serves and that it has freed the resources of
//! the killed programs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use super::class::Class;
use super::programs::{Event, Program};
use super::tell::say;

/// Number of units that the good program performs after the siege.
const AFTER: u64 = 2;

/// Options of a round, parsed from the command line.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Class of a hostile program; `CLASS@DIR` runs it on the simulated bus in DIR. Can be given several
    /// times.
    #[arg(long, value_parser = hostile)]
    hostile: Vec<Hostile>,
    /// Number of good programs.
    #[arg(long, default_value_t = 1)]
    good: usize,
    /// Directory of the bus for good programs, if not the system's.
    #[arg(long, value_name = "DIR")]
    bus: Option<PathBuf>,
    /// Size of a good program's upload in KiB.
    #[arg(long, default_value_t = 256)]
    kib: usize,
    /// Time in seconds during which all programs run side by side.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Time in seconds after which a program that should have started or ended counts as hanging.
    #[arg(long, default_value_t = 60.0)]
    patience: f64,
    /// Seed of the bytes that good programs upload.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// A hostile program to start, as the command line gives it.
#[derive(Clone, Debug)]
struct Hostile {
    class: Class,
    bus: Option<PathBuf>,
}

fn hostile(text: &str) -> Result<Hostile, String> {
    let (class, bus) = text.split_once('@').map_or((text, None), |(class, bus)| (class, Some(bus.into())));
    Ok(Hostile { class: Class::from_str(class, false)?, bus })
}

/// Results of a good program.
#[derive(Debug, Default, Serialize)]
struct Good {
    /// Number of units, each an upload, a computation, a download and a comparison, while hostile programs
    /// ran.
    units_beside: u64,
    /// Time that the program waited for a processor while hostile programs ran, in microseconds.
    queued_beside_us: u64,
    /// Number of units during the program's whole life.
    units: u64,
    /// Time that the program has waited for a processor, in microseconds.
    #[serde(skip)]
    queued_us: u64,
    bytes: u64,
    wrong: u64,
    /// Time from the first call to the first allocation, in microseconds.
    attach_us: u64,
    /// Reason why the program failed, if it did.
    failed: Option<String>,
    #[serde(skip)]
    ended: bool,
}

/// Results of a hostile program.
#[derive(Debug, Default, Serialize)]
struct Attack {
    class: String,
    /// Whether the program reached its attack.
    begun: bool,
    /// Number of starts. A program whose session is lost ends and is started again.
    starts: u64,
    /// Minimum number of outcomes by call and status, exact to a power of two.
    outcomes: BTreeMap<String, u64>,
    /// Last line that the program wrote to stderr.
    last_words: String,
}

/// Results of all programs of a round.
#[derive(Debug, Serialize)]
struct RoundReport {
    /// How long all ran side by side, seconds.
    seconds: f64,
    good: Vec<Good>,
    hostile: Vec<Attack>,
    /// Results of the good programs after the siege, one for each bus.
    after: Vec<Good>,
}

struct Round<'a> {
    options: &'a Options,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// Running programs. Those with an index below [`Options::good`] are the good ones.
    programs: Vec<Option<Program>>,
    good: Vec<Good>,
    attacks: Vec<Attack>,
    /// Whether hostile programs that end are started again.
    restart: bool,
}

/// Runs a round and prints its results as one line of JSON.
///
/// # Errors
/// A program cannot be started.
pub fn run_round(options: &Options) -> Result<ExitCode> {
    let (sender, events) = channel();
    let mut round = Round {
        options,
        sender,
        events,
        programs: Vec::new(),
        good: Vec::new(),
        attacks: Vec::new(),
        restart: true,
    };
    let seconds = round.side_by_side()?;
    let after = round.come_after()?;
    let Round { good, attacks, .. } = round;
    say(&serde_json::to_string(&RoundReport { seconds, good, hostile: attacks, after })?)?;
    Ok(ExitCode::SUCCESS)
}

impl Round<'_> {
    fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.options.patience)
    }

    fn start_good(&mut self, index: usize, units: Option<u64>, bus: Option<&Path>) -> Result<()> {
        let seed = self.options.seed.wrapping_add(index as u64);
        let mut arguments: Vec<OsString> = vec!["good".into(), "--seed".into(), seed.to_string().into()];
        arguments.extend(["--kib".into(), self.options.kib.to_string().into()]);
        if let Some(units) = units {
            arguments.extend(["--units".into(), units.to_string().into()]);
        }
        self.good.push(Good::default());
        self.programs.push(Some(Program::start(index, &arguments, bus, &self.sender)?));
        Ok(())
    }

    fn start_hostile(&mut self, number: usize) -> Result<Program> {
        let Hostile { class, bus } = &self.options.hostile[number];
        self.attacks[number].starts += 1;
        let arguments = ["hostile".into(), name(*class).into()];
        Program::start(self.options.good + number, &arguments, bus.as_deref(), &self.sender)
    }

    /// Runs all programs side by side and returns the time in seconds.
    fn side_by_side(&mut self) -> Result<f64> {
        for index in 0..self.options.good {
            self.start_good(index, None, self.options.bus.as_deref())?;
        }
        self.until(self.patience(), |round| round.good.iter().all(|good| good.units > 0 || good.ended))?;
        for number in 0..self.options.hostile.len() {
            let class = name(self.options.hostile[number].class);
            self.attacks.push(Attack { class, ..Attack::default() });
            let program = self.start_hostile(number)?;
            self.programs.push(Some(program));
        }
        self.until(self.patience(), |round| round.attacks.iter().all(|attack| attack.begun))?;
        let before: Vec<[u64; 2]> = self.good.iter().map(|good| [good.units, good.queued_us]).collect();
        let start = Instant::now();
        self.until(Duration::from_secs_f64(self.options.seconds), |_| false)?;
        let seconds = start.elapsed().as_secs_f64();
        for (good, [units, queued]) in self.good.iter_mut().zip(before) {
            good.units_beside = good.units - units;
            good.queued_beside_us = good.queued_us - queued;
        }
        self.restart = false;
        for program in self.programs.drain(self.options.good..).flatten() {
            program.kill()?;
        }
        for program in self.programs.iter_mut().flatten() {
            program.close();
        }
        self.until(self.patience(), |round| round.good.iter().all(|good| good.ended))?;
        self.give_up();
        Ok(seconds)
    }

    /// Runs one good program on each bus after the siege and returns the results.
    fn come_after(&mut self) -> Result<Vec<Good>> {
        let own = self.options.bus.clone();
        let buses: BTreeSet<Option<PathBuf>> =
            self.options.hostile.iter().map(|hostile| hostile.bus.clone()).chain([own]).collect();
        let sooner = std::mem::take(&mut self.good);
        self.programs.clear();
        // Late events of the killed are not for these.
        (self.sender, self.events) = channel();
        for (index, bus) in buses.into_iter().enumerate() {
            self.start_good(index, Some(AFTER), bus.as_deref())?;
        }
        self.until(self.patience(), |round| round.good.iter().all(|good| good.ended))?;
        self.give_up();
        Ok(std::mem::replace(&mut self.good, sooner))
    }

    /// Kills good programs that have not ended, and records that they hang.
    fn give_up(&mut self) {
        let patience = self.patience();
        for (good, program) in self.good.iter_mut().zip(&mut self.programs) {
            if !good.ended {
                good.failed = Some(format!("hangs: did not end within {patience:?}"));
                *program = None;
            }
        }
    }

    /// Processes events until `done` returns true, or until `limit` has passed.
    fn until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !done(self) {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => self.record_event(event)?,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => bail!("all programs have ended"),
            }
        }
        Ok(())
    }

    fn record_event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Line(index, line) if index < self.good.len() => self.good[index].read_line(&line),
            Event::Line(index, line) => {
                if let Some(attack) = self.attacks.get_mut(index - self.good.len()) {
                    attack.read_line(&line);
                }
            }
            Event::End(index, words) if index < self.good.len() => {
                self.good[index].ended = true;
                if let Some(program) = self.programs[index].take() {
                    let status = program.status()?;
                    if !status.success() {
                        self.good[index].failed = Some(format!("{status}: {words}"));
                    }
                }
            }
            Event::End(index, words) => {
                let number = index - self.good.len();
                if !words.is_empty()
                    && let Some(attack) = self.attacks.get_mut(number)
                {
                    attack.last_words = words;
                }
                if self.restart {
                    self.programs[index] = None;
                    let program = self.start_hostile(number)?;
                    self.programs[index] = Some(program);
                }
            }
        }
        Ok(())
    }
}

impl Good {
    fn read_line(&mut self, line: &str) {
        if let Some(microseconds) = line.strip_prefix("attached ") {
            self.attach_us = microseconds.parse().unwrap_or(u64::MAX);
        } else if let ["unit", _, queued] = line.split(' ').collect::<Vec<_>>()[..] {
            self.units += 1;
            self.queued_us = queued.parse().unwrap_or(self.queued_us);
        } else if let Ok(report) = serde_json::from_str::<Value>(line) {
            self.bytes = report["bytes"].as_u64().unwrap_or(0);
            self.wrong = report["wrong"].as_u64().unwrap_or(u64::MAX);
        }
    }
}

impl Attack {
    fn read_line(&mut self, line: &str) {
        self.begun |= line == "begun";
        let words: Vec<&str> = line.split(' ').collect();
        if let ["outcome", call, code, count] = words[..] {
            // A program that was started again counts from one.
            let known = self.outcomes.entry(format!("{call} {code}")).or_default();
            *known = count.parse().map_or(*known, |count: u64| (*known).max(count));
        }
    }
}

/// Returns the name of a class on the command line.
fn name(class: Class) -> String {
    class.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
