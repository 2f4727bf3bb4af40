//! What the demonstration is asked for, and what it shows.

use std::path::PathBuf;

use vgpu_testbed::traffic::PerToken;

use super::evidence::Evidence;
use crate::place::DeviceOptions;

/// Options of `demo`.
#[derive(clap::Args)]
pub struct DemoArgs {
    /// The question that the model is asked.
    #[arg(default_value = "What is the capital of France?")]
    pub question: String,
    /// The model: a GGUF file, or `smollm2` or `gemma3`, which are fetched.
    #[arg(long, default_value = "smollm2")]
    pub model: String,
    /// Tokens of the answer at most.
    #[arg(long, default_value_t = 48)]
    pub tokens: usize,
    #[command(flatten)]
    pub options: DeviceOptions,
    /// Use `vgpu-llama` though there is an Ollama.
    #[arg(long)]
    pub no_ollama: bool,
    /// The Ollama to use, instead of the one on `PATH`.
    #[arg(long, conflicts_with = "no_ollama")]
    pub ollama: Option<PathBuf>,
}

/// Result of a question to a server.
#[derive(Debug)]
pub struct Shown {
    /// About the process that did the work.
    pub evidence: Evidence,
    /// Layers on the device, and layers that there are, where that was said.
    pub offloaded: Option<(u32, u32)>,
    /// What a token cost, where it was measured.
    pub per_token: Option<PerToken>,
}

/// Prints the heading of a step.
pub fn step(text: &str) {
    println!("\n== {text}");
}
