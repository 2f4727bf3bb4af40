//! Links the static library of all shims to shared objects with the names, version nodes and SONAMEs of the
//! libraries that they replace. rustc's own cdylibs cannot carry version nodes, so this module calls the
//! linker itself.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::gate::{self, Table};
use super::stub::Reach;
use super::symbols::Symbol;
use super::{backtrace, first, stub};

/// Program that links the shims, which determines what they require.
#[derive(Clone, Debug)]
pub enum Linker {
    /// C compiler of the machine, by name or path. Objects require the glibc of this machine.
    Cc(OsString),
    /// Zig: objects require glibc 2.17 and contain their own unwinder.
    Zig {
        /// Path of the `zig` program.
        program: PathBuf,
        /// Directory for zig's compiled libraries.
        cache: PathBuf,
    },
}

/// Zig's target, whose suffix is the oldest glibc on which its objects run.
pub const ZIG_TARGET: &str = "x86_64-linux-gnu.2.17";

/// Linker options for both linkers.
const FLAGS: &[&str] = &[
    "-shared",
    "-s",
    "-Wl,--gc-sections",
    "-Wl,--hash-style=gnu",
    "-Wl,--no-undefined-version",
    "-Wl,--build-id=none",
    "-Wl,-z,defs",
    "-Wl,-z,relro",
    "-Wl,-z,now",
    // Threads and destructors of a shim outlive a dlclose.
    "-Wl,-z,nodelete",
    "-Wl,-z,noexecstack",
];

/// Additional options for the C compiler: zig has an unwinder of its own, and rejects the other option.
const CC_FLAGS: &[&str] = &[
    // The unwinder goes into the object: one file fewer for each process to load.
    "-static-libgcc",
    // Code and constants share pages: fewer of them, in the file and in each process.
    "-Wl,-z,noseparate-code",
];

impl Linker {
    /// Returns the C compiler that `$CC` names, or `cc`.
    pub fn from_env() -> Self {
        Self::Cc(std::env::var_os("CC").filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".into()))
    }

    /// Returns a command that prints the linker's version.
    pub fn version_command(&self) -> Command {
        match self {
            Self::Cc(program) => {
                let mut command = Command::new(program);
                command.arg("--version");
                command
            }
            Self::Zig { program, .. } => {
                let mut command = Command::new(program);
                command.arg("version");
                command
            }
        }
    }

    /// Returns the options of a shared object that do not depend on its inputs, those before and those after
    /// them.
    pub(super) fn options(&self) -> (Vec<&'static str>, &'static [&'static str]) {
        let (first, last): (&[_], &[_]) = match self {
            Self::Cc(_) => (CC_FLAGS, &["-Wl,--as-needed", "-lpthread", "-ldl", "-lm", "-lrt"]),
            Self::Zig { .. } => (&["cc", "-target", ZIG_TARGET], &["-lunwind"]),
        };
        ([first, FLAGS].concat(), last)
    }

    /// Returns the options of a program that do not depend on its inputs, those before and those after them.
    pub(super) fn program_options(&self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Cc(_) => (CC_FLAGS, &["-Wl,--as-needed", "-lpthread", "-ldl", "-lm", "-lrt"]),
            Self::Zig { .. } => (&["cc", "-target", ZIG_TARGET], &["-lunwind", "-ldl"]),
        }
    }

    /// Returns all options that do not depend on the object, which are part of the digest that decides on a
    /// rebuild.
    pub fn flags(&self) -> Vec<&'static str> {
        let (first, last) = self.options();
        [&first, last].concat()
    }

    pub(super) fn command(&self) -> Command {
        match self {
            Self::Cc(program) => Command::new(program),
            Self::Zig { program, cache } => {
                let mut command = Command::new(program);
                command.env("ZIG_GLOBAL_CACHE_DIR", cache).env("ZIG_LOCAL_CACHE_DIR", cache);
                command
            }
        }
    }
}

/// Exports of an object, and the status of those that are not implemented.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// SONAME and file name of the object.
    pub soname: &'a str,
    /// Version node of all exports, if they have one.
    pub node: Option<&'a str>,
    /// Status that stubs return, for functions that return a status.
    pub status: i32,
    /// Names to export.
    pub symbols: &'a [Symbol],
}

/// Inputs for linking libcuda from the static library of all shims.
#[derive(Clone, Copy, Debug)]
pub struct CoreJob<'a> {
    /// Names that the shim exports.
    pub names: Names<'a>,
    /// Name of the crate that implements the exports.
    pub implementation: &'a str,
    /// Exported names that are implemented.
    pub implemented: &'a BTreeSet<String>,
    /// Tables of the other libraries, each with the crate that implements it.
    pub tables: &'a [(Table, &'a str)],
    /// Path of the static library.
    pub archive: &'a Path,
    /// Directory for the linker's input files and the resulting object.
    pub work: &'a Path,
}

/// Inputs for linking another library, which contains no code of its own.
#[derive(Clone, Copy, Debug)]
pub struct GateJob<'a> {
    /// Names that the shim exports.
    pub names: Names<'a>,
    /// Table through which implemented functions are reached.
    pub table: &'a Table,
    /// Status returned while libcuda's table is missing.
    pub not_initialized: i32,
    /// Path of the linked libcuda.
    pub libcuda: &'a Path,
    /// Directory for the linker's input files and the resulting object.
    pub work: &'a Path,
}

