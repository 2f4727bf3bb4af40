//! Programs of a siege: hostile ones, each of which takes of the device what it can in one way until it is
//! killed; good ones, which compare every byte; and the round that runs both side by side, wherever
//! `vgpu-run` is.

mod attacks;
mod cuda;
mod good;
mod messages;
mod programs;
mod ptx;
mod round;
mod socket;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Subcommand, ValueEnum};

use crate::driver::Code;

/// Ways to be hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Class {
    /// An empty kernel with as many blocks as there can be.
    EndlessGrid,
    /// A kernel that branches back for ever.
    EndlessLoop,
    /// A straight line of pauses.
    Nanosleep,
    /// A product of as many matrices as there can be.
    Products,
    /// Copies and fills of all the memory that can be had, and of rows as narrow as can be.
    Copies,
    /// A graph of endless kernels.
    EndlessGraph,
    /// PTX whose registers live across barriers.
    Registers,
    /// PTX that writes many halves of words.
    Slots,
    /// Work behind a stream that a function of the host holds, until no more is taken.
    HeldStream,
    /// Allocations of 4 KiB, until one is refused; then all are freed, and it starts again.
    Allocations,
    /// Kernels whose threads have as much local memory as they can.
    LocalMemory,
    /// Cooperative launches of as many blocks as can be.
    Cooperative,
    /// Streams, events, modules, functions, and graphs, as many as there are.
    Handles,
    /// Kernels that print without end.
    Printf,
    /// Gets work done and is killed in the midst of it.
    Killed,
    /// Exits in the midst of work: the device ends the session when the process is gone.
    Exits,
    /// Messages with random bodies, and random bytes in the ring. For devices of version 2.
    Messages,
}

/// What a program of a siege does.
#[derive(Clone, Debug, Subcommand)]
pub enum Part {
    /// Be hostile until killed; print what calls were refused with, one line each.
    Hostile {
        /// In which way.
        class: Class,
    },
    /// Upload, compute, download and compare until stdin closes; print a line for each time, and JSON in the
    /// end.
    Good {
        /// Which bytes.
        #[arg(long)]
        seed: u64,
        /// End after so many times.
        #[arg(long)]
        units: Option<u64>,
        /// KiB of one upload.
        #[arg(long, default_value_t = 256)]
        kib: usize,
    },
    /// Be hostile to a mediator's socket until killed.
    Socket(socket::Options),
    /// Run good programs beside hostile ones for a while, kill these, and print what happened as one line of
    /// JSON.
    Round(round::Options),
}

/// Plays the part.
///
/// # Errors
/// A good program's calls fail, a round cannot be run. Hostile programs end when there is nothing left to do.
pub fn play(part: &Part) -> Result<ExitCode> {
    match part {
        Part::Hostile { class } => attacks::attack(*class),
        Part::Good { seed, units, kib } => good::run(*seed, *units, *kib),
        Part::Socket(options) => socket::attack(options),
        Part::Round(options) => round::run(options),
    }
}

/// Prints a line at once: who reads it may kill this process at any time.
fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Says that the next call is hostile.
fn begun() -> Result<()> {
    say("begun")
}

/// Tells each outcome of a call once, and again each time its count has doubled: hostile programs make many
/// calls.
#[derive(Default)]
struct Outcomes(BTreeMap<(&'static str, Code), u64>);

impl Outcomes {
    fn note(&mut self, call: &'static str, code: Code) -> Result<()> {
        let count = self.0.entry((call, code)).or_default();
        *count += 1;
        if count.is_power_of_two() { say(&format!("outcome {call} {code} {count}")) } else { Ok(()) }
    }
}
