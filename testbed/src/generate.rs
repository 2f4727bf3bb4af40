//! `vgpu-testbed generate`: a model generates text greedily, on the CPU or on a device, and the device's
//! counters give the cost of a token: messages by kind, waits, bytes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::backends::Backend;
use vgpu_testbed::guest::{self, LlamaProcess, LogTo, Settings};
use vgpu_testbed::traffic::{PerToken, Traffic};

use crate::place::{DeviceOptions, Switch, TargetDevice};

/// Number of tokens decoded before the cost of a token is measured: the first loads kernels, the second
/// captures a graph, which the third launches.
const WARM: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    Cpu,
    Gpu,
}

/// Options of `generate`.
#[derive(clap::Args)]
pub struct GenerateArgs {
    /// The model: a GGUF file, or `smollm2` or `gemma3`, which are fetched.
    #[arg(long, default_value = "smollm2")]
    model: String,
    /// The prompt, to which no chat template is applied.
    #[arg(long)]
    prompt: String,
    /// Number of tokens to generate.
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// Where the model's layers are stored.
    #[arg(long, value_enum, default_value_t = On::Gpu)]
    device: On,
    #[command(flatten)]
    options: DeviceOptions,
    /// Run independent streams in an order drawn from this seed.
    #[arg(long)]
    adversarial: Option<u64>,
    /// The build of libggml-cuda.so; by default the first that has code for the compute capability.
    #[arg(long, value_enum)]
    build: Option<Backend>,
    /// Whether to use fused attention; by default llama.cpp decides.
    #[arg(long, value_enum)]
    flash_attention: Option<Switch>,
    /// Number of threads of the CPU backend.
    #[arg(long)]
    threads: Option<u32>,
    /// Continue after a token that ends the text.
    #[arg(long)]
    past_end: bool,
    /// Print the complete log of the libraries.
    #[arg(long)]
    verbose: bool,
    /// Print one JSON object instead of the text as it is generated.
    #[arg(long)]
    json: bool,
}

/// The command's report.
#[derive(Debug, Serialize)]
struct GenerateReport {
    model: PathBuf,
    prompt: String,
    prompt_tokens: usize,
    tokens: Vec<i32>,
    text: String,
    /// Product name of the device with GGML's name in parentheses, or `CPU`.
    device: String,
    /// Number of layers on the GPU.
    offloaded_layers: u32,
    /// Number of all layers as llama.cpp counts them; 0 if it did not report them.
    layers: u32,
    load_s: f64,
    prompt_s: f64,
    /// Rate of decoding, without the prompt.
    tokens_per_second: f64,
    /// Cost of a token once everything was loaded. Null on the CPU, and if too few tokens were generated.
    per_token: Option<PerToken>,
}

impl GenerateArgs {
    fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::new(guest::model(&self.model)?, self.tokens);
        if self.device == On::Gpu || self.build.is_some() {
            settings.backend = Backend::chosen(self.build, &self.options.cc)?;
        }
        settings.flash_attention = self.flash_attention.map(|switch| switch == Switch::On);
        settings.threads = self.threads;
        settings.past_end = self.past_end;
        if self.verbose {
            settings.log = LogTo::Stderr;
        }
        settings.pause_from = (self.device == On::Gpu).then_some(WARM);
        Ok(settings)
    }
}

/// Generates text and prints it or the report.
pub fn run_generate(arguments: &GenerateArgs) -> Result<ExitCode> {
    let settings = arguments.settings()?;
    let jobs = [Job { prompt: arguments.prompt.clone(), forced: None }];
    let report = match arguments.device {
        On::Cpu => {
            let guest = settings.start(guest::Place::Cpu, &jobs)?;
            follow(arguments, &settings, guest, None)?
        }
        On::Gpu => {
            let place = TargetDevice::open(&arguments.options, arguments.adversarial)?;
            let guest = settings.start(guest::Place::Gpu(place.sysfs()), &jobs)?;
            follow(arguments, &settings, guest, Some(&place))?
        }
    };
    if arguments.json {
        println!("{:#}", serde_json::to_value(&report)?);
    } else {
        print_figures(&report);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the guest's events until it ends, prints the text as it is generated, and returns the report.
fn follow(
    arguments: &GenerateArgs,
    settings: &Settings,
    mut guest: LlamaProcess,
    place: Option<&TargetDevice>,
) -> Result<GenerateReport> {
    let mut report = GenerateReport {
        model: settings.model.clone(),
        prompt: arguments.prompt.clone(),
        prompt_tokens: 0,
        tokens: Vec::new(),
        text: String::new(),
        device: "CPU".to_owned(),
        offloaded_layers: 0,
        layers: 0,
        load_s: 0.0,
        prompt_s: 0.0,
        tokens_per_second: 0.0,
        per_token: None,
    };
    let mut before: Option<(usize, Traffic)> = None;
    while let Some(event) = guest.event()? {
        match event {
            Event::Loaded { devices, offloaded, load_s, .. } => {
                if let Some(device) = devices.iter().find(|device| device.gpu) {
                    report.device = format!("{} ({})", device.description, device.name);
                }
                (report.offloaded_layers, report.layers) = offloaded.unwrap_or((0, 0));
                report.load_s = load_s;
            }
            Event::Prompt { tokens, prompt_s, .. } => {
                report.prompt_tokens = tokens.len();
                report.prompt_s = prompt_s;
                if !arguments.json {
                    print!("{}", arguments.prompt);
                }
            }
            Event::Token { piece, .. } if !arguments.json => {
                print!("{piece}");
                std::io::stdout().flush()?;
            }
            Event::Token { .. } => {}
            Event::Paused { decoded, .. } => {
                let place = place.context("paused without a device")?;
                let now = Traffic::read(place.sysfs(), guest.pid())?;
                match &before {
                    Some((earlier, before)) => {
                        report.per_token = Some(now.since(before, (decoded - earlier) as u64));
                    }
                    None => before = Some((decoded, now)),
                }
                guest.resume()?;
            }
            Event::Done { tokens, text, decoded, decode_s, .. } => {
                (report.tokens, report.text) = (tokens, text);
                report.tokens_per_second = guest::rate(decoded, decode_s);
            }
        }
    }
    guest.finish()?;
    Ok(report)
}

fn print_figures(report: &GenerateReport) {
    println!();
    eprintln!(
        "{}: {} of {} layers; loaded in {:.2} s, prompt of {} tokens in {:.2} s, then {:.2} tokens a second",
        report.device,
        report.offloaded_layers,
        report.layers,
        report.load_s,
        report.prompt_tokens,
        report.prompt_s,
        report.tokens_per_second
    );
    if let Some(per) = &report.per_token {
        let kinds: Vec<String> = per.messages.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        eprintln!(
            "a token, over {} of them: {}; {} joins, {} waits, {} bytes to the device, {} back",
            per.tokens,
            kinds.join(", "),
            per.joins,
            per.waits,
            per.bytes_h2d,
            per.bytes_d2h
        );
    }
}
