//! `vgpu-testbed bench kernels`: shows where a decoded token spends its time on a soft device: in each
//! kernel, outside of kernels, and in which launches of the interpreter. The device counts; the guest pauses
//! after each token so that a count belongs to one token.

mod chart;
mod name;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use vgpu_device::{BusProfile, Profile};
use vgpu_llama::event::{Event, Job};
use vgpu_serve::Engine;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::Bed;
use vgpu_testbed::guest::{Place, Settings, model};
use vgpu_testbed::traffic::Traffic;

use super::measure::{WARM, facts};
use crate::place::engine_options;
use report::{Figures, KernelReport, Sample};

/// Prompt after which tokens are decoded.
const PROMPT: &str = "The capital of France is";
/// Model that is measured by default.
const MODEL: &str = "smollm2";
/// Number of tokens that are measured by default.
const TOKENS: usize = 16;
/// Default compute capability: the oldest on which GGML captures graphs.
const CC: &str = "7.0";

/// Options of `bench kernels`.
#[derive(clap::Args)]
pub struct KernelsArgs {
    /// The model: a GGUF file, or `smollm2` or `gemma3`, which are fetched.
    #[arg(long, default_value = MODEL)]
    model: String,
    /// Number of measured tokens, after those that load kernels and capture a graph.
    #[arg(long, default_value_t = TOKENS, value_parser = at_least_one)]
    tokens: usize,
    /// Compute capability of the soft device.
    #[arg(long, default_value = CC)]
    cc: String,
    /// The build of libggml-cuda.so; by default the first that has code for the compute capability.
    #[arg(long, value_enum)]
    build: Option<Backend>,
    /// Engine that runs kernels; by default `jit` if the processor has AVX2, else `interpreter`.
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Number of threads that run a kernel; by default one per CPU.
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
    /// Write a chart of the figures to this SVG file.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Print the figures as JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Parses a number of tokens, which must be at least one.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least one token must be measured".to_owned()),
        Ok(tokens) => Ok(tokens),
        Err(error) => Err(error.to_string()),
    }
}

impl KernelsArgs {
    /// Returns the options that measure a model with all other values at their defaults.
    pub fn new(model: &str, engine: Option<Engine>, chart: Option<PathBuf>) -> Self {
        Self {
            model: model.to_owned(),
            tokens: TOKENS,
            cc: CC.to_owned(),
            build: None,
            engine,
            threads: None,
            chart,
            json: true,
        }
    }
}

/// Returns what the device has counted for the process `pid`, once it has executed everything that the
/// process sent.
fn profile(bed: &Bed, pid: u32) -> Result<Profile> {
    Traffic::read(bed.sysfs(), pid)?;
    let all: BusProfile =
        serde_json::from_value(bed.control("profile")?).context("understand the device's profile")?;
    let mut sessions = all.sessions.into_iter();
    let session = sessions.find(|session| session.process == pid);
    Ok(session.with_context(|| format!("the device has counted nothing for the process {pid}"))?.profile)
}

/// Returns the name of the host's processor.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    line.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Decodes tokens, returns their figures, and writes the chart if one is requested.
pub fn figures(arguments: &KernelsArgs) -> Result<Figures> {
    let threads = arguments.threads.map(|threads| threads.to_string());
    let mut options = engine_options(arguments.engine);
    options.extend(threads.iter().flat_map(|threads| ["--threads", threads]));
    let bed = Bed::start_with("soft", &[facts(&arguments.cc)], &options)?;
    // One token is decoded before the first sample, and the last one is not decoded.
    let mut settings = Settings::new(model(&arguments.model)?, WARM + arguments.tokens + 1);
    settings.backend = Backend::chosen(arguments.build, &arguments.cc)?;
    settings.pause_from = Some(WARM);
    settings.past_end = true;
    let job = Job { prompt: PROMPT.to_owned(), forced: None };
    let mut guest = settings.start(Place::Gpu(bed.sysfs()), &[job])?;
    let mut samples = Vec::new();
    while let Some(event) = guest.event()? {
        if let Event::Paused { decode_s, .. } = event {
            samples.push(Sample { decode_s, profile: profile(&bed, guest.pid())? });
            guest.resume()?;
        }
    }
    guest.finish()?;
    if samples.len() < 2 {
        bail!("too few tokens to measure");
    }
    let figures = Figures {
        cc: arguments.cc.clone(),
        build: settings.backend.name(),
        engine: arguments.engine.map(Engine::name),
        processor: processor(),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
        report: KernelReport::from_samples(&samples),
        model: settings.model,
    };
    if let Some(path) = &arguments.chart {
        std::fs::write(path, chart::draw(&figures)?).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(figures)
}

/// Measures the kernels of a token and prints the figures.
pub fn run_kernels(arguments: &KernelsArgs) -> Result<ExitCode> {
    let figures = figures(arguments)?;
    if arguments.json {
        println!("{:#}", serde_json::to_value(&figures)?);
    } else {
        print(&figures);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the figures as text.
fn print(figures: &Figures) {
    let report = &figures.report;
    println!(
        "{:>9} {:>6} {:>8} {:>10} {:>8} {:>11} {:>9}  kernel, blocks of threads",
        "ms", "share", "launches", "ns/launch", "blocks", "interpreted", "handed"
    );
    for kernel in &report.kernels {
        println!(
            "{:>9.3} {:>5.1}% {:>8.0} {:>10.0} {:>8.0} {:>11.0} {:>9.0}  {}, {} of {}",
            kernel.ms,
            100.0 * kernel.share,
            kernel.launches,
            kernel.ns_per_launch,
            kernel.blocks,
            kernel.interpreted,
            kernel.handed_steps,
            kernel.name,
            kernel.most_blocks,
            kernel.threads
        );
    }
    for (kind, task) in &report.outside.tasks {
        println!("{:>9.3} {:>6} {:>8.0}  {kind}", task.ms, "", task.count);
    }
    println!("{:>9.3} carrying out messages, besides the above", report.outside.dispatch_ms);
    println!("{:>9.3} the guest's own, and the way to the device", report.outside.client_ms);
    println!(
        "{:>9.3} a token, the median of {}; {:.3} in kernels; {:.0} of {:.0} launches fell back, {:.0} steps were handed to the interpreter",
        report.token_ms,
        report.tokens,
        report.kernels_ms,
        report.fallbacks.interpreted,
        report.fallbacks.launches,
        report.fallbacks.handed_steps
    );
}
