//! The program `vgpu-run`. See the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    vgpu_run::main()
}
