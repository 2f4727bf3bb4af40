//! `vgpu-testbed reload`: devices are reloaded while programs of their VMs stream tokens, copy, load code and
//! come and go. The tokens must be those that a device gives that is not reloaded, and neither the programs
//! nor the host may notice anything. VMs are played ([`vgpu_testbed::vmm`]), or booted.

mod booted;
mod figures;
mod options;
mod played;
mod programs;
mod reloader;
mod site;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use figures::{Outcome, load_average, percentiles};
use site::TrialHost;

pub use options::ReloadArgs;

/// Reloads devices while they are used, and prints what their programs have noticed.
pub fn run_reload(arguments: &ReloadArgs) -> Result<ExitCode> {
    let site = TrialHost::start(arguments)?;
    let before = load_average()?;
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
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "load": [before, load_average()?],
        "different": different,
        "reloads": outcomes.iter().map(|outcome| outcome.reloads).sum::<usize>(),
        "reloads_while_streaming": outcomes.iter().map(|outcome| outcome.streaming).sum::<usize>(),
        "rounds": outcomes.iter().map(|outcome| &outcome.rounds).collect::<Vec<_>>(),
        "errors": errors,
        "pause_ms": percentiles(all(|outcome| &outcome.pauses)),
        "access_ms": percentiles(all(|outcome| &outcome.accesses)),
        "allocation_ms": percentiles(all(|outcome| &outcome.waits)),
        "access_ms_without": percentiles(all(|outcome| &outcome.accesses_without)),
        "token_gap_ms": percentiles(all(|outcome| &outcome.gaps)),
        "token_gap_ms_without": percentiles(all(|outcome| &outcome.gaps_without)),
    });
    println!("{}", if arguments.json { format!("{report:#}") } else { report.to_string() });
    let good = different == 0 && errors.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
