//! `vgpu-testbed`: devices in software, and what can be shown with them.

mod agree;
mod bench;
mod boot;
mod demo;
mod device;
mod discover;
mod distributions;
mod faults;
mod generate;
mod gpu_pack;
mod gpu_run;
mod mediator;
mod ops;
mod place;
mod siege;
mod soak;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The other end of VGPU-STUB, in software.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run VGPU-STUB devices on a bus until told to stop.
    Device(device::Arguments),
    /// Carry out the calls of version 1's devices in other processes, such as those of patched hypervisors.
    Mediator(mediator::Arguments),
    /// Carry out one session's messages. A device's process starts this.
    #[command(hide = true)]
    Worker,
    /// Say what the devices of a bus have allocated, and for whom.
    Status(status::Arguments),
    /// Measure the launcher and the shims.
    Bench(bench::Arguments),
    /// Start a device and have stock libggml-cuda.so find it through the launcher, in every position.
    Discover(discover::Arguments),
    /// Have a language model generate text, on the CPU or on a device, and count what a token costs.
    Generate(generate::Arguments),
    /// Boot a virtual machine with a device on its PCI bus and run a command in it.
    Guest(boot::Arguments),
    /// Compare the device's distributions with the CPU's, token by token.
    Agree(agree::Arguments),
    /// Have several guest processes do everything at once, and compare all that comes back.
    Soak(soak::Arguments),
    /// Have hostile programs of every class beside good ones, on three buses, and see that these and the host
    /// do not suffer.
    Siege(siege::Arguments),
    /// Compare GGML's operations on a device with the CPU's.
    Ops(ops::Arguments),
    /// Make each fault of the catalogue for real and see what `vgpu-run check` takes it for.
    Faults(faults::Arguments),
    /// Install a release in root file systems of several distributions and have it look at itself.
    Distributions(distributions::Arguments),
    /// Make parts of all that `gpu-run` needs on a machine with an NVIDIA GPU and no network.
    GpuPack(gpu_pack::Arguments),
    /// On a machine with an NVIDIA GPU: try everything through the device, and measure it against the GPU
    /// itself.
    GpuRun(gpu_run::Arguments),
    /// Show it: a model answers through the device, without a GPU.
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Device(arguments) => device::run(&arguments),
        Command::Mediator(arguments) => mediator::run(&arguments),
        Command::Worker => Ok(vgpu_serve::worker::run()),
        Command::Status(arguments) => status::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Discover(arguments) => discover::run(&arguments),
        Command::Distributions(arguments) => distributions::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Guest(arguments) => boot::run(&arguments),
        Command::Agree(arguments) => agree::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Siege(arguments) => siege::run(&arguments),
        Command::Ops(arguments) => ops::run(&arguments),
        Command::Faults(arguments) => faults::run(&arguments),
        Command::GpuPack(arguments) => gpu_pack::run(&arguments),
        Command::GpuRun(arguments) => gpu_run::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("vgpu-testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// What clap checks only when a command is used.
    #[test]
    fn options_do_not_contradict_each_other() {
        super::Arguments::command().debug_assert();
    }
}
