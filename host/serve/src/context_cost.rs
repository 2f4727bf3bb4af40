//! What a context costs of a GPU's memory, measured in processes of their own: the driver may crash or hang in
//! them, and a device's process makes no context.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use vgpu_device::Addresses;
use vgpu_executor_cuda::{ContextProbe, CudaOptions};

use crate::helper;

/// Hidden command in which this program makes contexts.
pub const ANSWER: &str = "__context";

/// Time that the measurement may take. A driver that is loaded for the first time after a start of the host
/// initializes each GPU.
const LIMIT: Duration = Duration::from_mins(1);

/// Number of contexts that are measured. The median is taken, because programs may allocate meanwhile.
const ROUNDS: usize = 3;

/// Options of the hidden command [`ANSWER`].
#[derive(Debug, clap::Args)]
pub struct Question {
    question: String,
}

/// The driver and GPU to measure.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CostQuestion {
    pub(crate) libcuda: Option<PathBuf>,
    pub(crate) uuid: Option<[u8; 16]>,
    /// Whether the process only makes a context, and keeps it until its standard input is closed.
    pub(crate) keep: bool,
}

/// A GPU, and what a context costs of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MeasuredGpu {
    pub(crate) uuid: [u8; 16],
    /// Size of its memory in bytes.
    pub(crate) total_bytes: u64,
    /// Cost of a context in bytes.
    pub(crate) context_bytes: u64,
    /// Whether the cost was measured. Otherwise it is what contexts usually cost.
    pub(crate) measured: bool,
}

/// Answers a question, in the process that was started for it.
pub fn answer(question: &Question) -> Result<ExitCode> {
    let question: CostQuestion = serde_json::from_str(&question.question)?;
    let (libcuda, uuid) = (question.libcuda.clone(), question.uuid);
    let options = CudaOptions { libcuda, uuid, ..CudaOptions::new(Addresses::next_in_process()) };
    let probe = ContextProbe::create(&options)?;
    if question.keep {
        println!("made");
        std::io::stdout().flush()?;
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (uuid, total_bytes) = (probe.uuid()?, probe.total_bytes()?);
    let cost = measure(&probe, &CostQuestion { keep: true, ..question })?;
    let context_bytes = cost.unwrap_or(options.context_bytes);
    let gpu = MeasuredGpu { uuid, total_bytes, context_bytes, measured: cost.is_some() };
    println!("{}", serde_json::to_string(&gpu)?);
    Ok(ExitCode::SUCCESS)
}

/// Returns by how many bytes the free memory decreases with a context of another process, or `None` if the driver
/// does not tell.
fn measure(probe: &ContextProbe, other: &CostQuestion) -> Result<Option<u64>> {
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let Some(before) = probe.free_bytes()? else { return Ok(None) };
        let after = other.beside(|| Ok(probe.free_bytes()?))?;
        costs.push(before.saturating_sub(after.unwrap_or(before)));
    }
    costs.sort_unstable();
    Ok(Some(costs[ROUNDS / 2]))
}

impl CostQuestion {
    /// Calls `look` while another process has a context.
    fn beside<T>(&self, look: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.args([ANSWER, &serde_json::to_string(self)?]);
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

    /// Measures the GPU.
    pub(crate) fn ask(&self) -> Result<MeasuredGpu> {
        helper::ask(ANSWER, self, LIMIT, "measures what a context costs")
    }
}
