//! `vgpu-testbed fuzz-engine`: random programs on all engines of the soft executor that the processor has.
//!
//! Programs run in child processes, because wrong machine code can end its process or never return. A child
//! prints a line of JSON before its first program, for each failure, after each program, and at its end. A
//! child that ends early or stops is replaced by one that continues behind the program that it ran.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use vgpu_simt_testing::fuzz::{self, Plan};

/// Time after which a program is taken to run forever. It includes the reduction of a program that failed,
/// which ends after five minutes.
const LIMIT: Duration = Duration::from_mins(15);
/// Number of children of one part that may end early. More would only repeat what these have shown.
const MOST_CRASHES: usize = 16;

/// Options of `fuzz-engine`.
#[derive(clap::Args)]
pub struct FuzzEngineArgs {
    /// Number of minutes; fractions are allowed.
    #[arg(
        long,
        default_value = "1",
        value_name = "MINUTES",
        value_parser = parse_minutes,
        conflicts_with_all = ["programs", "case"],
    )]
    minutes: Duration,
    /// Number of programs, instead of minutes.
    #[arg(long, conflicts_with = "case")]
    programs: Option<u64>,
    /// Seed of the programs. Drawn at random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Run only the program with this number.
    #[arg(long, requires = "seed")]
    case: Option<u64>,
    /// Print the program of `--case` instead of running it.
    #[arg(long, requires = "case")]
    print: bool,
    /// Number of processes that run programs at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,
    /// Print JSON: `seed`, `engines[]` (`name`, `programs`), `programs`, `faults`, `references`, `median`,
    /// `failures[]` (`number`, `message`, `text`).
    #[arg(long)]
    json: bool,
    /// Run programs from this number on in this process, each `--jobs` after the previous one. Another
    /// `fuzz-engine` starts this.
    #[arg(long, hide = true)]
    first: Option<u64>,
}

/// Parses a number of minutes.
fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(60.0 * minutes).map_err(|error| error.to_string())
}

/// Prints a line for the process that started this one.
fn say(line: &Value) {
    // If nobody reads, the next program is the last: the parent has ended.
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(1);
    }
}

/// Runs the programs of a plan in this process.
fn work(plan: &Plan) -> ExitCode {
    let mut said = 0;
    say(&json!({ "next": plan.first }));
    fuzz::run(plan, &mut |report| {
        for failure in &report.failures[said..] {
            say(&json!({ "number": failure.number, "message": failure.message, "text": failure.text }));
        }
        said = report.failures.len();
        say(&json!({
            "next": plan.first + plan.step * report.programs,
            "programs": report.programs,
            "runs": report.runs,
            "faults": report.faults,
            "references": report.references,
            "length": report.lengths.last(),
        }));
        true
    });
    say(&json!({ "done": true }));
    ExitCode::SUCCESS
}

/// A child process, which is killed if it is dropped before it has ended.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if the process has ended and has been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What one or more processes have reported.
#[derive(Default)]
struct Results {
    programs: u64,
    /// Number of programs by engine.
    runs: Vec<u64>,
    faults: u64,
    references: u64,
    lengths: Vec<u64>,
    failures: Vec<Value>,
}

impl Results {
    /// Adds the results of another process.
    fn add(&mut self, other: Self) {
        self.programs += other.programs;
        self.runs.resize(self.runs.len().max(other.runs.len()), 0);
        for (runs, more) in self.runs.iter_mut().zip(other.runs) {
            *runs += more;
        }
        self.faults += other.faults;
        self.references += other.references;
        self.lengths.extend(other.lengths);
        self.failures.extend(other.failures);
    }

