//! What a context costs of a GPU's memory, with what cuBLAS takes in it, measured in processes of their own:
//! the driver may crash or hang in them, and a device's process makes no context.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use vgpu_device::Addresses;
use vgpu_executor_cuda::{CONTEXT_BYTES, ContextProbe, CudaOptions, GpuIdentity};

use crate::helper;

/// Hidden command in which this program makes contexts.
pub const ANSWER: &str = "__context";

/// Time that the measurement may take. A driver that is loaded for the first time after a start of the host
/// initializes each GPU.
const LIMIT: Duration = Duration::from_mins(1);

/// Number of contexts that are measured. The median is taken, because programs may allocate meanwhile.
const ROUNDS: usize = 3;

/// Costs of a context, in bytes, that are believed. What is measured is also what other programs allocate and
/// free meanwhile.
pub(crate) const PLAUSIBLE: RangeInclusive<u64> = 64 << 20..=2 << 30;

/// Options of the hidden command [`ANSWER`].
#[derive(Debug, clap::Args)]
pub struct Question {
    question: String,
}

/// What a process is to do with the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Task {
    /// Find it, without a context.
    Find,
    /// Measure what a context costs.
    Measure,
    /// Make a context with a handle of cuBLAS, and keep them until standard input is closed.
    Keep,
}

/// The driver and GPU to ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GpuQuestion {
    pub(crate) libcuda: Option<PathBuf>,
    pub(crate) libcublas: Option<PathBuf>,
    pub(crate) uuid: Option<[u8; 16]>,
}

/// A GPU, as its driver describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundGpu {
    pub(crate) uuid: [u8; 16],
    /// Size of its memory in bytes.
    pub(crate) total_bytes: u64,
}

/// Answers a question, in the process that was started for it.
pub fn answer(question: &Question) -> Result<ExitCode> {
    let (gpu, task): (GpuQuestion, Task) = serde_json::from_str(&question.question)?;
    let GpuQuestion { libcuda, libcublas, uuid } = gpu.clone();
    let options = CudaOptions { libcuda, libcublas, uuid, ..CudaOptions::new(Addresses::next_in_process()) };
    match task {
        Task::Find => {
            let GpuIdentity { uuid, total_bytes } = GpuIdentity::find(&options)?;
            println!("{}", serde_json::to_string(&FoundGpu { uuid, total_bytes })?);
        }
        Task::Measure => {
            let cost = measure(&ContextProbe::create(&options)?, &gpu)?;
            println!("{}", serde_json::to_string(&cost)?);
        }
        Task::Keep => {
            let _probe = ContextProbe::create(&options)?.with_products(&options)?;
            println!("made");
            std::io::stdout().flush()?;
            std::io::stdin().read_to_end(&mut Vec::new())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns by how many bytes the free memory decreases with a context of another process, or `None` if the
/// driver does not tell.
fn measure(probe: &ContextProbe, gpu: &GpuQuestion) -> Result<Option<u64>> {
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let Some(before) = probe.free_bytes()? else { return Ok(None) };
        let after = gpu.beside(|| Ok(probe.free_bytes()?))?;
        costs.push(before.saturating_sub(after.unwrap_or(before)));
    }
    costs.sort_unstable();
    Ok(Some(costs[ROUNDS / 2]))
}

impl GpuQuestion {
    /// Calls `look` while another process has a context.
    fn beside<T>(&self, look: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.args([ANSWER, &serde_json::to_string(&(self, Task::Keep))?]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let seen = if line == "made\n" { look().map(Some) } else { Ok(None) };
        drop(process.stdin.take());
        let status = process.wait()?;
        match seen? {
            Some(seen) => Ok(seen),
            None => bail!("the process that makes a second context ended with {status}"),
        }
    }

    /// Finds the GPU. No context is made.
    pub(crate) fn find(&self) -> Result<FoundGpu> {
        helper::ask(ANSWER, &(self, Task::Find), LIMIT, "asks the GPU's driver for its memory")
    }

    /// Measures what a context costs in bytes, with two contexts at a time. No other process may measure
    /// meanwhile.
    pub(crate) fn measure(&self) -> Result<u64> {
        let cost: Option<u64> =
            helper::ask(ANSWER, &(self, Task::Measure), LIMIT, "measures what a context costs")?;
        let usual = CONTEXT_BYTES >> 20;
        match cost {
            Some(cost) if PLAUSIBLE.contains(&cost) => return Ok(cost),
            Some(cost) => tracing::warn!(
                "a context seems to take {} MiB, because other programs use the GPU: {usual} MiB are charged for each",
                cost >> 20
            ),
            None => tracing::warn!(
                "the driver does not tell how much memory is free: each context is charged {usual} MiB"
            ),
        }
        Ok(CONTEXT_BYTES)
    }
}
