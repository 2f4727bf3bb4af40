//! `vgpu-testbed demo`: fetches a backend and a model, starts a device, has an inference server answer a
//! question through it, and reports evidence from the system about the process that did it.
//!
//! The server is the Ollama on `PATH` if there is one ([`ollama`]), else `vgpu-llama` with llama.cpp's stock
//! libraries ([`own`]).

mod evidence;
mod ollama;
mod options;
mod own;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use vgpu_testbed::guest;
use vgpu_testbed::traffic::PerToken;

use crate::place::TargetDevice;

pub use options::DemoArgs;

use options::{Shown, step};

/// Returns the first program of this name on `PATH`, if there is one.
fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Runs the demo and prints each step with its evidence.
pub fn run_demo(arguments: &DemoArgs) -> Result<ExitCode> {
    step("The model");
    let model = guest::model(&arguments.model)?;
    println!("{}", model.display());

    step("A VGPU-STUB device, in software");
    let place = TargetDevice::open(&arguments.options, None)?;
    println!("PCI functions as a guest finds them, in {}", place.sysfs().display());

    let server = match &arguments.ollama {
        Some(path) => Some(path.canonicalize().with_context(|| format!("find {}", path.display()))?),
        None if arguments.no_ollama => None,
        None => on_path("ollama"),
    };
    let shown = match server {
        Some(program) => ollama::answer(arguments, &place, &program, &model)?,
        None => own::answer(arguments, &place, &model)?,
    };

    step("What this has shown");
    let Shown { evidence, offloaded, per_token } = shown;
    for line in evidence.sentences() {
        println!("- {line}");
    }
    println!("- The backend's kernels were carried out by {}.", place.executor(&arguments.options));
    if let Some((some, all)) = offloaded {
        println!("- {some} of the model's {all} layers were in the device's memory.");
    }
    if let Some(per) = per_token {
        println!("- {}", cost(&per));
    }
    let wrong = evidence.wrong();
    for line in &wrong {
        println!("- WRONG: {line}");
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns a sentence about the cost of a token.
fn cost(per: &PerToken) -> String {
    let kinds: Vec<String> = per.messages.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    format!(
        "A token cost the guest {} messages ({} bytes to the device, {} back), and it waited {} time{} for the device.",
        kinds.join(", "),
        per.bytes_h2d,
        per.bytes_d2h,
        per.waits,
        if per.waits.as_u64() == Some(1) { "" } else { "s" }
    )
}
