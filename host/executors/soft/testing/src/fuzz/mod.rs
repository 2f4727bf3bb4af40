//! A fuzzer of the engine: random programs as PTX text, which must leave the same bits on all engines.
//!
//! ```text
//!  shape     launch, memory, registers         case        runs a text on the engines, compares
//!  writer    statements, arithmetic            reference   what arithmetic must compute
//!  control   branches, loops                   reduce      removes what a failure does not need
//!  memory    accesses      calls  functions    program     a tree of statements, and its text
//!  exchange  several lanes and warps           forms       every instruction that computes
//!  idioms    sequences that become one instruction
//!  faults    statements that fail              witness     stores of operands and results
//! ```
//!
//! A program fails if engines differ in memory, in the code, address or site of a fault, or if an instruction
//! does not compute what the ISA says. A failing program is reduced. Its text is a complete test: it says how
//! it is launched.

mod calls;
mod case;
mod control;
mod exchange;
mod faults;
pub mod forms;
mod idioms;
mod memory;
mod program;
mod reduce;
mod reference;
mod shape;
mod witness;
mod writer;

use std::time::{Duration, Instant};

use vgpu_simt::Features;

pub use case::{Verdict, Wrong, WrongKind, check};
pub use program::Program;
pub use reduce::reduce;
pub use reference::reference;

use crate::values::Random;

/// Number of tries in which a failing program is reduced.
const TRIES: usize = 3000;
/// Time after which no further reduction is tried.
const REDUCTION: Duration = Duration::from_mins(5);

/// Programs to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seed of all programs.
    pub seed: u64,
    /// Number of the first program.
    pub first: u64,
    /// Distance between the numbers of two programs.
    pub step: u64,
    /// Number of programs, or no limit.
    pub programs: Option<u64>,
    /// Time after which no program is started.
    pub time: Option<Duration>,
    /// Engines that are compared.
    pub engines: &'static [Features],
}

/// A program that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Number of the program.
    pub number: u64,
    /// What was wrong.
    pub message: String,
    /// Text of the reduced program, which [`check`] runs.
    pub text: String,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of programs that were run.
    pub programs: u64,
    /// Number of programs that were run on each of [`engines`], in their order.
    pub runs: Vec<u64>,
    /// Number of programs that ended with a fault, as intended.
    pub faults: u64,
    /// Number of results that were compared with a reference.
    pub references: u64,
    /// Number of instructions in the text of each program, in ascending order.
    pub lengths: Vec<u32>,
    /// The programs that failed.
    pub failures: Vec<Failure>,
}

/// Returns the engines that are compared: the interpreter, without and with vectors, and each translator that
/// the processor has.
#[must_use]
pub fn engines() -> &'static [Features] {
    Features::available()
}

/// Draws a program of a seed.
#[must_use]
pub fn draw(seed: u64, number: u64) -> Program {
    let mut random = Random::new(seed);
    let base = random.bits();
    shape::draw(Random::new(base ^ number.wrapping_mul(0xd134_2543_de82_ef95)))
}

/// Returns what a program of a seed does wrong, and reduces it.
fn examine(plan: &Plan, number: u64, report: &mut Report) {
    let program = draw(plan.seed, number);
    let text = program.text();
    let instructions = text.lines().filter(|line| line.ends_with(';') && !line.starts_with('.')).count();
    report.programs += 1;
    report.lengths.push(instructions as u32);
    // The interpreter without vectors is slow, and differs from the other in how its functions are compiled.
    let all = plan.engines;
    let first = usize::from(!number.is_multiple_of(8)).min(all.len() - 1);
    let engines = &all[first..];
    for runs in &mut report.runs[first..] {
        *runs += 1;
    }
    match check(&text, engines) {
        Ok(verdict) => {
            report.faults += u64::from(verdict.fault);
            report.references += verdict.references;
        }
        Err(wrong) => {
            let start = Instant::now();
            let fails = |candidate: &Program| {
                start.elapsed() < REDUCTION
                    && check(&candidate.text(), engines).is_err_and(|error| error.kind == wrong.kind)
            };
            let text = reduce(&program, TRIES, &fails).text();
            let message = check(&text, engines).err().unwrap_or(wrong).message;
            report.failures.push(Failure { number, message, text });
        }
    }
}

/// Runs programs until the plan is carried out or `progress` returns false. `progress` is called after each
/// program.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(&Report) -> bool) -> Report {
    let start = Instant::now();
    let mut report = Report { runs: vec![0; plan.engines.len()], ..Report::default() };
    let mut number = plan.first;
    while plan.programs.is_none_or(|programs| report.programs < programs)
        && plan.time.is_none_or(|time| start.elapsed() < time)
    {
        examine(plan, number, &mut report);
        number += plan.step;
        if !progress(&report) {
            break;
        }
    }
    report.lengths.sort_unstable();
    report
}