    /// Takes the counts of a line that a child printed after a program. They include its earlier programs.
    fn count(&mut self, line: &Value) {
        let number = |key: &str| line[key].as_u64().unwrap_or_default();
        self.programs = number("programs");
        self.faults = number("faults");
        self.references = number("references");
        self.runs = line["runs"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        self.lengths.extend(line["length"].as_u64());
    }

    /// Prints a failure and keeps it.
    fn fail(&mut self, failure: Value) {
        let [message, text] = ["message", "text"].map(|key| failure[key].as_str().unwrap_or_default());
        eprintln!("program {}: {message}\n{text}", failure["number"]);
        self.failures.push(failure);
    }
}

/// A program that a child did not finish, and why.
struct Unfinished {
    number: u64,
    why: String,
}

/// Starts a child that runs the programs of a plan.
fn start(plan: &Plan) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.args(["fuzz-engine", "--seed", &plan.seed.to_string(), "--first", &plan.first.to_string()]);
    command.args(["--jobs", &plan.step.to_string()]);
    if let Some(programs) = plan.programs {
        command.args(["--programs", &programs.to_string()]);
    }
    if let Some(time) = plan.time {
        command.args(["--minutes", &(time.as_secs_f64() / 60.0).to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start a process")
}

/// Runs the programs of a plan in a child process, up to the program that the child does not finish.
fn run_child(plan: &Plan, results: &mut Results) -> Result<Option<Unfinished>> {
    let mut worker = Worker(start(plan)?);
    let stdout = worker.0.stdout.take().context("no stdout")?;
    let (sender, lines) = mpsc::sync_channel(16);
    // The thread ends with the child, which the drop of `worker` kills after an error.
    thread::spawn(move || BufReader::new(stdout).lines().try_for_each(|line| sender.send(line)));
    let (mut number, mut done) = (plan.first, false);
    loop {
        let line = match lines.recv_timeout(LIMIT) {
            Ok(line) => line.context("read what the process says")?,
            Err(RecvTimeoutError::Timeout) => {
                let why = format!("the process was stopped after {} minutes", LIMIT.as_secs() / 60);
                return Ok(Some(Unfinished { number, why }));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let line: Value = serde_json::from_str(&line).context("understand what the process says")?;
        if line["text"].is_string() {
            results.fail(line);
        } else if line["done"].is_boolean() {
            done = true;
        } else {
            number = line["next"].as_u64().context("a line of the process has no number")?;
            if line["programs"].is_u64() {
                results.count(&line);
            }
        }
    }
    let status = worker.0.wait()?;
    let good = done && status.success();
    Ok((!good).then(|| Unfinished { number, why: format!("the process ended: {status}") }))
}

/// Runs the programs of a plan in child processes, one after the other.
fn run_part(plan: &Plan) -> Result<Results> {
    let begin = Instant::now();
    let (mut all, mut rest) = (Results::default(), *plan);
    for _ in 0..MOST_CRASHES {
        let mut results = Results::default();
        let unfinished = run_child(&rest, &mut results)?;
        if let Some(Unfinished { number, why }) = &unfinished {
            let text = fuzz::draw(plan.seed, *number).text();
            results.fail(json!({ "number": number, "message": why, "text": text }));
            results.programs += 1;
        }
        all.add(results);
        let Some(Unfinished { number, .. }) = unfinished else { return Ok(all) };
        rest.first = number + plan.step;
        let passed = (rest.first - plan.first) / plan.step;
        rest.programs = plan.programs.map(|programs| programs.saturating_sub(passed));
        rest.time = plan.time.map(|time| time.saturating_sub(begin.elapsed()));
        if rest.programs == Some(0) || rest.time == Some(Duration::ZERO) {
            return Ok(all);
        }
    }
    eprintln!("{MOST_CRASHES} processes ended early; programs from {} on did not run", rest.first);
    Ok(all)
}

impl FuzzEngineArgs {
    /// Returns the programs of one of the parts that run at the same time.
    fn plan(&self, seed: u64, part: u64) -> Plan {
        let (first, programs) = match (self.case, self.programs) {
            (Some(case), _) => (case, Some(1)),
            (None, Some(programs)) => (part, Some((programs + self.jobs - 1 - part) / self.jobs)),
            (None, None) => (part, None),
        };
        let time = programs.is_none().then_some(self.minutes);
        Plan { seed, first, step: self.jobs, programs, time, engines: fuzz::engines() }
    }
}

/// Runs programs and prints the report.
pub fn run_fuzz_engine(arguments: &FuzzEngineArgs) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(|| rand::random::<u64>() >> 32);
    if let (true, Some(case)) = (arguments.print, arguments.case) {
        print!("{}", fuzz::draw(seed, case).text());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(first) = arguments.first {
        let programs = arguments.programs;
        let time = programs.is_none().then_some(arguments.minutes);
        return Ok(work(&Plan {
            seed,
            first,
            step: arguments.jobs,
            programs,
            time,
            engines: fuzz::engines(),
        }));
    }
    let parts = if arguments.case.is_some() { 1 } else { arguments.jobs };
    let mut all = Results { runs: vec![0; fuzz::engines().len()], ..Results::default() };
    thread::scope(|scope| {
        let parts: Vec<_> =
            (0..parts).map(|part| scope.spawn(move || run_part(&arguments.plan(seed, part)))).collect();
        for part in parts {
            let failed = |_| Err(anyhow::anyhow!("a thread that reads from a process failed"));
            all.add(part.join().unwrap_or_else(failed)?);
        }
        anyhow::Ok(())
    })?;
    Ok(print_report(seed, all, arguments.json))
}

/// Prints the report of all programs. Returns the exit code, which tells whether one failed.
fn print_report(seed: u64, all: Results, as_json: bool) -> ExitCode {
    let Results { programs, runs, faults, references, mut lengths, failures } = all;
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    let engines = fuzz::engines().iter().map(|engine| format!("{engine:?}")).zip(runs);
    let good = failures.is_empty();
    if as_json {
        let engines: Vec<Value> =
            engines.map(|(name, programs)| json!({ "name": name, "programs": programs })).collect();
        let report = json!({
            "seed": seed,
            "engines": engines,
            "programs": programs,
            "faults": faults,
            "references": references,
            "median": median,
            "failures": failures,
        });
        println!("{report:#}");
    } else {
        let engines: Vec<String> = engines.map(|(name, programs)| format!("{name} ({programs})")).collect();
        println!(
            "seed {seed}: {programs} programs of {median} instructions (median) on {}, {faults} with a fault; \
             {references} results compared with a reference; {} failed",
            engines.join(", "),
            failures.len()
        );
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
