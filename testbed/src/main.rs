//! `vgpu-testbed`: devices in software, and what can be shown with them.

mod agree;
mod bench;
mod boot;
mod demo;
mod device;
mod discover;
mod distributions;
mod faults;
mod fuzz_engine;
mod generate;
mod gpu_pack;
mod gpu_run;
mod mediator;
mod ops;
mod packages;
mod place;
mod reload;
mod server;
mod share;
mod siege;
mod soak;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Test bed for VGPU-STUB: devices in software, and measurements and tests of the guest side.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run VGPU-STUB devices on a bus until told to stop.
    Device(device::DeviceArgs),
    /// Execute the calls of version 1's devices in other processes, such as those of patched hypervisors.
    Mediator(mediator::MediatorArgs),
    /// Ask the GPU's driver which device addresses it reserves. A device process starts this.
    #[command(name = vgpu_serve::ranges::ANSWER, hide = true)]
    Ranges(vgpu_serve::ranges::Question),
    /// Execute one session's messages. A device process starts this.
    #[command(hide = true)]
    Worker,
    /// Become a process of a service, with the descriptors that standard input passes.
    #[command(name = vgpu_testbed::manager::START, hide = true)]
    StartService {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Play a VMM with the device behind a socket.
    #[command(name = "__vmm", hide = true)]
    Vmm { socket: PathBuf },
    /// Print what the devices of a bus have allocated, by session.
    Status(status::StatusArgs),
    /// Measure the cost of the launcher and the shims.
    Bench(bench::BenchArgs),
    /// Start a device and have stock libggml-cuda.so find it through the launcher, in every position in the
    /// process tree.
    Discover(discover::DiscoverArgs),
    /// Have a language model generate text, on the CPU or on a device, and count what a token costs.
    Generate(generate::GenerateArgs),
    /// Boot a virtual machine with a device on its PCI bus and run a command in it.
    Guest(boot::GuestArgs),
    /// Compare the device's distributions with the CPU's, token by token.
    Agree(agree::AgreeArgs),
    /// Run several guest processes with random operations at once, and compare all data that comes back.
    Soak(soak::SoakArgs),
    /// Reload devices while programs of their VMs stream tokens, copy, load code and come and go, and check
    /// that these notice nothing.
    Reload(reload::ReloadArgs),
    /// Let several VMs share one GPU, and print what each gets.
    Share(share::ShareArgs),
    /// Run hostile programs of every class beside good ones on three buses, and check that these and the host
    /// do not suffer.
    Siege(siege::SiegeArgs),
    /// Compare GGML's operations on a device with the CPU's.
    Ops(ops::OpsArgs),
    /// Create each fault of the catalogue and compare the diagnosis of `vgpu-run check`.
    Faults(faults::FaultsArgs),
    /// Run random programs on all engines of the soft executor, and compare what they leave.
    FuzzEngine(fuzz_engine::FuzzEngineArgs),
    /// Install a release in root file systems of several distributions and run its check there.
    Distributions(distributions::DistributionsArgs),
    /// Pack everything that `gpu-run` needs on a machine with an NVIDIA GPU and no network.
    GpuPack(gpu_pack::GpuPackArgs),
    /// On a machine with an NVIDIA GPU: test everything through the device, and measure it against the GPU
    /// itself.
    GpuRun(gpu_run::GpuRunArgs),
    /// Demonstrate a model that answers through the device, without a GPU.
    Demo(demo::DemoArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Device(arguments) => device::run_device(&arguments),
        Command::Mediator(arguments) => mediator::run_mediator(&arguments),
        Command::Ranges(question) => vgpu_serve::ranges::answer(&question),
        Command::Worker => Ok(vgpu_serve::worker::run_worker()),
        Command::StartService { words } => {
            vgpu_testbed::manager::start_service(&words).map(|never| match never {})
        }
        Command::Vmm { socket } => vgpu_testbed::vmm::run_vmm(&socket).map(|()| ExitCode::SUCCESS),
        Command::Status(arguments) => status::run_status(&arguments),
        Command::Bench(arguments) => bench::run_bench(&arguments),
        Command::Discover(arguments) => discover::run_discover(&arguments),
        Command::Distributions(arguments) => distributions::run_distributions(&arguments),
        Command::Generate(arguments) => generate::run_generate(&arguments),
        Command::Guest(arguments) => boot::run_boot(&arguments),
        Command::Agree(arguments) => agree::run_agree(&arguments),
        Command::Soak(arguments) => soak::run_soak(&arguments),
        Command::Reload(arguments) => reload::run_reload(&arguments),
        Command::Share(arguments) => share::run_share(&arguments),
        Command::Siege(arguments) => siege::run_siege(&arguments),
        Command::Ops(arguments) => ops::run_ops(&arguments),
        Command::Faults(arguments) => faults::run_faults(&arguments),
        Command::FuzzEngine(arguments) => fuzz_engine::run_fuzz_engine(&arguments),
        Command::GpuPack(arguments) => gpu_pack::run_gpu_pack(&arguments),
        Command::GpuRun(arguments) => gpu_run::run_gpu_run(&arguments),
        Command::Demo(arguments) => demo::run_demo(&arguments),
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

    /// Clap's debug assertions hold for every command; clap otherwise checks a command only when it is used.
    #[test]
    fn options_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }
}
