//! Command line options of `gpu-run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use vgpu_testbed::backends::Backend;

use super::side::Executor;

/// Stages of a run, in their usual order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    /// Describe the machine: versions, limits, device nodes, libraries, and the GPU's attributes.
    Facts,
    /// Ask the driver what the executor relies on, by `vgpu-device probe`.
    Probe,
    /// Run `vgpu-device check` on this host.
    Check,
    /// Serve the device, attach a program to it, and have GGML find the GPU.
    Discovery,
    /// Compare the tokens of a model on both sides.
    Generate,
    /// Measure launches, round trips and copies.
    Rates,
    /// Measure a model: loads, the prompt, decoding.
    Model,
    /// Run several guests with random operations at once.
    Soak,
    /// Compare GGML's operations with the CPU's, as many as time permits.
    Ops,
}

impl Step {
    /// Returns the seconds of the stage out of a budget of ten and a half minutes. It has the same share of a
    /// smaller budget.
    pub(super) const fn seconds(self) -> u64 {
        match self {
            Self::Facts | Self::Check => 15,
            Self::Soak => 30,
            Self::Discovery | Self::Rates => 60,
            Self::Probe | Self::Generate | Self::Ops => 90,
            Self::Model => 180,
        }
    }

    /// Returns whether the stage uses all remaining time, without an upper limit.
    pub(super) const fn takes_the_rest(self) -> bool {
        matches!(self, Self::Ops)
    }
}

/// Options of `gpu-run`.
#[derive(clap::Args)]
pub struct GpuRunArgs {
    /// Executor behind the device.
    #[arg(long, value_enum, default_value_t = Executor::Cuda)]
    pub(super) executor: Executor,
    /// UUID of the GPU, as `nvidia-smi -L` prints it; by default the first GPU.
    #[arg(long, value_name = "UUID")]
    pub(super) gpu: Option<String>,
    /// Compute capability of the GPU.
    #[arg(long, default_value = "9.0")]
    pub(super) cc: String,
    /// The build of libggml-cuda.so; by default the first that has code for the compute capability.
    #[arg(long, value_enum)]
    pub(super) build: Option<Backend>,
    /// The model: a GGUF file, the name of an artifact, or `random`: a model of SmolLM2's shape with weights
    /// drawn by --seed.
    #[arg(long, default_value = "smollm2")]
    pub(super) model: String,
    /// Seed of the model `random`.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// A directory with libcudart and libcublas for the programs that run without vgpu-run, searched before
    /// the entries of LD_LIBRARY_PATH. By default NVIDIA's libraries among the artifacts.
    #[arg(long, value_name = "DIR")]
    pub(super) libraries: Option<PathBuf>,
    /// The stages to run, in this order; by default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) steps: Vec<Step>,
    /// Time for the whole run, such as 9m. Each stage has a share of the remaining time when it starts, and
    /// its results are printed before the next one starts.
    #[arg(long, value_name = "TIME", default_value = "9m", value_parser = vgpu_serve::parse_limit)]
    pub(super) budget: Duration,
    /// Number of measurements of each figure on each side.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) rounds: u16,
    /// Number of sentences of the prompt, with 20 to 90 tokens each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(super) sentences: u16,
    /// Number of tokens to decode in a run of the model.
    #[arg(long, default_value_t = 128)]
    pub(super) tokens: usize,
    /// Number of launches to time.
    #[arg(long, default_value_t = 100_000)]
    pub(super) launches: usize,
    /// Size of each copy in MiB. Pinned memory of up to half the window lies in the window.
    #[arg(long, default_value_t = 128)]
    pub(super) mib: usize,
    /// Number of operations of each guest in the soak.
    #[arg(long, default_value_t = 500)]
    pub(super) soak_operations: u64,
    /// Run only operations that match this regular expression, instead of the short selection.
    #[arg(long, value_name = "REGEX")]
    pub(super) ops_filter: Option<String>,
    /// Seconds after which a program is killed and its stage fails.
    #[arg(long, default_value_t = 300)]
    pub(super) limit: u64,
    /// Maximum seconds of a stage with all of its programs, besides its share of the budget. Measurements up
    /// to then are kept, and the next stage starts.
    #[arg(long, value_name = "SECONDS")]
    pub(super) step_limit: Option<u64>,
    /// A directory for what the driver compiles for the device's worker processes; by default a temporary
    /// one.
    #[arg(long, value_name = "DIR")]
    pub(super) compiled: Option<PathBuf>,
    /// Also write the results to this file as one JSON object after each stage, so that an interrupted run
    /// keeps them.
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}
