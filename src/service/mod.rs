//! `vgpu-run service`: has a service of systemd start by vgpu-run, as the user that it has, with the device
//! given to a group that it is in; says how that stands; undoes it.
//!
//! Nothing of anybody else's is changed. Three files are written: a drop-in that puts vgpu-run before the
//! unit's own command, a udev rule that gives the device to the group, and the group's entry for
//! systemd-sysusers; and a receipt that has them word for word. Ollama's installer rewrites its unit and
//! leaves drop-ins alone. The command stands in the drop-in as the unit had it: systemd has no way to prefix
//! a command that is not spelled out, and a generator that did so would run as root at each start. When a
//! unit comes to start something else, `status` says so, and `install` again takes that over.

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

/// Carries out a task of `service`.
pub fn service(options: &Options, task: &ServiceTask) -> Result<ExitCode, Failure> {
    match task {
        ServiceTask::Install(install) => install::install(options, install)?,
        ServiceTask::Remove(change) => remove::remove(change)?,
        ServiceTask::Status(service) => return Ok(status::status(service)?),
    }
    Ok(Exit::Success.into())
}

/// The command that sets a unit up.
pub fn install_command(unit: &str) -> String {
    command_for("install", unit)
}

/// The command that says how a unit stands.
pub fn status_command(unit: &str) -> String {
    command_for("status", unit)
}

fn command_for(what: &str, unit: &str) -> String {
    match unit {
        surroundings::OLLAMA => format!("vgpu-run service {what}"),
        _ => format!("vgpu-run service {what} --unit {unit}"),
    }
}
