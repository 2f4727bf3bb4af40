//! Options and results of the demonstration.

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
    /// Maximum number of tokens of the answer.
    #[arg(long, default_value_t = 48)]
    pub tokens: usize,
    #[command(flatten)]
    pub options: DeviceOptions,
    /// Use `vgpu-llama` even if Ollama is installed.
    #[arg(long)]
    pub no_ollama: bool,
    /// The Ollama program to use, instead of the one on `PATH`.
    #[arg(long, conflicts_with = "no_ollama")]
    pub ollama: Option<PathBuf>,
}

/// Outcome of an answered question, with its evidence.
#[derive(Debug)]
pub struct Shown {
    /// Facts about the process that did the work.
    pub evidence: Evidence,
    /// Number of layers on the device and of all layers, if the server reported them.
    pub offloaded: Option<(u32, u32)>,
    /// Cost of a token, if it was measured.
    pub per_token: Option<PerToken>,
}

/// Prints the heading of a step.
pub fn step(text: &str) {
    println!("\n== {text}");
}
