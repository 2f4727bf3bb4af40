//! `vgpu-device`: the program that a host runs to give its guests a GPU.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use vgpu_serve::{Knobs, check, device, mediator, serve, status, worker};

/// Serves VGPU-STUB devices to guests, and the calls of version 1's devices.
#[derive(Parser)]
#[command(name = "vgpu-device", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Give a VM a GPU, and print what the VM is to be started with.
    Serve(serve::Arguments),
    /// Find out whether this host can give its GPU to a VM, and what mends it.
    Check(check::Arguments),
    /// Show the sessions of the devices that are served: memory, messages, waits.
    Status(status::Arguments),
    /// Serve VGPU-STUB devices on a bus until told to stop.
    Device(device::Arguments),
    /// Carry out the calls of version 1's devices in other processes, such as those of patched hypervisors.
    Mediator(mediator::Arguments),
    /// Ask a library of NVIDIA's, in a process that may crash.
    #[command(name = check::ASK, hide = true)]
    Ask(check::Question),
    /// Carry out one session's messages. A device's process starts this.
    #[command(hide = true)]
    Worker,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => return ended(check::run(&arguments)),
        Command::Status(arguments) => return ended(status::run(&arguments)),
        Command::Ask(question) => return check::ask(&question),
        Command::Device(arguments) => device::run(&arguments, &Knobs::default()),
        Command::Mediator(arguments) => mediator::run(&arguments, &Knobs::default()),
        Command::Worker => return worker::run(),
    };
    ended(outcome.map(|()| ExitCode::SUCCESS))
}

/// Prints the error, if there is one, and returns the exit code.
fn ended(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("vgpu-device: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// clap checks these assertions only when a command is used.
    #[test]
    fn options_do_not_contradict_each_other() {
        super::Arguments::command().debug_assert();
    }
}
