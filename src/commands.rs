//! Reads the command line and carries out its command.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::panic;
use std::process::ExitCode;

use clap::error::ErrorKind;
use nix::unistd::Uid;

use crate::check::{self, worker};
use crate::cli::{self, Cli, Command};
use crate::diagnosis::{Verdict, verdict};
use crate::exit::Exit;
use crate::{launch, log, pages, reap, service, stack, status, trace, version};

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    stack::enough(begin)
}

fn begin() -> ExitCode {
    launch::file_size::hold();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match cli::parse(&arguments) {
        Ok(cli) => cli,
        Err(usage) => return refuse(&usage, &arguments),
    };
    // For check the option asks for evidence.
    let check = matches!(cli.command, Some(Command::Check(_)));
    // Check itself stays root; its children become the user.
    let drops = cli.options.user.is_some() && Uid::effective().is_root() && !check;
    log::start(cli.options.verbose && !check, drops);
    let code = execute(cli);
    log::give_up();
    code
}

/// Prints clap's message: a usage error, the help, or the version.
fn refuse(usage: &clap::Error, arguments: &[OsString]) -> ExitCode {
    // Standard output may be closed. The exit code is then enough.
    let _ = usage.print();
    if usage.kind() == ErrorKind::DisplayVersion && usage.to_string().contains(version::LONG) {
        let _ = io::stdout().write_all(version::device().as_bytes());
    }
    match usage.use_stderr() {
        true if cli::is_check(arguments) => ExitCode::from(verdict::USAGE),
        true => Exit::Launcher.into(),
        false => Exit::Success.into(),
    }
}

/// Executes the command of the command line and returns its exit code. Prints the reason of a failure.
fn execute(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Some(Command::Env { json, program, rest }) => launch::show::show(&cli.options, program, &rest, json),
        Some(Command::Check(options)) => {
            // A panic has already printed its location. A failure of check itself has its own exit code.
            let checked = panic::catch_unwind(|| check::check(&cli.options, &options));
            return checked.unwrap_or(ExitCode::from(Verdict::Incomplete as u8));
        }
        Some(Command::Status(options)) => status::status(&options),
        Some(Command::Reap { linger }) => reap::reap(linger),
        Some(Command::Pages { prefix }) => pages::write(&prefix),
        Some(Command::Worker { groups, task }) => return worker::work(&cli.options, &groups, &task),
        Some(Command::Service { task }) => {
            return service::service(&cli.options, &task)
                .unwrap_or_else(|failure| failure.report(&mut io::stderr()).into());
        }
        Some(Command::Trace { output, program }) => {
            return trace::trace(&cli.options, output, &program)
                .unwrap_or_else(|failure| failure.report(&mut io::stderr()).into());
        }
        None => launch::launch(&cli.options, &cli.program).map(|never| match never {}),
    };
    done.map_or_else(|failure| failure.report(&mut io::stderr()), |()| Exit::Success).into()
}
