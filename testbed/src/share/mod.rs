//! `vgpu-testbed share`: several VMs share one GPU. Each has a `vgpu-device serve` of its own with the
//! executor for real GPUs, and the GPU is a soft device that all of them reach through our own libcuda, or a
//! device whose kernels only take time. The guests are processes of this machine.

mod figures;
mod host;
mod options;

use std::process::ExitCode;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use figures::{Round, median};
use host::{Host, VmSettings};
use options::WithNode;

pub use options::ShareArgs;

/// Returns the value for the VM `index`. The last one is for all further VMs.
fn of<T: Copy>(values: &[T], index: usize) -> Option<T> {
    values.get(index).or(values.last()).copied()
}

/// Measures how VMs share a GPU.
pub fn run_share(arguments: &ShareArgs) -> Result<ExitCode> {
    let vm = |index| {
        Some(VmSettings {
            processes: of(&arguments.processes, index)?,
            weight: of(&arguments.weights, index)?,
            load: of(&arguments.loads, index)?,
        })
    };
    let vms: Vec<VmSettings> = (0..arguments.vms as usize).filter_map(vm).collect();
    if vms.len() as u64 != arguments.vms {
        bail!("--processes, --weights and --loads have no value");
    }
    let mut host = Host::start(&vms, arguments)?;
    let parts: &[bool] = match arguments.node {
        WithNode::No => &[false],
        WithNode::Yes => &[true],
        WithNode::Both => &[false, true],
    };
    let mut rounds: Vec<(bool, Round)> = Vec::new();
    for _ in 0..arguments.rounds {
        for &node in parts {
            host.set_node(node.then_some(arguments.slice.as_str()))?;
            rounds.push((node, host.round(arguments)?));
        }
    }
    let medians: Vec<(bool, Value)> = parts
        .iter()
        .map(|&node| (node, median(rounds.iter().filter(|round| round.0 == node).map(|round| &round.1))))
        .collect();
    let name = |node| if node { "with_node" } else { "without_node" };
    if arguments.json {
        let each: Vec<Value> = rounds
            .iter()
            .map(|(node, round)| json!({ "part": name(*node), "figures": round.json() }))
            .collect();
        let mut report = json!({ "seconds": arguments.seconds, "rounds": each });
        for (node, figures) in medians {
            report[name(node)] = figures;
        }
        println!("{report:#}");
    } else {
        for (node, figures) in medians {
            println!("{}: {figures}", name(node));
        }
    }
    Ok(ExitCode::SUCCESS)
}
