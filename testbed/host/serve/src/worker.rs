//! The hidden command `worker`, which each program that serves devices has: this program as the process that
//! carries one session's messages out.

use std::process::ExitCode;

use serde_json::Value;

use crate::executor::Description;

/// The whole life of a worker process. Only a device's process starts one, with a socket as standard input.
pub fn run() -> ExitCode {
    vgpu_worker::main(|what: &Value| {
        let description: Description =
            serde_json::from_value(what.clone()).map_err(|error| error.to_string())?;
        description.make().map_err(|error| format!("{error:#}"))
    })
}
