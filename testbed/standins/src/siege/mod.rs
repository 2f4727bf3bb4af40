//! Programs of a siege: hostile ones, each of which exhausts one resource of the device until it is killed;
//! good ones, which compare every byte; and the round that runs both side by side. They need only `vgpu-run`.

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

/// Role of a program in a siege.
#[derive(Clone, Debug, Subcommand)]
pub enum SiegeCommand {
    /// Be hostile until killed; print what calls were refused with, one line each.
    Hostile {
        /// Class of the attack.
        class: Class,
    },
    /// Upload, compute, download and compare until stdin closes; print a line for each unit, and JSON at the
    /// end.
    Good {
        /// Seed of the uploaded bytes.
        #[arg(long)]
        seed: u64,
        /// Number of units after which the program ends.
        #[arg(long)]
        units: Option<u64>,
        /// Size of one upload in KiB.
        #[arg(long, default_value_t = 256)]
        kib: usize,
    },
    /// Attack a mediator's socket until killed.
    Socket(socket::Options),
    /// Run good programs beside hostile ones for a while, kill the latter, and print the results as one line
    /// of JSON.
    Round(round::Options),
}

/// Runs the program in its role.
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
