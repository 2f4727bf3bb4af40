//! The program `vgpu-run`, which calls the library of the same package.

use std::process::ExitCode;

fn main() -> ExitCode {
    vgpu_run::main()
}
