//! The options of `vgpu-testbed share`.

use std::time::Duration;

use clap::ValueEnum;

/// What the processes of a VM do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// They keep the GPU busy.
    Busy,
    /// They decode tokens, with pauses.
    Token,
    /// They decode a token at set times.
    Paced,
    /// Each has a kernel that never ends.
    Endless,
    /// Each has a stream that its program holds, with a kernel behind it.
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
    pub(super) vms: u64,
    /// Number of processes of each VM.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub(super) processes: Vec<usize>,
    /// Weight of each VM.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub(super) weights: Vec<u32>,
    /// What the processes of each VM do.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "busy")]
    pub(super) loads: Vec<Load>,
    /// Duration of a round in seconds.
    #[arg(long, default_value_t = 2.0)]
    pub(super) seconds: f64,
    /// Rounds; figures are medians. With `--node both` each round has a part without and one with the node
    /// process.
    #[arg(long, default_value_t = 1)]
    pub(super) rounds: usize,
    /// Whether the node process shares the GPU's time.
    #[arg(long, value_enum, default_value_t = WithNode::Yes)]
    pub(super) node: WithNode,
    /// Length of a slice, as `vgpu-device node` takes it.
    #[arg(long, default_value = "5ms")]
    pub(super) slice: String,
    /// Steps of each kernel of busy processes, which decide how long it takes.
    #[arg(long, default_value_t = 500)]
    pub(super) steps: u32,
    /// Steps of each kernel of a token.
    #[arg(long, default_value_t = 500)]
    pub(super) token_steps: u32,
    /// Kernels of a token.
    #[arg(long, default_value_t = 40)]
    pub(super) kernels: u32,
    /// Milliseconds between two tokens, or between the times at which they are due.
    #[arg(long, default_value_t = 20)]
    pub(super) pause_ms: u64,
    /// Boot a guest for each VM. Otherwise the guests' processes are processes of this machine.
    #[arg(long)]
    pub(super) guest: bool,
    /// What happens after a third of each round.
    #[arg(long, value_enum, conflicts_with = "guest")]
    pub(super) fault: Option<Fault>,
    /// Threads of the GPU, a soft device that carries out kernels.
    #[arg(long, default_value_t = 2)]
    pub(super) threads: usize,
    /// Time of a block of a kernel on a GPU that only takes time, as `vgpu-device` takes it for
    /// `--complete-after`, in place of the soft device. Such a GPU leaves the host's processors alone, as a
    /// real one does. Each kernel has eight blocks.
    #[arg(long)]
    pub(super) block_time: Option<String>,
    /// Print JSON: of each part the medians `shares[]`, `sum` (launches of all VMs in a second), `jain`, and
    /// of each VM `launches_per_second`, `last_third`, `served` (of the launches that were due) and
    /// `token_ms`; and `rounds[]`.
    #[arg(long)]
    pub(super) json: bool,
}

/// What happens to a process of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// The node process is killed.
    NodeKill,
    /// The node process is stopped until the round ends.
    NodeStop,
    /// The first VM's device is killed.
    DeviceKill,
    /// The first VM's device is stopped until the round ends.
    DeviceStop,
}

/// Whether there is a node process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WithNode {
    /// There is one.
    Yes,
    /// There is none.
    No,
    /// First there is none, then one.
    Both,
}

impl ShareArgs {
    /// Returns how long a round takes.
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns the arguments of `vgpu-standin` for a process with this load.
    pub(super) fn play(&self, load: Load) -> Vec<String> {
        let steps = if matches!(load, Load::Token | Load::Paced) { self.token_steps } else { self.steps };
        // A soft device runs the kernel, of which one block suffices.
        let endless_blocks = if self.block_time.is_some() { i32::MAX } else { 1 };
        let mut words = vec!["share".to_owned(), load.name()];
        for (option, value) in [
            ("--seconds", self.time().as_secs_f64().to_string()),
            ("--steps", steps.to_string()),
            ("--kernels", self.kernels.to_string()),
            ("--endless-blocks", endless_blocks.to_string()),
            ("--pause-ms", self.pause_ms.to_string()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words
    }
}
