//! `vgpu-testbed agree`: how far a device's distributions of the next token are from the CPU backend's. The
//! CPU chooses tokens greedily; the device is led along the same tokens, so that every position is compared
//! behind the same text.

mod compare;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Serialize;
use tempfile::TempDir;
use vgpu_llama::event::{Event, Job};
use vgpu_llama::ffi::Encoding;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::guest::{self, LogTo, Settings};

use crate::place::{DeviceOptions, Switch, TargetDevice};
use compare::{Compared, Position};

/// Options of `agree`.
#[derive(clap::Args)]
pub struct AgreeArgs {
    /// The model: a GGUF file, or `smollm2` or `gemma3`, which are fetched.
    #[arg(long, default_value = "smollm2")]
    model: String,
    /// Files with one prompt per line, without empty lines and those that start with `//`; or directories,
    /// where the first line of each file is a prompt.
    #[arg(long, num_args = 1.., default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/prompts.txt"))]
    prompts: Vec<PathBuf>,
    /// Number of tokens after each prompt.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    #[command(flatten)]
    options: DeviceOptions,
    /// The build of libggml-cuda.so; by default the first that has code for the compute capability.
    #[arg(long, value_enum)]
    build: Option<Backend>,
    /// Convert the model's weights to this type and have both sides run the result.
    #[arg(long, value_enum)]
    weights: Option<Encoding>,
    /// Also run the model on the CPU with weights converted to 32-bit floats, where nothing is rounded to 8
    /// bits, and report the distance of each side from it.
    #[arg(long)]
    exact: bool,
    /// Run independent streams in an order drawn from this seed.
    #[arg(long)]
    adversarial: Option<u64>,
    /// Whether both sides use fused attention; by default llama.cpp decides.
    #[arg(long, value_enum)]
    flash_attention: Option<Switch>,
    /// Number of threads of the CPU backend.
    #[arg(long)]
    threads: Option<u32>,
    /// Print the complete log of the libraries.
    #[arg(long)]
    verbose: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Comparison of one prompt.
#[derive(Debug, Serialize)]
struct OnePrompt {
    prompt: String,
    /// Text that the CPU generated for the prompt.
    text: String,
    #[serde(flatten)]
    compared: Compared,
}

/// Result of `agree`, printed as JSON or text.
#[derive(Debug, Serialize)]
struct AgreeReport {
    model: PathBuf,
    /// Type to which the weights were converted.
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<String>,
    device: String,
    cc: String,
    #[serde(flatten)]
    all: Compared,
    /// Number of prompts whose most likely tokens agree in every position. While they agree, the device on
    /// its own makes the same choices from the same state, so this many runs generate exactly the CPU's text.
    equal_runs: usize,
    /// Distance of both sides from the model without any rounding, if `--exact` asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    exact: Option<FromExact>,
    prompts: Vec<OnePrompt>,
}

/// Distances of both sides from the CPU's result without rounding to 8 bits.
#[derive(Debug, Serialize)]
struct FromExact {
    cpu: Compared,
    device: Compared,
}

/// Output of one side for a job: the most likely tokens, the decoded tokens and the text.
struct JobOutput {
    tops: Vec<i32>,
    tokens: Vec<i32>,
    text: String,
}

fn line_is_prompt(line: &&str) -> bool {
    !line.trim().is_empty() && !line.starts_with("//")
}

/// Returns the prompts of a file, or of a directory's files.
fn prompts(path: &Path) -> Result<Vec<String>> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    if !path.is_dir() {
        return Ok(read(path)?.lines().filter(line_is_prompt).map(str::to_owned).collect());
    }
    let entries = fs::read_dir(path).with_context(|| format!("list {}", path.display()))?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut found = Vec::new();
    for file in files {
        found.extend(read(&file)?.lines().find(line_is_prompt).map(str::to_owned));
    }
    Ok(found)
}

/// Runs all jobs in one process. Returns their outputs and the name of the GPU, or `CPU` without one.
fn run_jobs(settings: &Settings, place: guest::Place<'_>, jobs: &[Job]) -> Result<(Vec<JobOutput>, String)> {
    let mut guest = settings.start(place, jobs)?;
    let (mut runs, mut tops, mut name) = (Vec::new(), Vec::new(), "CPU".to_owned());
    while let Some(event) = guest.event()? {
        match event {
            Event::Loaded { devices, .. } => {
                if let Some(device) = devices.iter().find(|device| device.gpu) {
                    name = format!("{} ({})", device.description, device.name);
                }
            }
            Event::Token { top, .. } => tops.push(top),
            Event::Done { tokens, text, .. } => {
                runs.push(JobOutput { tops: std::mem::take(&mut tops), tokens, text });
            }
            Event::Prompt { .. } | Event::Paused { .. } => {}
        }
    }
    guest.finish()?;
    if runs.len() != jobs.len() {
        bail!("vgpu-llama ended after {} of {} prompts", runs.len(), jobs.len());
    }
    Ok((runs, name))
}

