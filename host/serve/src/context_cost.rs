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

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Measured {
    /// Cost of a context in bytes, or `None` if the driver does not tell its free memory.
    bytes: Option<u64>,
    /// Why the contexts had no handle of cuBLAS, unless they had one, or the host has no cuBLAS.
    lacks: Option<String>,
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
            let measured = measure(&ContextProbe::create(&options)?, &gpu)?;
            println!("{}", serde_json::to_string(&measured)?);
        }
        Task::Keep => {
            let mut probe = ContextProbe::create(&options)?;
            let lacks = probe.add_products(&options).err().map(|error| error.to_string());
            println!("{}", serde_json::to_string(&lacks)?);
            std::io::stdout().flush()?;
            std::io::stdin().read_to_end(&mut Vec::new())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures by how many bytes the free memory decreases with a context of another process.
fn measure(probe: &ContextProbe, gpu: &GpuQuestion) -> Result<Measured> {
    let (mut costs, mut lacks) = (Vec::new(), None);
    for _ in 0..ROUNDS {
        let Some(before) = probe.free_bytes()? else { return Ok(Measured::default()) };
        let (after, lacking) = gpu.beside(|| Ok(probe.free_bytes()?))?;
        costs.push(before.saturating_sub(after.unwrap_or(before)));
        lacks = lacks.or(lacking);
    }
    costs.sort_unstable();
    Ok(Measured { bytes: Some(costs[ROUNDS / 2]), lacks })
}

impl Measured {
    /// Returns what each context is charged, and why that is not what was measured. A session that multiplies
    /// has a handle of cuBLAS, so a context without one is charged as much as one that was not measured.
    fn charge(&self) -> (u64, Option<String>) {
        let usual = CONTEXT_BYTES >> 20;
        match (self.bytes, &self.lacks) {
            (Some(bytes), None) if PLAUSIBLE.contains(&bytes) => (bytes, None),
            (Some(bytes), Some(why)) if PLAUSIBLE.contains(&bytes) => {
                let charged = bytes.max(CONTEXT_BYTES);
                let why = format!(
                    "a context could be measured only without a handle of cuBLAS, because {why}: {} MiB are charged for each",
                    charged >> 20
                );
                (charged, Some(why))
            }
            (Some(bytes), _) => (
                CONTEXT_BYTES,
                Some(format!(
                    "a context seems to take {} MiB, because other programs use the GPU: {usual} MiB are charged for each",
                    bytes >> 20
                )),
            ),
            (None, _) => (
                CONTEXT_BYTES,
                Some(format!(
                    "the driver does not tell how much memory is free: each context is charged {usual} MiB"
                )),
            ),
        }
    }
}

impl GpuQuestion {
    /// Calls `look` while another process has a context. Returns also why that one has no handle of cuBLAS.
    fn beside<T>(&self, look: impl FnOnce() -> Result<T>) -> Result<(T, Option<String>)> {
        let mut command = std::process::Command::new("/proc/self/exe");
        command.args([ANSWER, &serde_json::to_string(&(self, Task::Keep))?]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let made = serde_json::from_str(&line).ok();
        let seen = made.map(|lacks| look().map(|seen| (seen, lacks)));
        drop(process.stdin.take());
        let status = process.wait()?;
        match seen {
            Some(seen) => seen,
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
        let measured: Measured =
            helper::ask(ANSWER, &(self, Task::Measure), LIMIT, "measures what a context costs")?;
        let (bytes, doubt) = measured.charge();
        if let Some(doubt) = doubt {
            tracing::warn!("{doubt}");
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_context_that_was_measured_without_its_handle_is_charged_no_less_than_the_usual() {
        let charge = |bytes: Option<u64>, lacks: Option<&str>| {
            Measured { bytes, lacks: lacks.map(str::to_owned) }.charge()
        };
        assert_eq!(charge(Some(300 * MIB), None), (300 * MIB, None));
        let no_room = Some("cublasCreate_v2 returned CUBLAS_STATUS_ALLOC_FAILED (3)");
        for (measured, charged) in [(300 * MIB, CONTEXT_BYTES), (700 * MIB, 700 * MIB), (0, CONTEXT_BYTES)] {
            let (bytes, doubt) = charge(Some(measured), no_room);
            let doubt = doubt.expect("a sentence");
            assert_eq!(bytes, charged, "{doubt}");
            assert_eq!(doubt.contains("ALLOC_FAILED"), measured > 0, "{doubt}");
            assert!(doubt.ends_with(&format!("{} MiB are charged for each", charged / MIB)), "{doubt}");
        }
        for (measured, word) in [(Some(3 << 30), "other programs"), (None, "does not tell")] {
            let (bytes, doubt) = charge(measured, None);
            assert!(bytes == CONTEXT_BYTES && doubt.expect("a sentence").contains(word));
        }
    }
}
