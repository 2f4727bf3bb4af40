//! Gives a guest VM's Ollama the GPU of its host: `vgpu-run PROGRAM [ARGS]...`.

mod check;
mod cli;
mod device;
mod diagnosis;
mod embedded;
mod env;
mod error;
mod exit;
mod inject;
mod launch;
mod log;
mod ollama;
mod pages;
mod program;
mod report;
#[cfg(test)]
mod scratch;
mod service;
mod systemd;
mod trace;
mod version;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Command};
use exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            // Where its words go is closed: the exit code says it.
            let _ = usage.print();
            if usage.kind() == ErrorKind::DisplayVersion && usage.to_string().contains(version::LONG) {
                let _ = std::io::stdout().write_all(version::device().as_bytes());
            }
            return match usage.use_stderr() {
                true if cli::is_check(std::env::args_os()) => ExitCode::from(diagnosis::verdict::USAGE),
                true => Exit::Launcher.into(),
                false => Exit::Success.into(),
            };
        }
    };
    // For check the option asks for evidence.
    let check = matches!(cli.command, Some(Command::Check(_)));
    // Check itself stays root; its children become the user.
    let drops = cli.options.user.is_some() && nix::unistd::Uid::effective().is_root() && !check;
    log::start(cli.options.verbose && !check, drops);
    let code = run(cli);
    log::give_up();
    code
}

/// Carries out what the command line asks for. Prints why that failed.
fn run(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Some(Command::Env { json, program, rest }) => launch::show::show(&cli.options, program, &rest, json),
        Some(Command::Check(options)) => {
            // A panic has said where; that check itself failed is an exit code of its own.
            let checked = std::panic::catch_unwind(|| check::check(&cli.options, &options));
            return checked.unwrap_or(ExitCode::from(diagnosis::Verdict::Incomplete as u8));
        }
        Some(Command::Pages { prefix }) => pages::write(&prefix),
        Some(Command::Look { groups, task }) => return check::worker::work(&cli.options, &groups, &task),
        Some(Command::Service { task }) => {
            return service::service(&cli.options, &task)
                .unwrap_or_else(|failure| failure.report(&mut std::io::stderr()).into());
        }
        Some(Command::Trace { output, program }) => {
            return trace::trace(&cli.options, output, &program)
                .unwrap_or_else(|failure| failure.report(&mut std::io::stderr()).into());
        }
        None => launch::launch(&cli.options, &cli.program).map(|never| match never {}),
    };
    done.map_or_else(|failure| failure.report(&mut std::io::stderr()), |()| Exit::Success).into()
}
