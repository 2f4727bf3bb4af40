//! The demonstration with `vgpu-llama`, under the launcher, as the server.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use vgpu_llama::event::{Event, Job};
use vgpu_testbed::guest::{self, LogTo, Settings};
use vgpu_testbed::traffic::Traffic;

use super::evidence::Evidence;
use super::options::{DemoArgs, Shown, step};
use crate::place::TargetDevice;

/// Number of tokens decoded before the cost of a token is measured, so that kernels are loaded and graphs
/// captured.
const WARM: usize = 3;

/// Prefixes of those log lines that report the discovery of the device.
const DISCOVERY: [&str; 5] = [
    "ggml_cuda_init:",
    "  Device ",
    "load_backend: loaded CUDA",
    "load_tensors: offloaded",
    "load_tensors:        CUDA",
];

/// Has the test bed's own server answer the question through the device.
pub fn answer(arguments: &DemoArgs, place: &TargetDevice, model: &Path) -> Result<Shown> {
    step("vgpu-run vgpu-llama, with stock libllama and libggml-cuda");
    let mut settings = Settings::new(model.to_owned(), arguments.tokens);
    settings.chat = true;
    // It waits after each token until the device's counters are read.
    settings.pause_from = Some(0);
    settings.log = LogTo::File;
    let jobs = [Job { prompt: arguments.question.clone(), forced: None }];
    let mut guest = settings.start(guest::Place::Gpu(place.sysfs()), &jobs)?;
    let (mut evidence, mut offloaded, mut before, mut per_token) = (None, None, None, None);
    while let Some(event) = guest.event()? {
        match event {
            Event::Loaded { offloaded: layers, load_s, .. } => {
                offloaded = layers;
                for line in guest.log()?.lines() {
                    if DISCOVERY.iter().any(|start| line.starts_with(start)) {
                        println!("{line}");
                    }
                }
                step(&format!("Loaded in {load_s:.1} s. The question, and the answer as it comes"));
                println!("> {}", arguments.question);
            }
            Event::Token { piece, .. } => {
                print!("{piece}");
                std::io::stdout().flush()?;
            }
            Event::Paused { decoded, .. } => {
                if evidence.is_none() {
                    evidence = Some(Evidence::collect(guest.pid())?);
                }
                if decoded >= WARM {
                    let now = Traffic::read(place.sysfs(), guest.pid())?;
                    match &before {
                        Some((earlier, before)) => {
                            per_token = Some(now.since(before, (decoded - earlier) as u64));
                        }
                        None => before = Some((decoded, now)),
                    }
                }
                guest.resume()?;
            }
            Event::Done { decoded, decode_s, .. } => {
                println!();
                println!("({:.1} tokens a second)", guest::rate(decoded, decode_s));
            }
            Event::Prompt { .. } => {}
        }
    }
    guest.finish()?;
    let evidence = evidence.context("the server ended before it decoded the question")?;
    Ok(Shown { evidence, offloaded, per_token })
}
