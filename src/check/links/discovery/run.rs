//! One discovery: the processes that Ollama starts for one backend, and how long they may take.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::check::child::{self, Outcome};
use crate::check::context::Context;
use crate::check::limits::{self, Limit};
use crate::device::survey::size;
use crate::diagnosis::Finding;
use crate::diagnosis::cause::discovery as cause;
use crate::env::Environment;
use crate::ollama::Ollama;
use crate::ollama::era::Era;
use crate::ollama::variant::Variant;

/// What Ollama grants all processes of one folder, and its own probe.
pub const LIMIT: Duration = Duration::from_secs(30);
/// What Ollama sets for its second look, at one device alone.
pub const VALIDATE: &str = "GGML_CUDA_INIT";

/// One discovery, with one backend.
pub struct Run<'a> {
    /// What the walk has found so far.
    pub context: &'a Context,
    /// Path of Ollama's program.
    pub program: &'a Path,
    /// What Ollama it is.
    pub ollama: &'a Ollama,
    /// The backend that this run is limited to.
    pub variant: &'a Variant,
    /// The CUDA major of the backend.
    pub major: Option<u32>,
    /// What Ollama's processes get.
    pub environment: Environment,
    /// When all its processes must be over.
    pub until: Instant,
    /// The least address space in bytes that one of its processes was seen to be limited to.
    pub address_space: AtomicU64,
    /// The same of its stack.
    pub stack: AtomicU64,
}

impl Run<'_> {
    /// How much time there is for something that may take `limit`.
    pub fn left(&self, limit: Duration) -> Duration {
        limit.min(self.until.saturating_duration_since(Instant::now()))
    }

    /// What is said where its processes are limited to less address space than the devices have addresses.
    /// They reserve these when they first use the device, with a model, and only list it here.
    pub fn short_of_addresses(&self) -> Option<Finding> {
        let (space, needed) =
            (self.address_space.load(Ordering::Relaxed), limits::needed(&self.context.looks));
        let found = || {
            format!(
                "Ollama's process is limited to {} of address space, and the device has {} of addresses",
                size(space),
                size(needed)
            )
        };
        (space < needed).then(|| Limit::AddressSpace.finding(cause::RESOURCE_LIMIT, found()))
    }

    /// The same where llama-server has less stack than it takes to load a model.
    pub fn short_of_stack(&self) -> Option<Finding> {
        let stack = self.stack.load(Ordering::Relaxed);
        let found =
            || format!("llama-server has {} KiB of stack, and ends when it loads a model", stack >> 10);
        let short = self.ollama.era == Era::C && stack < limits::STACK;
        short.then(|| Limit::Stack.finding(cause::RESOURCE_LIMIT, found()))
    }

    /// Starts a process of Ollama's, and ends it once it is `ready`.
    pub async fn start(
        &self,
        program: &Path,
        words: &[&str],
        environment: &Environment,
        limit: Duration,
        ready: &mut (dyn FnMut(&str, Option<u32>) -> bool + Send),
    ) -> Result<Outcome, String> {
        let mut command = self.context.program(program);
        command.args(words);
        let failed = |error| format!("{}: {error}", program.display());
        let ready = &mut |stderr: &str, pid: Option<u32>| {
            if let Some([address_space, stack]) = pid.and_then(limits::of) {
                self.address_space.fetch_min(address_space, Ordering::Relaxed);
                self.stack.fetch_min(stack, Ordering::Relaxed);
            }
            ready(stderr, pid)
        };
        child::run_until(command, environment, self.left(limit), ready).await.map_err(failed)
    }
}
