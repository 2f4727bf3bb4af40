//! `vgpu-testbed device`: the devices that `vgpu-device` serves, and options by which a test makes them
//! behave unexpectedly.

pub mod injection;
pub mod knobs;

use std::process::ExitCode;

use anyhow::Result;
use vgpu_serve::Knobs;
use vgpu_serve::device;

/// Options of `device`.
#[derive(clap::Args)]
pub struct DeviceArgs {
    #[command(flatten)]
    device: device::DeviceArguments,
    #[command(flatten)]
    knobs: knobs::KnobOptions,
    #[command(flatten)]
    v1_knobs: knobs::V1KnobOptions,
}

/// Serves the devices, prints `ready` on stdout, and waits until it is told to stop.
pub fn run_device(arguments: &DeviceArgs) -> Result<ExitCode> {
    let knobs = Knobs { v1: arguments.v1_knobs.hooks(), ..arguments.knobs.knobs() };
    device::serve_device(&arguments.device, &knobs)?;
    Ok(ExitCode::SUCCESS)
}
