//! `vgpu-testbed share`: several VMs share one GPU. Each has a `vgpu-device serve` of its own with the executor
//! for real GPUs, and the GPU is a soft device that all of them reach through our own libcuda. The guests are
//! processes of this machine.

mod figures;
mod host;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use figures::{Round, median};
use host::{Host, VmSettings};

/// What the processes of a VM do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// They keep the GPU busy.
    Busy,
    /// They decode tokens, with pauses.
    Token,
    /// Each has a kernel that never ends.
    Endless,
    /// Each has a stream that its program holds.
    Held,
    /// There are none.
    None,
}

impl Load {
    /// Returns the name by which `vgpu-standin share` knows the load.
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Options of `share`.
#[derive(clap::Args)]
pub struct ShareArgs {
    /// Number of VMs.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    vms: u64,
    /// Number of processes of each VM.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    processes: Vec<usize>,
    /// What the processes of each VM do.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busy")]
    loads: Vec<Load>,
    /// Duration of a round in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds; figures are medians. With `--node both` each round has a part without and one with the node
    /// process.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Whether the node process shares the GPU's time.
    #[arg(long, value_enum, default_value_t = WithNode::Yes)]
    node: WithNode,
    /// Length of a slice, as `vgpu-device node` takes it.
    #[arg(long, default_value = "5ms")]
    slice: String,
    /// Steps of each kernel of busy processes, which decide how long it takes.
    #[arg(long, default_value_t = 500)]
    steps: u32,
    /// Steps of each kernel of a token.
    #[arg(long, default_value_t = 500)]
    token_steps: u32,
    /// Kernels of a token.
    #[arg(long, default_value_t = 40)]
    kernels: u32,
    /// Milliseconds between two tokens.
    #[arg(long, default_value_t = 20)]
    pause_ms: u64,
    /// Threads of the GPU.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Print JSON: of each part the medians `shares[]`, `sum` (launches of all VMs in a second), `jain`, and of
    /// each VM `launches_per_second` and `token_ms`; and `rounds[]`.
    #[arg(long)]
    json: bool,
}

/// Whether there is a node process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WithNode {
    /// There is one.
    Yes,
    /// There is none.
    No,
    /// First there is none, then one.
    Both,
}

/// Returns the value for the VM `index`. The last one is for all further VMs.
fn of<T: Copy>(values: &[T], index: usize) -> Option<T> {
    values.get(index).or(values.last()).copied()
}

/// Measures how VMs share a GPU.
pub fn run_share(arguments: &ShareArgs) -> Result<ExitCode> {
    let vm = |index| {
        Some(VmSettings { processes: of(&arguments.processes, index)?, load: of(&arguments.loads, index)? })
    };
    let vms: Vec<VmSettings> = (0..arguments.vms as usize).filter_map(vm).collect();
    if vms.len() as u64 != arguments.vms {
        bail!("--processes, --weights and --loads have no value");
    }
    let mut host = Host::start(&vms, arguments.threads)?;
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

impl ShareArgs {
    /// Returns how long a round takes.
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns the arguments of `vgpu-standin` for a process with this load.
    fn play(&self, load: Load) -> Vec<String> {
        let steps = if load == Load::Token { self.token_steps } else { self.steps };
        let mut words = vec!["share".to_owned(), load.name()];
        for (option, value) in [
            ("--seconds", self.time().as_secs_f64().to_string()),
            ("--steps", steps.to_string()),
            ("--kernels", self.kernels.to_string()),
            ("--pause-ms", self.pause_ms.to_string()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words
    }
}
