//! `vgpu-testbed mediator`: the mediator that `vgpu-device` serves, and options by which a test makes it
//! behave unexpectedly.

use std::process::ExitCode;

use anyhow::{Result, bail};
use vgpu_serve::mediator;

use crate::device::knobs::KnobOptions;

/// Options of `mediator`.
#[derive(clap::Args)]
pub struct MediatorArgs {
    #[command(flatten)]
    mediator: mediator::MediatorArguments,
    #[command(flatten)]
    knobs: KnobOptions,
}

/// Serves, prints `ready` on stdout, and waits until it is told to stop.
pub fn run_mediator(arguments: &MediatorArgs) -> Result<ExitCode> {
    let knobs = arguments.knobs.knobs();
    if !knobs.device.registers.is_empty() {
        bail!("a mediator has no registers that could be wrong: they are those of a device");
    }
    mediator::serve_mediator(&arguments.mediator, &knobs)?;
    Ok(ExitCode::SUCCESS)
}
