//! One discovery: the processes that Ollama starts for one backend, and their time limits.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::check::child::{self, ChildOutcome};
use crate::check::context::CheckContext;
use crate::check::limits::{self, Limit, ProcessLimits};
use crate::device::survey::size;
use crate::diagnosis::Finding;
use crate::diagnosis::cause::discovery as cause;
use crate::env::Environment;
use crate::ollama::Ollama;
use crate::ollama::era::Era;
use crate::ollama::variant::Variant;

/// Time limit that Ollama sets for all processes of one backend directory.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Variable that Ollama sets for its second pass, over each device alone.
pub const VALIDATE: &str = "GGML_CUDA_INIT";

/// One discovery with one backend.
pub struct DiscoveryRun<'a> {
    /// State of the walk.
    pub context: &'a CheckContext,
    /// Path of Ollama's program.
    pub program: &'a Path,
    /// Ollama that is examined.
    pub ollama: &'a Ollama,
    /// Backend that this run is limited to.
    pub variant: &'a Variant,
    /// CUDA major version of the backend, if it is known.
    pub major: Option<u32>,
    /// Environment of Ollama's processes.
    pub environment: Environment,
    /// Time at which all processes of the run must have ended.
    pub until: Instant,
    /// Lowest limits that were seen among the run's processes.
    pub limits: Mutex<ProcessLimits>,
}

impl DiscoveryRun<'_> {
    /// Returns the time for a process: `limit`, or the remaining time of the run if that is less.
    pub fn left(&self, limit: Duration) -> Duration {
        limit.min(self.until.saturating_duration_since(Instant::now()))
    }

    /// Returns a finding for limits that discovery survives but a model load does not: address space for the
    /// devices' addresses, and data and stack of llama-server.
    pub fn short(&self) -> Option<Finding> {
        let limits = *self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = limits::needed(&self.context.opened);
        let (limit, found) = if limits.address_space < needed {
            let found = format!(
                "Ollama's process is limited to {} of address space, and reserves {} for the device",
                size(limits.address_space),
                size(needed)
            );
            (Limit::AddressSpace, found)
        } else if self.ollama.era != Era::C {
            return None;
        } else if limits.data < limits::DATA {
            let data = size(limits.data);
            (
                Limit::Data,
                format!("llama-server is limited to {data} of data, and ends when it loads a model"),
            )
        } else if limits.stack < limits::STACK {
            let stack = size(limits.stack);
            (Limit::Stack, format!("llama-server has {stack} of stack, and ends when it loads a model"))
        } else {
            return None;
        };
        Some(limit.finding(cause::RESOURCE_LIMIT, found))
    }

    /// Starts a process of Ollama's and ends it once `ready` returns true.
    pub async fn start(
        &self,
        program: &Path,
        words: &[&str],
        environment: &Environment,
        limit: Duration,
        ready: &mut (dyn FnMut(&str, Option<u32>) -> bool + Send),
    ) -> Result<ChildOutcome, String> {
        let mut command = self.context.program(program);
        command.args(words);
        let failed = |error| format!("{}: {error}", program.display());
        let ready = &mut |stderr: &str, pid: Option<u32>| {
            if let Some(limits) = pid.and_then(ProcessLimits::of_process) {
                let mut lowest = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
                *lowest = lowest.min(limits);
            }
            ready(stderr, pid)
        };
        child::run_until(command, environment, self.left(limit), ready).await.map_err(failed)
    }
}
