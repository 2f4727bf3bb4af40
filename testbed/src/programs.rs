//! Paths of the workspace's programs, which cargo builds into the directory of the running program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Environment variable of the directories that the dynamic loader searches before the system's own.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Returns the directory into which cargo builds programs of this profile.
fn folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("find the running program")?;
    let folder = own.parent().context("the running program has no folder")?;
    // Tests run from the `deps` directory below it.
    let folder =
        if folder.ends_with("deps") { folder.parent().context("deps has no parent")? } else { folder };
    Ok(folder.to_owned())
}

/// Builds a package's programs once per process if cargo started it, because they may be missing or older
/// than the sources. Without cargo, as in an installed test bed, the existing programs are used.
fn up_to_date(package: &'static str) -> Result<()> {
    static BUILT: Mutex<BTreeMap<&str, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    let build = || -> Result<()> {
        let folder = folder()?;
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "-p", package, "--bins"]);
        if folder.ends_with("release") {
            command.arg("--release");
        }
        command.arg("--target-dir").arg(folder.parent().context("the target folder has no parent")?);
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        let status = command.status().context("run cargo build")?;
        if !status.success() {
            bail!("cargo build: {status}");
        }
        Ok(())
    };
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    match built.entry(package).or_insert_with(|| build().map_err(|error| format!("{error:#}"))) {
        Ok(()) => Ok(()),
        Err(error) => bail!("failed to build {package}: {error}"),
    }
}

fn program(package: &'static str, name: &str) -> Result<PathBuf> {
    up_to_date(package)?;
    let path = folder()?.join(name);
    if !path.is_file() {
        bail!("{} is not there; build it with: cargo build --release --workspace --bins", path.display());
    }
    Ok(path)
}

/// Returns the path of a guest library as the launcher embeds it, which is built along with the launcher. An
/// installed test bed has it in `shims`, beside its programs.
pub fn shim(name: &str) -> Result<PathBuf> {
    let installed = folder()?.join("shims").join(name);
    if installed.is_file() {
        return Ok(installed);
    }
    launcher()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../embedded").join(name);
    path.canonicalize().with_context(|| format!("find {}", path.display()))
}

/// Returns the names of the libraries that the launcher gives to each program.
pub fn shims() -> Result<Vec<String>> {
    let folder = shim("libcuda.so.1")?;
    let folder = folder.parent().context("libcuda has no folder")?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let name = entry.context("list the libraries")?.file_name();
        // The tracer's name has no version, because it is preloaded only for traced programs.
        names.extend(name.to_str().filter(|name| name.contains(".so.")).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Returns the path of the built launcher.
pub fn launcher() -> Result<PathBuf> {
    program("vgpu-run", "vgpu-run")
}

/// Returns the path of the program that imitates users' programs.
pub fn standin() -> Result<PathBuf> {
    program("vgpu-standins", "vgpu-standin")
}

/// Returns the path of the program that imitates a guest's inference server.
pub fn llama() -> Result<PathBuf> {
    program("vgpu-llama", "vgpu-llama")
}

/// Returns the path of the program that computes GGML's operations.
pub fn ops() -> Result<PathBuf> {
    program("vgpu-ggml", "vgpu-ops")
}

/// Returns the path of a guest's first process.
pub fn agent() -> Result<PathBuf> {
    program("vgpu-guest", "vgpu-guest-agent")
}

/// Returns the path of the program that serves devices to virtual machines.
pub fn device() -> Result<PathBuf> {
    program("vgpu-serve", "vgpu-device")
}

/// Returns the path of the test bed's own command line.
pub fn testbed() -> Result<PathBuf> {
    program("vgpu-testbed", "vgpu-testbed")
}

/// Makes a program search these directories for libraries before the usual ones. The existing
/// `LD_LIBRARY_PATH` is kept, because it may be the only path to a driver.
pub fn prepend_libraries<'a>(command: &mut Command, directories: impl IntoIterator<Item = &'a Path>) {
    let directories: Vec<&Path> = directories.into_iter().collect();
    if !directories.is_empty() {
        command.env(LIBRARY_PATH, prepended(&directories, std::env::var_os(LIBRARY_PATH)));
    }
}

/// Returns the value of [`LIBRARY_PATH`] with `directories` before the old value. An empty old value is
/// dropped, since an empty entry would mean the working directory.
fn prepended(directories: &[&Path], was: Option<OsString>) -> OsString {
    let mut value = OsString::new();
    let was = was.filter(|was| !was.is_empty());
    for part in directories.iter().map(|path| path.as_os_str()).chain(was.as_deref()) {
        if !value.is_empty() {
            value.push(":");
        }
        value.push(part);
    }
    value
}

/// Compiles `source`, a C program in the directory of stand-ins, against the shims, as users compile against
/// NVIDIA's libraries. The launcher provides the libraries at run time.
///
/// # Errors
/// Fails if there is no compiler or if it prints a warning.
pub fn c_program(folder: &Path, source: &str, flags: &[&str], libraries: &[&str]) -> Result<PathBuf> {
    let standins = Path::new(env!("CARGO_MANIFEST_DIR")).join("standins");
    let program = folder.join(source.trim_end_matches(".c"));
    let mut command = Command::new("cc");
    command.args(["-O2", "-Wall", "-Wextra", "-Werror"]).args(flags).arg("-o").arg(&program);
    command.arg(standins.join(source));
    let mut needed = None;
    for name in libraries {
        let library = shim(name)?;
        needed = library.parent().map(Path::to_owned);
        command.arg(library);
    }
    if let Some(folder) = needed {
        command.arg(format!("-Wl,-rpath-link,{}", folder.display()));
    }
    let output = command.args(["-lpthread", "-ldl"]).output().context("run cc")?;
    if !output.status.success() {
        bail!("cc {source}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_go_before_what_the_loader_already_finds() {
        let value = |directories: &[&str], was: Option<&str>| {
            let directories: Vec<&Path> = directories.iter().map(Path::new).collect();
            prepended(&directories, was.map(OsString::from)).into_string().unwrap()
        };
        assert_eq!(value(&["/a", "/b"], Some("/usr/local/nvidia/lib64")), "/a:/b:/usr/local/nvidia/lib64");
        assert_eq!(value(&["/a"], None), "/a");
        assert_eq!(value(&["/a"], Some("")), "/a");
    }

    #[test]
    fn a_program_keeps_the_library_path_of_this_process() {
        let mut command = Command::new("true");
        prepend_libraries(&mut command, [Path::new("/a")]);
        let set = command.get_envs().find(|(name, _)| *name == LIBRARY_PATH).unwrap().1.unwrap().to_owned();
        assert_eq!(set, prepended(&[Path::new("/a")], std::env::var_os(LIBRARY_PATH)));
        let mut command = Command::new("true");
        prepend_libraries(&mut command, []);
        assert_eq!(command.get_envs().count(), 0);
    }
}
