//! The first process of a guest.

use std::process::ExitCode;

use rustix::system::{RebootCommand, reboot};
use vgpu_guest::agent::init::{InitError, InitPlan, mount_basics};
use vgpu_guest::agent::message::Message;
use vgpu_guest::agent::serve::{port, serve};

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("vgpu-guest-agent: this is the first process of a guest, and nothing else");
        return ExitCode::FAILURE;
    }
    if let Err(error) = start() {
        eprintln!("vgpu-guest-agent: failed to {error}");
    }
    // The machine ends with its agent, whatever the agent's result.
    let _ = reboot(RebootCommand::PowerOff);
    ExitCode::FAILURE
}

fn start() -> Result<(), Box<dyn std::error::Error>> {
    mount_basics()?;
    let plan = InitPlan::read()?;
    plan.load_modules()?;
    let port = port()?;
    let prepared: Result<(), InitError> = plan.carry_out();
    if let Err(error) = prepared {
        Message::Failed(error.to_string()).send(&mut &port)?;
        return Err(error.into());
    }
    serve(&port)?;
    Ok(())
}
