//! `vgpu-testbed status`: what a bus's devices have allocated.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use vgpu_testbed::bed;

/// Options of `status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// The bus, as `sim:DIR`.
    #[arg(long, value_parser = vgpu_serve::parse_sim)]
    bus: PathBuf,
    /// Print the devices' answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Queries the control socket and prints the answer.
pub fn run_status(arguments: &StatusArgs) -> Result<ExitCode> {
    let status = bed::control(&arguments.bus, "status")?;
    if arguments.json {
        println!("{status:#}");
        return Ok(ExitCode::SUCCESS);
    }
    for device in status["devices"].as_array().map(Vec::as_slice).unwrap_or_default() {
        if device["executor"] == vgpu_device_v1::OTHER_PROCESS {
            let address = device["address"].as_str().unwrap_or("?");
            let doorbells = &device["accesses"]["doorbells"];
            println!(
                "{address}: {doorbells} calls to a mediator in another process, which alone knows who owns what"
            );
            continue;
        }
        println!(
            "{} {}: {} of {} bytes allocated",
            device["address"].as_str().unwrap_or("?"),
            device["executor"].as_str().unwrap_or("?"),
            device["allocated"],
            device["total"]
        );
        // A device of version 1 does not measure them.
        if device["longest_access_us"].as_u64().is_some_and(|longest| longest > 0) {
            println!(
                "  longest register access {} us, longest attach {} us",
                device["longest_access_us"], device["longest_attach_us"]
            );
        }
        for session in device["sessions"].as_array().map(Vec::as_slice).unwrap_or_default() {
            println!(
                "  channel {} process {}: {} bytes in {} allocations, {} window bytes, {} messages, {} done",
                session["channel"],
                session["process"],
                session["allocated"],
                session["allocations"],
                session["window_bytes"],
                session["messages"],
                session["done"]
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}
