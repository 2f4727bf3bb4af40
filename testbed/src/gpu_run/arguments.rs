//! What `gpu-run` is asked for on the command line.

use std::path::PathBuf;

use clap::ValueEnum;

use super::side::Executor;

/// Parts of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    /// `vgpu-device check` of this host.
    Check,
    /// GGML finds the GPU.
    Discovery,
    /// GGML's operations agree with the CPU's.
    Ops,
    /// A model gives the same tokens on both sides.
    Generate,
    /// Several guests at once, doing everything.
    Soak,
    /// Launches, round trips, copies.
    Rates,
    /// Times of a model: loads, the prompt, decoding.
    Model,
}

/// Options of `gpu-run`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What stands behind the device.
    #[arg(long, value_enum, default_value_t = Executor::Cuda)]
    pub(super) executor: Executor,
    /// UUID of the GPU, as `nvidia-smi -L` prints it; the first, if not given.
    #[arg(long, value_name = "UUID")]
    pub(super) gpu: Option<String>,
    /// Compute capability whose build of libggml-cuda.so is used; in a pack, the one that it was thinned to.
    #[arg(long, default_value = "9.0")]
    pub(super) cc: String,
    /// The model: a GGUF file, or a name among the artifacts.
    #[arg(long, default_value = "smollm2")]
    pub(super) model: String,
    /// Which parts, in this order; all, if not given. Each can be a command of its own, where commands have
    /// limits.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) steps: Vec<Step>,
    /// How often each figure is taken on each side.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) rounds: u16,
    /// Sentences of the prompt, of about 20 tokens each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(super) sentences: u16,
    /// Tokens that are decoded in a run of the model.
    #[arg(long, default_value_t = 128)]
    pub(super) tokens: usize,
    /// Launches that are timed.
    #[arg(long, default_value_t = 100_000)]
    pub(super) launches: usize,
    /// How much each copy copies, MiB.
    #[arg(long, default_value_t = 256)]
    pub(super) mib: usize,
    /// Operations of each guest in the soak.
    #[arg(long, default_value_t = 500)]
    pub(super) soak_operations: u64,
    /// Only operations that match this regular expression, instead of the short selection.
    #[arg(long, value_name = "REGEX")]
    pub(super) ops_filter: Option<String>,
    /// Seconds that a program may take before it is killed and its part has failed.
    #[arg(long, default_value_t = 300)]
    pub(super) limit: u64,
    /// Seconds that a part may take with all its programs. What it has measured by then is kept, and the next
    /// part starts: all seven take 28 minutes at most.
    #[arg(long, default_value_t = 240)]
    pub(super) step_limit: u64,
    /// Write the JSON here too, after each part: what a limit cuts off is not lost.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}
