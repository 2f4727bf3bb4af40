//! Implements `vgpu-run service`: makes systemd start a service with vgpu-run, as the service's own user,
//! with access to the device through a group; reports the state of that setup; and removes it.
//!
//! No files of other software are changed. Three files are written: a drop-in that puts vgpu-run before the
//! unit's own command, a udev rule that gives the device to the group, and the group's entry for
//! systemd-sysusers. A receipt records their content. Ollama's installer rewrites its unit and leaves
//! drop-ins alone. The drop-in repeats the unit's command, because systemd cannot prefix a command without
//! repeating it, and a generator that could would run as root at each start. If the unit's command changes
//! later, `status` reports it, and running `install` again updates the drop-in.

mod change;
mod command;
mod error;
mod install;
mod receipt;
mod remove;
mod root;
mod status;
mod surroundings;
mod system;
mod texts;
mod unit_name;

use std::process::ExitCode;

pub use texts::DROP_IN;

use crate::cli::{Options, ServiceTask};
use crate::error::Failure;
use crate::exit::Exit;

/// Executes a task of `service` and returns the exit code.
pub fn service(options: &Options, task: &ServiceTask) -> Result<ExitCode, Failure> {
    match task {
        ServiceTask::Install(install) => install::install(options, install)?,
        ServiceTask::Remove(change) => remove::remove(change)?,
        ServiceTask::Status(service) => return Ok(status::status(service)?),
    }
    Ok(Exit::Success.into())
}

/// Returns the command that sets a unit up.
pub fn install_command(unit: &str) -> String {
    command_for("install", unit)
}

/// Returns the command that reports the state of a unit.
pub fn status_command(unit: &str) -> String {
    command_for("status", unit)
}

fn command_for(what: &str, unit: &str) -> String {
    match unit {
        surroundings::OLLAMA => format!("vgpu-run service {what}"),
        _ => format!("vgpu-run service {what} --unit {unit}"),
    }
}
