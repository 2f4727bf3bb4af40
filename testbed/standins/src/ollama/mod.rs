//! A stand-in for Ollama: the processes, environments, library paths, time limits and log lines of a server's
//! discovery of GPUs, in each of the three forms that releases have had, with the real libggml-cuda.so. It
//! contains nothing specific to VGPU-STUB.
//!
//! Beyond that it has only what a check needs: `/api/version`, `/api/ps`, and an `/api/generate` that starts
//! a model's runner, which allocates memory on the device and computes nothing. Variables adapt it to a test:
//! `STANDIN_MODELS` lists the existing models, `STANDIN_MODEL_MIB` is the memory of a model, and
//! `STANDIN_LOCK` is a file that the process of a model on the device keeps locked.

mod backend;
mod device;
mod era;
mod go_runtime;
mod gpu_discover;
mod http;
pub mod llama_server;
mod llama_servers;
mod log;
mod own_process;
mod paths;
mod runner;
mod runners;
mod serve;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Result, bail};

pub use era::{Era, Lines, Way};

/// Runs the stand-in for `ollama` of the given era.
pub fn main(era: &Era) -> ExitCode {
    if !go_runtime::reserve() {
        return ExitCode::from(go_runtime::FATAL);
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match run_command(era, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(era: &Era, arguments: &[OsString]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    match words.as_slice() {
        ["-v" | "--version"] => version(era),
        ["serve"] => serve::serve(era),
        ["runner", rest @ ..] if era.way != Way::LlamaServer => {
            match std::env::var("STANDIN_RUNNER").as_deref() {
                Ok("hang") => loop {
                    std::thread::park();
                },
                Ok("abort") => std::process::abort(),
                // Simulates a backend that has no code for the device and is asked to initialise it.
                Ok("no-architecture") if std::env::var_os("GGML_CUDA_INIT").is_some() => {
                    eprintln!("ggml-cuda.cu:216: ggml was not compiled with support for this arch");
                    std::process::abort()
                }
                _ => runner::serve_runner(rest),
            }
        }
        ["gpu-discover", rest @ ..] if era.way == Way::LlamaServer => gpu_discover::discover(rest),
        _ => bail!("unknown command {arguments:?} for \"ollama\""),
    }
}

/// Prints the version. As the real program does, it asks the server first.
fn version(era: &Era) -> Result<()> {
    if let Ok(answer) = http::ask(&http::host(), "/api/version") {
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        let server = answer["version"].as_str().unwrap_or_default();
        println!("ollama version is {server}");
        if server != era.version {
            println!("Warning: client version is {}", era.version);
        }
    } else {
        println!("Warning: could not connect to a running Ollama instance");
        println!("Warning: client version is {}", era.version);
    }
    Ok(())
}
