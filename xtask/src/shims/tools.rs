//! Versions of the compiler and the linker that build the shims.

use std::process::Command;

use super::compile;
use super::error::ShimError;
use super::link::{self, Linker};

/// Versions of the compiler and the linker, which decide whether to rebuild.
pub struct Tools {
    /// First line of `rustc -vV`.
    pub rustc: String,
    /// Version of the linker, in one line.
    pub linker: String,
    /// Complete versions of both, and the linker's options.
    pub all: Vec<String>,
}

impl Tools {
    /// Queries the versions of compiler and linker.
    pub fn ask(linker: &Linker) -> Result<Self, ShimError> {
        let rustc = version(compile::rustc().arg("-vV"))?;
        let linked = version(&mut linker.version_command())?;
        let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
        let mut all = vec![rustc.clone(), linked.clone()];
        all.extend(linker.flags().into_iter().map(str::to_owned));
        let linker = match linker {
            Linker::Cc(_) => first(&linked),
            Linker::Zig { .. } => format!("zig {} for {}", first(&linked), link::ZIG_TARGET),
        };
        Ok(Self { rustc: first(&rustc), linker, all })
    }
}

fn version(command: &mut Command) -> Result<String, ShimError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| ShimError::Tool { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(ShimError::ToolStatus { program, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
