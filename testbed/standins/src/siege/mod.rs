//! Programs of a siege: hostile ones, each of which takes of the device what it can in one way until it is
//! killed; good ones, which compare every byte; and the round that runs both side by side, wherever
//! `vgpu-run` is.

mod attacks;
mod class;
mod cuda;
mod good;
mod messages;
mod programs;
mod ptx;
mod round;
mod socket;
mod tell;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use class::Class;

/// What a program of a siege does.
#[derive(Clone, Debug, Subcommand)]
pub enum SiegeCommand {
    /// Be hostile until killed; print what calls were refused with, one line each.
    Hostile {
        /// In which way.
        class: Class,
    },
    /// Upload, compute, download and compare until stdin closes; print a line for each time, and JSON in the
    /// end.
    Good {
        /// Seed of the bytes to upload.
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
pub fn play(part: &SiegeCommand) -> Result<ExitCode> {
    match part {
        SiegeCommand::Hostile { class } => attacks::attack(*class),
        SiegeCommand::Good { seed, units, kib } => good::work(*seed, *units, *kib),
        SiegeCommand::Socket(options) => socket::attack(options),
        SiegeCommand::Round(options) => round::run_round(options),
    }
}
