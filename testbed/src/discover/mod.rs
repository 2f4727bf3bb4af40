//! `vgpu-testbed discover`: a device with facts drawn at random, and stock libggml-cuda.so that must
//! report them, through the launcher, in each position that a user's program can be in.

mod run;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use vgpu_serve::Facts;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{Bed, random_facts};

use run::{Discovery, Position};

/// Options of `discover`.
#[derive(clap::Args)]
pub struct DiscoverArgs {
    /// Print one JSON object: `ok`, `runs`, and what failed.
    #[arg(long)]
    json: bool,
    /// Number of processes that query the devices at once.
    #[arg(long, default_value_t = 1)]
    processes: usize,
    /// Number of devices.
    #[arg(long, default_value_t = 1)]
    devices: usize,
}

/// Returns the facts of `count` random devices in the order of their addresses, which is also CUDA's order.
fn draw(backend: Backend, count: usize) -> Vec<Facts> {
    loop {
        let mut devices: Vec<_> = (0..count).map(|_| random_facts(backend.capabilities())).collect();
        devices.sort_by(|left, right| left.address.cmp(&right.address));
        if devices.windows(2).all(|pair| pair[0].address != pair[1].address) {
            return devices;
        }
    }
}

/// Discovers devices with every backend in every position, then once with the device stopped.
pub fn run_discover(arguments: &DiscoverArgs) -> Result<ExitCode> {
    let mut runs: Vec<Discovery> = Vec::new();
    for backend in Backend::ALL {
        let devices = draw(backend, arguments.devices);
        let mut bed = Bed::start("soft", &devices)?;
        for position in Position::ALL {
            runs.extend(run::discover_in(&bed, backend, position, &devices, arguments.processes)?);
        }
        bed.kill()?;
        runs.push(run::look_at_nothing(&bed, backend)?);
    }
    let ok = runs.iter().all(Discovery::ok);
    if arguments.json {
        println!("{:#}", json!({ "ok": ok, "runs": runs }));
    } else {
        for run in &runs {
            println!("{run}");
        }
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
