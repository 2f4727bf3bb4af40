//! The program under test.

use std::process::Command;

/// A command of the program.
pub fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_vgpu-device"))
}
