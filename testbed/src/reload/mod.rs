//! `vgpu-testbed reload`: devices are reloaded while programs of their VMs stream tokens, copy, load code and
//! come and go. The tokens must be those that a device gives that is not reloaded, and neither the programs
//! nor the host may notice anything. VMs are played ([`vgpu_testbed::vmm`]), or booted.

mod booted;
mod figures;
mod played;
mod programs;
mod reloader;
mod site;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use figures::{Outcome, percentiles};
use site::Site;

/// Options of `reload`.
#[derive(clap::Args, Debug)]
pub struct ReloadArgs {
    /// Boot virtual machines instead of playing them. Their programs are `vgpu-llama`, which streams the
    /// tokens, and, with `--sessions`, `vgpu-standin soak`.
    #[arg(long)]
    booted: bool,
    /// Number of VMs, which share a GPU. Each has a device, and all devices are reloaded.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4))]
    vms: u64,
    /// Have the node process share the GPU's time among the VMs, so that reloads come while it holds work
    /// back.
    #[arg(long)]
    node: bool,
    /// Number of tokens that each VM streams.
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    /// Number of reloads of each device. They are spread over the stream.
    #[arg(long, default_value_t = 20)]
    reloads: usize,
    /// Number of programs of each VM that use the device at a time, that which streams included. In a played
    /// VM a quarter of them are attaching all the time, and three of them copy, launch graphs and load
    /// modules.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=40))]
    sessions: u32,
    /// MiB of each copy within device memory in a played VM.
    #[arg(long, default_value_t = 1024)]
    copy_mib: u64,
    /// MiB of each copy through the window in a played VM, in each direction.
    #[arg(long, default_value_t = 64)]
    window_mib: u64,
    /// Add a program to a played VM whose kernel never ends.
    #[arg(long)]
    endless: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Reloads devices while they are used, and prints what their programs have noticed.
pub fn run_reload(arguments: &ReloadArgs) -> Result<ExitCode> {
    let site = Site::start(arguments)?;
    let outcomes: Vec<Outcome> =
        if arguments.booted { booted::run(arguments, &site)? } else { played::run(arguments, &site)? };
    let mut errors: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.errors.clone()).collect();
    errors.extend(site.errors()?);
    let different: usize = outcomes.iter().map(|outcome| outcome.different).sum();
    let all =
        |times: fn(&Outcome) -> &Vec<f64>| outcomes.iter().flat_map(times).copied().collect::<Vec<f64>>();
    let report = json!({
        "booted": arguments.booted,
        "vms": outcomes.len(),
        "node": arguments.node,
        "sessions": arguments.sessions,
        "tokens": arguments.tokens,
        "different": different,
        "reloads": outcomes.iter().map(|outcome| outcome.reloads).sum::<usize>(),
        "reloads_while_streaming": outcomes.iter().map(|outcome| outcome.streaming).sum::<usize>(),
        "rounds": outcomes.iter().map(|outcome| &outcome.rounds).collect::<Vec<_>>(),
        "errors": errors,
        "pause_ms": percentiles(all(|outcome| &outcome.pauses)),
        "access_ms": percentiles(all(|outcome| &outcome.accesses)),
        "access_ms_without": percentiles(all(|outcome| &outcome.accesses_without)),
        "token_gap_ms": percentiles(all(|outcome| &outcome.gaps)),
        "token_gap_ms_without": percentiles(all(|outcome| &outcome.gaps_without)),
    });
    println!("{}", if arguments.json { format!("{report:#}") } else { report.to_string() });
    let good = different == 0 && errors.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