/// Compares two sides position by position and returns a list for each prompt. The measured side's logits are
/// read from the second file.
fn positions(
    reference: &[JobOutput],
    measured: &[JobOutput],
    mut files: compare::Files,
) -> Result<Vec<Vec<Position>>> {
    reference
        .iter()
        .zip(measured)
        .map(|(one, other)| {
            if one.tops.len() != other.tops.len() {
                bail!("one side has {} positions, the other {}", one.tops.len(), other.tops.len());
            }
            one.tops
                .iter()
                .zip(&other.tops)
                .map(|(left, right)| Ok(Position { same_top: left == right, divergence: files.next()? }))
                .collect()
        })
        .collect()
}

fn compare_all(arguments: &AgreeArgs) -> Result<AgreeReport> {
    let mut jobs = Vec::new();
    for path in &arguments.prompts {
        jobs.extend(prompts(path)?.into_iter().map(|prompt| Job { prompt, forced: None }));
    }
    if jobs.is_empty() {
        bail!("there are no prompts in {:?}", arguments.prompts);
    }
    let folder = TempDir::with_prefix("vgpu-agree-").context("make a folder for logits")?;
    let model = guest::model(&arguments.model)?;
    let mut settings = Settings::new(model.clone(), arguments.tokens);
    settings.flash_attention = arguments.flash_attention.map(|switch| switch == Switch::On);
    settings.threads = arguments.threads;
    settings.backend = Backend::chosen(arguments.build, &arguments.options.cc)?;
    if arguments.verbose {
        settings.log = LogTo::Stderr;
    }
    let encode = |encoding| guest::encode(settings.backend, &model, encoding, folder.path());
    let exact_model = if arguments.exact { Some(encode(Encoding::F32)?) } else { None };
    if let Some(encoding) = arguments.weights {
        settings.model = encode(encoding)?;
    }
    let [reference, measured, exact] = ["cpu", "gpu", "exact"].map(|name| folder.path().join(name));

    settings.logits = Some(reference.clone());
    let (cpu, _) = run_jobs(&settings, guest::Place::Cpu, &jobs)?;
    for (job, run) in jobs.iter_mut().zip(&cpu) {
        job.forced = Some(run.tokens.clone());
    }
    settings.logits = Some(measured.clone());
    let place = TargetDevice::open(&arguments.options, arguments.adversarial)?;
    let (gpu, device) = run_jobs(&settings, guest::Place::Gpu(place.sysfs()), &jobs)?;

    let from_exact = match exact_model {
        Some(model) => {
            let settings = Settings { model, logits: Some(exact.clone()), ..settings.clone() };
            let (runs, _) = run_jobs(&settings, guest::Place::Cpu, &jobs)?;
            let distance = |side: &[JobOutput], path: &Path| -> Result<Compared> {
                let each = positions(&runs, side, compare::Files::open(&exact, path)?)?;
                Ok(Compared::from_positions(&each.concat()))
            };
            Some(FromExact { cpu: distance(&cpu, &reference)?, device: distance(&gpu, &measured)? })
        }
        None => None,
    };
    let each = positions(&cpu, &gpu, compare::Files::open(&reference, &measured)?)?;
    let reports: Vec<OnePrompt> = jobs
        .into_iter()
        .zip(cpu)
        .zip(&each)
        .map(|((job, cpu), positions)| OnePrompt {
            prompt: job.prompt,
            text: cpu.text,
            compared: Compared::from_positions(positions),
        })
        .collect();
    Ok(AgreeReport {
        model,
        weights: arguments
            .weights
            .and_then(|encoding| Some(encoding.to_possible_value()?.get_name().to_owned())),
        device,
        cc: arguments.options.cc.clone(),
        all: Compared::from_positions(&each.concat()),
        equal_runs: reports.iter().filter(|report| report.compared.first_difference.is_none()).count(),
        exact: from_exact,
        prompts: reports,
    })
}

/// Compares the distributions of device and CPU and prints the report.
pub fn run_agree(arguments: &AgreeArgs) -> Result<ExitCode> {
    let report = compare_all(arguments)?;
    if arguments.json {
        println!("{:#}", serde_json::to_value(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    for one in &report.prompts {
        println!("{:?}: {}", one.prompt, one.compared);
    }
    println!("{}, cc {}: {}", report.device, report.cc, report.all);
    if let Some(exact) = &report.exact {
        println!("CPU from exact: {}", exact.cpu);
        println!("device from exact: {}", exact.device);
    }
    println!("{} of {} runs are equal to the last token", report.equal_runs, report.prompts.len());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.txt"), "\nsecond\nnot this\n").unwrap();
        fs::write(folder.path().join("a.txt"), "// a note\nfirst\n").unwrap();
        assert_eq!(prompts(folder.path()).unwrap(), ["first", "second"]);
        assert_eq!(prompts(&folder.path().join("b.txt")).unwrap(), ["second", "not this"]);
        assert!(prompts(&folder.path().join("c.txt")).is_err());
    }

    #[test]
    fn the_fixture_has_five() {
        let fixture = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/prompts.txt"));
        assert_eq!(prompts(fixture).unwrap().len(), 5);
    }
}
