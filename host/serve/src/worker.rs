//! The hidden command `worker` of each program that serves devices: the process that carries out the messages
//! of one session.

use std::process::ExitCode;

use serde_json::Value;

use crate::executor::Description;
use crate::signals;

/// Runs as a worker process until its session ends. Only a device process starts one, with a socket as
/// standard input.
pub fn run_worker() -> ExitCode {
    // The device's process blocks these signals.
    if let Err(error) = signals::unblock() {
        eprintln!("vgpu-worker: unblock signals: {error}");
        return ExitCode::FAILURE;
    }
    vgpu_worker::main(|what: &Value| {
        let description: Description =
            serde_json::from_value(what.clone()).map_err(|error| error.to_string())?;
        description.make().map_err(|error| format!("{error:#}"))
    })
}
