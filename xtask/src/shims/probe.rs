//! `vgpu-probe`, the helper program of `vgpu-run check`. It is built like a shim, from a static library and
//! with the same linker, so that it runs in the same guests, but is not counted among the shims.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::inspect::Object;
use super::link::{LinkError, Linker};

/// File name of the probe, which is also its name in `embedded/`.
pub const FILE: &str = "vgpu-probe";
/// Name of the crate's package.
pub const PACKAGE: &str = "vgpu-probe";

/// Linker options for both linkers.
const FLAGS: &[&str] = &[
    "-pie",
    "-s",
    "-Wl,--gc-sections",
    "-Wl,--hash-style=gnu",
    "-Wl,--build-id=none",
    "-Wl,-z,relro",
    "-Wl,-z,now",
    "-Wl,-z,noexecstack",
];

/// Returns the options that do not depend on paths, which are part of the digest that decides on a rebuild.
pub fn flags(linker: &Linker) -> Vec<&'static str> {
    let (first, last) = linker.program_options();
    [first, FLAGS, last].concat()
}

/// Links the program from its archive in the directory `work` and returns its path.
pub fn link(linker: &Linker, archive: &Path, work: &Path) -> Result<PathBuf, LinkError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| LinkError::File { path, source }
    };
    fs::create_dir_all(work).map_err(at(work))?;
    let path = work.join(FILE);
    let (first, last) = linker.program_options();
    let mut command = linker.command();
    command.args(first).args(FLAGS).arg("-o").arg(&path).arg(archive).args(last);
    super::link::run_linker(command, FILE)?;
    Ok(path)
}

/// Returns the reasons why a program is no valid probe, which must be dynamic and depend on none of the
/// libraries that it examines.
pub fn problems(object: &Object) -> Vec<String> {
    let mut problems = Vec::new();
    if !object.interpreter {
        problems.push("it asks for no loader".to_owned());
    }
    for prefix in ["libcu", "libnv", "libggml", "libgcc"] {
        if let Some(name) = object.needed.iter().find(|name| name.starts_with(prefix)) {
            problems.push(format!("it needs {name}"));
        }
    }
    if object.executable_stack {
        problems.push("it asks for an executable stack".to_owned());
    }
    problems
}
