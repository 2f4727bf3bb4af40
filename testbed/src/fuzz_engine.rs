//! `vgpu-testbed fuzz-engine`: random programs on all engines of the soft executor that the processor has.
//!
//! Programs run in child processes, because wrong machine code can end its process. A child prints a line of
//! JSON before each program, for each failure, and at its end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use vgpu_simt_testing::fuzz::{self, Plan};

/// Options of `fuzz-engine`.
#[derive(clap::Args)]
pub struct FuzzEngineArgs {
    /// Number of minutes; fractions are allowed.
    #[arg(long, default_value_t = 1.0, conflicts_with_all = ["programs", "case"])]
    minutes: f64,
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
    /// Print JSON: `seed`, `engines[]`, `programs`, `faults`, `references`, `median`, `failures[]` (`number`,
    /// `message`, `text`).
    #[arg(long)]
    json: bool,
    /// Run this part of the programs in this process. Another `fuzz-engine` starts this.
    #[arg(long, hide = true)]
    part: Option<u64>,
}

/// Prints a line for the process that started this one.
fn say(line: &Value) {
    // If nobody reads, the next program is the last: the parent has ended.
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(1);
    }
}

impl FuzzEngineArgs {
    /// Returns the programs of one process.
    fn plan(&self, seed: u64, part: u64) -> Plan {
        let (first, programs) = match (self.case, self.programs) {
            (Some(case), _) => (case, Some(1)),
            (None, Some(programs)) => (part, Some((programs + self.jobs - 1 - part) / self.jobs)),
            (None, None) => (part, None),
        };
        let time = programs.is_none().then(|| Duration::from_secs_f64(60.0 * self.minutes.max(0.0)));
        Plan { seed, first, step: self.jobs, programs, time }
    }

    /// Runs programs in this process.
    fn work(&self, seed: u64, part: u64) -> ExitCode {
        let plan = self.plan(seed, part);
        let mut said = 0;
        say(&json!({ "run": plan.first }));
        let report = fuzz::run(&plan, &mut |report| {
            for failure in &report.failures[said..] {
                say(&json!({ "number": failure.number, "message": failure.message, "text": failure.text }));
            }
            said = report.failures.len();
            say(&json!({ "run": plan.first + plan.step * report.programs }));
            true
        });
        let (programs, faults, references) = (report.programs, report.faults, report.references);
        let lengths = report.lengths;
        say(&json!({ "programs": programs, "faults": faults, "references": references, "lengths": lengths }));
        ExitCode::SUCCESS
    }

    /// Runs one part of the programs in a child process. Returns what it has said.
    fn run_part(&self, seed: u64, part: u64) -> Result<(Vec<Value>, Value)> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.args(["fuzz-engine", "--seed", &seed.to_string(), "--part", &part.to_string()]);
        command.args(["--jobs", &self.jobs.to_string()]);
        match (self.case, self.programs) {
            (Some(case), _) => command.args(["--case", &case.to_string()]),
            (None, Some(programs)) => command.args(["--programs", &programs.to_string()]),
            (None, None) => command.args(["--minutes", &self.minutes.to_string()]),
        };
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start a process")?;
        let (mut failures, mut report, mut running) = (Vec::new(), Value::Null, 0);
        for line in BufReader::new(child.stdout.take().context("no stdout")?).lines() {
            let line: Value = serde_json::from_str(&line?).context("read what the process says")?;
            if let Some(number) = line["run"].as_u64() {
                running = number;
            } else if line["text"].is_string() {
                eprintln!("{}", shown(&line));
                failures.push(line);
            } else {
                report = line;
            }
        }
        let status = child.wait()?;
        if !status.success() {
            let text = fuzz::draw(seed, running).text();
            let message = format!("the process ended: {status}");
            failures.push(json!({ "number": running, "message": message, "text": text }));
        }
        Ok((failures, report))
    }
}

/// Returns a failure as it is printed.
fn shown(failure: &Value) -> String {
    let [message, text] = ["message", "text"].map(|key| failure[key].as_str().unwrap_or_default());
    format!("program {}: {message}\n{text}", failure["number"])
}

/// Runs programs and prints the report.
pub fn run_fuzz_engine(arguments: &FuzzEngineArgs) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(|| rand::random::<u64>() >> 32);
    if let (true, Some(case)) = (arguments.print, arguments.case) {
        print!("{}", fuzz::draw(seed, case).text());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(part) = arguments.part {
        return Ok(arguments.work(seed, part));
    }
    let parts = if arguments.case.is_some() { 1 } else { arguments.jobs };
    let results: Result<Vec<_>> = thread::scope(|scope| {
        let parts: Vec<_> =
            (0..parts).map(|part| scope.spawn(move || arguments.run_part(seed, part))).collect();
        let join = |part: thread::ScopedJoinHandle<'_, Result<_>>| {
            part.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread that reads from a process failed")))
        };
        parts.into_iter().map(join).collect()
    });
    let (failures, reports): (Vec<Vec<Value>>, Vec<Value>) = results?.into_iter().unzip();
    let failures = failures.concat();
    let sum = |key: &str| reports.iter().filter_map(|report| report[key].as_u64()).sum::<u64>();
    let [programs, faults, references] = ["programs", "faults", "references"].map(sum);
    let mut lengths: Vec<u64> = reports
        .iter()
        .flat_map(|report| report["lengths"].as_array().into_iter().flatten())
        .filter_map(Value::as_u64)
        .collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
    let engines: Vec<String> = fuzz::engines().iter().map(|engine| format!("{engine:?}")).collect();
    let good = failures.is_empty();
    if arguments.json {
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
        for failure in failures
            .iter()
            .filter(|failure| failure["message"].as_str().unwrap_or_default().starts_with("the process"))
        {
            println!("{}", shown(failure));
        }
        println!(
            "seed {seed}: {programs} programs of {median} instructions (median) on {}, {faults} with a fault; \
             {references} results compared with a reference; {} failed",
            engines.join(", "),
            failures.len()
        );
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
