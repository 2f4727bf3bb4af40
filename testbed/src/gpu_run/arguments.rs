//! What `gpu-run` is asked for on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use vgpu_testbed::backends::Backend;

use super::side::Executor;

/// Stages of a run, in their usual order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    /// What the machine is: versions, limits, device nodes, libraries, and the GPU's attributes.
    Facts,
    /// `vgpu-device check` of this host.
    Check,
    /// The device serves, a program attaches to it, and GGML finds the GPU.
    Discovery,
    /// A model gives the same tokens on both sides.
    Generate,
    /// Launches, round trips, copies.
    Rates,
    /// Times of a model: loads, the prompt, decoding.
    Model,
    /// Several guests at once, doing everything.
    Soak,
    /// GGML's operations agree with the CPU's, as many as there is time for.
    Ops,
}

impl Step {
    /// Time that the stage has of a budget of nine minutes. Of a smaller budget it has the same share.
    pub(super) const fn seconds(self) -> u64 {
        match self {
            Self::Facts | Self::Check => 15,
            Self::Soak => 30,
            Self::Discovery | Self::Rates => 60,
            Self::Generate | Self::Ops => 90,
            Self::Model => 180,
        }
    }

    /// Returns whether the stage uses all of the time that is left, however much that is.
    pub(super) const fn takes_the_rest(self) -> bool {
        matches!(self, Self::Ops)
    }
}

/// Options of `gpu-run`.
#[derive(clap::Args)]
pub struct GpuRunArgs {
    /// What stands behind the device.
    #[arg(long, value_enum, default_value_t = Executor::Cuda)]
    pub(super) executor: Executor,
    /// UUID of the GPU, as `nvidia-smi -L` prints it; the first, if not given.
    #[arg(long, value_name = "UUID")]
    pub(super) gpu: Option<String>,
    /// Compute capability of the GPU.
    #[arg(long, default_value = "9.0")]
    pub(super) cc: String,
    /// Which build of libggml-cuda.so; the first that has code for the compute capability, if not given.
    #[arg(long, value_enum)]
    pub(super) build: Option<Backend>,
    /// The model: a GGUF file, a name among the artifacts, or `random`: one of SmolLM2's shape whose weights
    /// are drawn by --seed.
    #[arg(long, default_value = "smollm2")]
    pub(super) model: String,
    /// Seed of the model `random`.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// A directory with libcudart and libcublas for the programs that run without vgpu-run. It goes before
    /// what LD_LIBRARY_PATH already names. NVIDIA's libraries among the artifacts, if not given.
    #[arg(long, value_name = "DIR")]
    pub(super) libraries: Option<PathBuf>,
    /// Which stages, in this order; all, if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) steps: Vec<Step>,
    /// Time of the whole run, such as 9m. Each stage has a share of what is left when it starts, and what it
    /// has found is printed before the next one starts.
    #[arg(long, value_name = "TIME", default_value = "9m", value_parser = vgpu_serve::parse_limit)]
    pub(super) budget: Duration,
    /// How often each figure is taken on each side.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) rounds: u16,
    /// Sentences of the prompt, of 20 to 90 tokens each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(super) sentences: u16,
    /// Tokens that are decoded in a run of the model.
    #[arg(long, default_value_t = 128)]
    pub(super) tokens: usize,
    /// Launches that are timed.
    #[arg(long, default_value_t = 100_000)]
    pub(super) launches: usize,
    /// How much each copy copies, MiB. Pinned memory of half the window or less lies in the window.
    #[arg(long, default_value_t = 128)]
    pub(super) mib: usize,
    /// Operations of each guest in the soak.
    #[arg(long, default_value_t = 500)]
    pub(super) soak_operations: u64,
    /// Only operations that match this regular expression, instead of the short selection.
    #[arg(long, value_name = "REGEX")]
    pub(super) ops_filter: Option<String>,
    /// Seconds that a program may take before it is killed and its stage has failed.
    #[arg(long, default_value_t = 300)]
    pub(super) limit: u64,
    /// Seconds that a stage may take at most with all its programs, besides its share of the budget. What it
    /// has measured by then is kept, and the next stage starts.
    #[arg(long, value_name = "SECONDS")]
    pub(super) step_limit: Option<u64>,
    /// A directory that keeps what the driver compiles for the device's worker processes; a temporary one, if
    /// not given.
    #[arg(long, value_name = "DIR")]
    pub(super) compiled: Option<PathBuf>,
    /// Write the results here as one JSON object too, anew after each stage: what a limit cuts off is not
    /// lost.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}
