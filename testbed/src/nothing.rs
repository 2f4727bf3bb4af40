//! Builds the libraries that do nothing ([standins/nothing.c](../standins/nothing.c)), which are the baseline
//! of the timings.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/standins/nothing.c");

/// SONAME of each library, the macro that selects its functions, and whether its symbols carry the SONAME as
/// version node.
const LIBRARIES: [(&str, &str, bool); 5] = [
    ("libcuda.so.1", "-DCUDA", false),
    ("libcudart.so.12", "-DCUDART=12", true),
    ("libcudart.so.13", "-DCUDART=13", true),
    ("libcublas.so.12", "-DCUBLAS", true),
    ("libcublas.so.13", "-DCUBLAS", true),
];

/// Directory of compiled libraries that do nothing, and the value of LD_PRELOAD that selects them.
#[derive(Debug)]
pub struct Nothing {
    /// Directory of the libraries, which is deleted when the value is dropped.
    pub folder: TempDir,
    /// Paths of the libraries, joined by colons.
    pub preload: String,
}

/// Compiles the libraries with the C compiler, optimised for size.
pub fn build() -> Result<Nothing> {
    let folder = TempDir::with_prefix("vgpu-nothing-")?;
    let mut paths = Vec::new();
    for (soname, macro_, versioned) in LIBRARIES {
        let path = folder.path().join(soname);
        let mut command = Command::new("cc");
        command.args(["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-s", "-Wl,-z,now", macro_, SOURCE]);
        command.arg(format!("-Wl,-soname,{soname}"));
        if versioned {
            command.arg(format!("-Wl,--version-script={}", node(folder.path(), soname)?));
        }
        let status = command.arg("-o").arg(&path).status().context("run cc")?;
        if !status.success() {
            bail!("cc failed to build {soname}: {status}");
        }
        paths.push(path.display().to_string());
    }
    Ok(Nothing { preload: paths.join(":"), folder })
}

fn node(folder: &Path, soname: &str) -> Result<String> {
    let path = folder.join(format!("{soname}.map"));
    std::fs::write(&path, format!("{soname} {{ global: *; }};\n"))?;
    Ok(path.display().to_string())
}
