//! The program under test.

use std::process::Command;

/// Returns a command that runs the program under test.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vgpu-device"))
}