/// Reasons why linking fails.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum LinkError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("empty the printer of backtraces in {path}")]
    Backtrace { path: PathBuf, source: goblin::error::Error },
    #[error("run the linker {program}")]
    Run { program: String, source: io::Error },
    #[error("link {soname}:\n{output}")]
    Failed { soname: String, output: String },
}

/// Links libcuda into the job's working directory and returns its path.
pub fn link_core(linker: &Linker, job: &CoreJob<'_>) -> Result<PathBuf, LinkError> {
    let bytes = fs::read(job.archive).map_err(at(job.archive))?;
    let archive = without_backtraces(bytes, job.archive, job.work)?;
    let mut text = format!("\t.hidden {}\n\t.hidden {}\n", stub::STATUS, stub::ZERO);
    for name in job.implemented {
        let function = format!("{}_{name}", job.implementation);
        stub::entry(&mut text, name, &format!("\t.hidden {function}\n\tjmp {function}\n"));
    }
    for (table, implementation) in job.tables {
        text.push_str(&table.assembly(implementation));
    }
    let missing = job.names.symbols.iter().filter(|symbol| !job.implemented.contains(&symbol.name));
    let answers = [&Reach::direct(stub::STATUS), &Reach::direct(stub::ZERO)];
    text.push_str(&stub::assembly(missing, job.names.status, answers));
    let tables: Vec<&str> = job.tables.iter().map(|(table, _)| table.symbol()).collect();
    let Files { entries, map } = files(job.work, &text, &job.names, &tables)?;

    let path = job.work.join(job.names.soname);
    let mut command = linker.command();
    let (first, last) = linker.options();
    command
        .args(first)
        .arg(format!("-Wl,-soname,{}", job.names.soname))
        .arg(concat("-Wl,--version-script=", &map))
        .arg("-o")
        .arg(&path)
        .arg("-Wl,--whole-archive")
        .arg(&archive)
        .arg("-Wl,--no-whole-archive")
        // Behind the implementation: exported variables that nobody uses are pages long.
        .arg(&entries);
    let script = job.work.join("first.ld");
    fs::write(&script, first::libcuda(job.implementation)).map_err(at(&script))?;
    command.arg(concat("-Wl,-T,", &script)).args(last);
    run_linker(command, job.names.soname)?;
    Ok(path)
}

/// Links a library whose code is in libcuda into the job's working directory and returns its path.
pub fn link_gate(linker: &Linker, job: &GateJob<'_>) -> Result<PathBuf, LinkError> {
    let names = &job.names;
    let text = gate::assembly(job.table, names.symbols, names.status, job.not_initialized);
    fs::create_dir_all(job.work).map_err(at(job.work))?;
    let Files { entries, map } = files(job.work, &text, names, &[])?;
    let path = job.work.join(names.soname);
    let mut command = linker.command();
    command
        .args(linker.options().0)
        // Without a start and an end of its own, and without a C library.
        .arg("-nostdlib")
        .arg(format!("-Wl,-soname,{}", names.soname))
        .arg(concat("-Wl,--version-script=", &map))
        .arg("-o")
        .arg(&path)
        .arg(&entries)
        .arg("-Wl,--no-as-needed")
        .arg(job.libcuda);
    run_linker(command, names.soname)?;
    Ok(path)
}

/// Input files of the linker, besides libraries.
struct Files {
    entries: PathBuf,
    map: PathBuf,
}

/// Writes the assembly and the version script of an object, which exports `more` besides its names.
fn files(work: &Path, text: &str, names: &Names<'_>, more: &[&str]) -> Result<Files, LinkError> {
    let (entries, map) = (work.join("entries.s"), work.join("exports.map"));
    fs::write(&entries, text).map_err(at(&entries))?;
    fs::write(&map, version_script(names, more)).map_err(at(&map))?;
    Ok(Files { entries, map })
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> LinkError + use<> {
    let path = path.to_owned();
    move |source| LinkError::File { path, source }
}

/// Writes a copy of the archive `from`, with the content `bytes`, to the directory `work`. The code that
/// prints backtraces is removed.
pub(super) fn without_backtraces(mut bytes: Vec<u8>, from: &Path, work: &Path) -> Result<PathBuf, LinkError> {
    backtrace::remove(&mut bytes).map_err(|source| LinkError::Backtrace { path: from.to_owned(), source })?;
    let path = work.join("implementation.a");
    fs::create_dir_all(work)
        .and_then(|()| fs::write(&path, &bytes))
        .map_err(|source| LinkError::File { path: path.clone(), source })?;
    Ok(path)
}

/// Runs the linker. `soname` names the object in errors.
pub(super) fn run_linker(mut command: Command, soname: &str) -> Result<(), LinkError> {
    let output = command.output().map_err(|source| LinkError::Run {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(LinkError::Failed { soname: soname.to_owned(), output });
    }
    Ok(())
}

fn version_script(names: &Names<'_>, more: &[&str]) -> String {
    let mut script = names.node.map_or_else(String::new, |node| format!("{node} "));
    script.push_str("{\n  global:\n");
    for name in names.symbols.iter().map(|symbol| symbol.name.as_str()).chain(more.iter().copied()) {
        let _ = writeln!(script, "    {name};");
    }
    script.push_str("  local: *;\n};\n");
    script
}

pub(super) fn concat(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}
