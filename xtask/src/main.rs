//! The command line of xtask.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run_cli()
}
