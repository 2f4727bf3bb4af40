//! `vgpu-llama`: loads stock llama.cpp libraries and a model, and decodes prompts, greedily or along given
//! tokens. Prints a JSON object a line ([`vgpu_llama::event`]); the libraries' log goes to stderr.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};
use vgpu_llama::event::{Event, Job};
use vgpu_llama::ffi::{ContextOptions, Encoding, FlashAttention, Llama};
use vgpu_llama::log::Level;
use vgpu_llama::run::{self, Options};

/// Granularity of context sizes in tokens, to which llama.cpp pads keys and values.
const CONTEXT_STEP: usize = 256;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    On,
    Off,
    Auto,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

/// Runs a language model through the C API of stock llama.cpp libraries.
#[derive(Parser)]
#[command(version)]
struct LlamaCli {
    /// Directory of libllama, libggml, libggml-base and the CPU backends.
    #[arg(long)]
    libraries: PathBuf,
    /// A GPU backend to load, such as libggml-cuda.so. All layers go to its device.
    #[arg(long)]
    gpu_backend: Option<PathBuf>,
    /// The model, a GGUF file. If given several times, each model has a context of its own in this process,
    /// and each prompt is decoded with one model after the other.
    #[arg(long, required = true)]
    model: Vec<PathBuf>,
    /// Only write the model with its weights in this type to the file of --to.
    #[arg(long, value_enum, requires = "to")]
    encode: Option<Encoding>,
    /// Output file of --encode.
    #[arg(long, requires = "encode")]
    to: Option<PathBuf>,
    /// A prompt. Can be given several times.
    #[arg(long, required_unless_present_any = ["jobs", "encode"])]
    prompt: Vec<String>,
    /// A JSON file of prompts, `[{"prompt": "...", "forced": [1, 2]}]`, where `forced` contains tokens to
    /// decode instead of the model's choice.
    #[arg(long, conflicts_with = "prompt")]
    jobs: Option<PathBuf>,
    /// Treat prompts as questions and apply the model's chat template.
    #[arg(long)]
    chat: bool,
    /// Number of tokens after each prompt.
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// Continue after a token that ends the text.
    #[arg(long)]
    past_end: bool,
    /// Number of tokens that the context holds; by default what the longest job needs.
    #[arg(long)]
    context: Option<u32>,
    /// Whether attention is one fused operation.
    #[arg(long, value_enum, default_value_t = Switch::Auto)]
    flash_attention: Switch,
    /// Number of threads of the CPU backend; by default one per CPU, or one if a GPU does the work.
    #[arg(long)]
    threads: Option<u32>,
    /// Keep keys and values in host memory.
    #[arg(long)]
    no_kv_offload: bool,
    /// File for the raw logits of every position.
    #[arg(long)]
    logits: Option<PathBuf>,
    /// Wait for a line on stdin once this many tokens are decoded after a prompt, and after each further
    /// token.
    #[arg(long)]
    pause_from: Option<usize>,
    /// Lowest level of the libraries' log messages that go to stderr.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    log: LogLevel,
}

impl LlamaCli {
    fn jobs(&self) -> Result<Vec<Job>> {
        let Some(path) = &self.jobs else {
            return Ok(self
                .prompt
                .iter()
                .map(|prompt| Job { prompt: prompt.clone(), forced: None })
                .collect());
        };
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("understand {}", path.display()))
    }

    fn options(&self) -> Options {
        Options {
            tokens: self.tokens,
            past_end: self.past_end,
            chat: self.chat,
            pause_from: self.pause_from,
            logits: self.logits.clone(),
        }
    }

    fn threads(&self) -> u32 {
        let all = || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        // GGML's threads spin while they wait, which would slow the work beside a GPU.
        self.threads.unwrap_or_else(|| if self.gpu_backend.is_some() { 1 } else { all() })
    }
}

/// Returns the absolute form of a path: the libraries' RUNPATH has an empty entry, which depends on the
/// working directory.
fn absolute(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| format!("find {}", path.display()))
}

fn work(arguments: &LlamaCli) -> Result<()> {
    let jobs = arguments.jobs()?;
    let begin = Instant::now();
    let libraries = absolute(&arguments.libraries)?;
    let level = match arguments.log {
        LogLevel::Debug => Level::Debug,
        LogLevel::Info => Level::Info,
        LogLevel::Warn => Level::Warn,
        LogLevel::Error => Level::Error,
    };
    let llama = Llama::load(&libraries, level)?;
    llama.load_best_cpu(&libraries)?;
    if let (Some(encoding), Some(to)) = (arguments.encode, &arguments.to) {
        let [model] = &arguments.model[..] else { bail!("write one model anew, not several") };
        llama.encode(&absolute(model)?, to, encoding)?;
        return Ok(());
    }
    if let Some(backend) = &arguments.gpu_backend {
        llama.load_backend(&absolute(backend)?)?;
    }
    let devices = llama.devices();
    let on_gpu = arguments.gpu_backend.is_some();
    if on_gpu && !devices.iter().any(|device| device.gpu) {
        bail!("the GPU backend found no device");
    }
    let (mut models, mut offloaded) = (Vec::new(), Vec::new());
    for path in &arguments.model {
        models.push(llama.model(&absolute(path)?, on_gpu)?);
        offloaded.push(llama.offloaded().filter(|_| on_gpu));
    }
    let mut longest = 0;
    for (model, job) in models.iter().flat_map(|model| jobs.iter().map(move |job| (model, job))) {
        let prompt = run::tokens_of(model, job, arguments.chat)?.len();
        longest = longest.max(prompt + job.forced.as_ref().map_or(arguments.tokens, Vec::len));
    }
    let tokens = match arguments.context {
        Some(tokens) => tokens,
        None => u32::try_from(longest.next_multiple_of(CONTEXT_STEP)).context("size the context")?,
    };
    let flash_attention = match arguments.flash_attention {
        Switch::On => FlashAttention::On,
        Switch::Off => FlashAttention::Off,
        Switch::Auto => FlashAttention::Auto,
    };
    let options = ContextOptions {
        tokens,
        flash_attention,
        threads: arguments.threads(),
        kv_on_gpu: !arguments.no_kv_offload,
    };
    let mut contexts = Vec::new();
    for model in &models {
        contexts.push((model, llama.context(model, &options)?));
    }
    for (model, offloaded) in models.iter().zip(offloaded) {
        run::print_event(&Event::Loaded {
            version: llama.version(),
            devices: devices.clone(),
            offloaded,
            vocab: model.vocab(),
            load_s: begin.elapsed().as_secs_f64(),
        })?;
    }
    run::jobs(&mut contexts, &jobs, &arguments.options())?;
    Ok(())
}

fn main() -> ExitCode {
    match work(&LlamaCli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vgpu-llama: failed to {error:#}");
            ExitCode::FAILURE
        }
    }
}
