//! From a static library to a shared object with the names, version node and SONAME of the library that
//! it stands in for. rustc's own cdylibs cannot carry version nodes, hence a link of our own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use super::archive::{self, ArchiveError};
use super::library::Driver;
use super::symbols::Symbol;
use super::{backtrace, first, stub};

/// The program that links shims, and what its output needs.
#[derive(Clone, Debug)]
pub enum Linker {
    /// The machine's C compiler, by name or path. Objects need the glibc of this machine.
    Cc(OsString),
    /// A zig: objects need glibc 2.17 and carry their own unwinder.
    Zig {
        /// Path of the `zig` program.
        program: PathBuf,
        /// A folder for what it builds of its own libraries.
        cache: PathBuf,
    },
}

/// The oldest glibc that objects linked by [`Linker::Zig`] run with.
pub const ZIG_TARGET: &str = "x86_64-linux-gnu.2.17";

/// Options for both linkers.
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

/// Options for the machine's compiler alone: zig has an unwinder of its own, and refuses the other option.
const CC_FLAGS: &[&str] = &[
    // The unwinder goes into the object: one file fewer for each process to load.
    "-static-libgcc",
    // Code and constants share pages: fewer of them, in the file and in each process.
    "-Wl,-z,noseparate-code",
];

impl Linker {
    /// The compiler that `$CC` names, or `cc`.
    pub fn from_env() -> Self {
        Self::Cc(std::env::var_os("CC").filter(|name| !name.is_empty()).unwrap_or_else(|| "cc".into()))
    }

    /// A command that prints the linker's version.
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

    /// The options that do not depend on the object, those before and those behind its inputs.
    pub(super) fn options(&self) -> (Vec<&'static str>, &'static [&'static str]) {
        let (first, last): (&[_], &[_]) = match self {
            Self::Cc(_) => (CC_FLAGS, &["-Wl,--as-needed", "-lpthread", "-ldl", "-lm", "-lrt"]),
            Self::Zig { .. } => (&["cc", "-target", ZIG_TARGET], &["-lunwind"]),
        };
        ([first, FLAGS].concat(), last)
    }

    /// The options for a program, those before and those behind its inputs.
    pub(super) fn program_options(&self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Cc(_) => (CC_FLAGS, &["-Wl,--as-needed", "-lpthread", "-ldl", "-lm", "-lrt"]),
            Self::Zig { .. } => (&["cc", "-target", ZIG_TARGET], &["-lunwind", "-ldl"]),
        }
    }

    /// All options that do not depend on the object: part of what decides whether to link anew.
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

/// An object to be linked.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// SONAME and file name of the object.
    pub soname: &'a str,
    /// Version node of all exports, if they have one.
    pub node: Option<&'a str>,
    /// What stubs answer whose function returns a status.
    pub status: i32,
    /// Every name to export.
    pub symbols: &'a [Symbol],
    /// Beginnings of names that are the library's: a definition of such a name that is not listed is an
    /// error.
    pub prefixes: &'a [&'a str],
    /// Holds the implementation.
    pub archive: &'a Path,
    /// The linked libcuda, for objects that use it.
    pub driver: Option<(&'a Path, Driver)>,
    /// A folder for what the linker reads; the object is made there.
    pub work: &'a Path,
}

/// A link that failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum LinkError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("examine {path}")]
    Archive { path: PathBuf, source: ArchiveError },
    #[error("empty the printer of backtraces in {path}")]
    Backtrace { path: PathBuf, source: goblin::error::Error },
    #[error("find `{name}` in {archive}: the shim must use vgpu-abi")]
    NoAnswers { name: &'static str, archive: PathBuf },
    #[error("find {names} in the symbol list of {soname}, though the shim defines it")]
    Unlisted { names: String, soname: String },
    #[error("run the linker {program}")]
    Run { program: String, source: io::Error },
    #[error("link {soname}:\n{output}")]
    Failed { soname: String, output: String },
}

/// A linked object.
#[derive(Debug)]
pub struct Linked {
    /// Where it is.
    pub path: PathBuf,
    /// The listed names that the archive defines; the others are stubs.
    pub implemented: BTreeSet<String>,
}

/// Links `job` into its work folder.
pub fn link(linker: &Linker, job: &Job<'_>) -> Result<Linked, LinkError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| LinkError::File { path, source }
    };
    let bytes = fs::read(job.archive).map_err(at(job.archive))?;
    let defined = archive::defined(&bytes)
        .map_err(|source| LinkError::Archive { path: job.archive.to_owned(), source })?;
    let implemented = implemented(job, &defined)?;

    let stubs = job.work.join("stubs.s");
    let missing = job.symbols.iter().filter(|symbol| !implemented.contains(&symbol.name));
    let archive = without_backtraces(bytes, job.archive, job.work)?;
    fs::write(&stubs, stub::assembly(missing, job.status)).map_err(at(&stubs))?;
    let map = job.work.join("exports.map");
    fs::write(&map, version_script(job)).map_err(at(&map))?;

    let path = job.work.join(job.soname);
    let mut command = linker.command();
    let (first, last) = linker.options();
    command
        .args(first)
        .arg(format!("-Wl,-soname,{}", job.soname))
        .arg(concat("-Wl,--version-script=", &map))
        .arg("-o")
        .arg(&path)
        .arg("-Wl,--whole-archive")
        .arg(&archive)
        .arg("-Wl,--no-whole-archive")
        // Behind the implementation: exported variables that nobody uses are pages long.
        .arg(&stubs);
    if let Some(script) = first::script(job.soname) {
        let path = job.work.join("first.ld");
        fs::write(&path, script).map_err(at(&path))?;
        command.arg(concat("-Wl,-T,", &path));
    }
    match job.driver {
        None | Some((_, Driver::Is)) => {}
        Some((libcuda, Driver::Needs)) => {
            command.arg("-Wl,--no-as-needed").arg(libcuda);
        }
        Some((libcuda, Driver::MayNeed)) => {
            command.arg("-Wl,--as-needed").arg(libcuda);
        }
    }
    command.args(last);
    run(command, job.soname)?;
    Ok(Linked { path, implemented })
}

/// Writes the archive `from`, of which `bytes` are the content, into the folder `work`, without what prints
/// backtraces.
pub(super) fn without_backtraces(mut bytes: Vec<u8>, from: &Path, work: &Path) -> Result<PathBuf, LinkError> {
    backtrace::remove(&mut bytes).map_err(|source| LinkError::Backtrace { path: from.to_owned(), source })?;
    let path = work.join("implementation.a");
    fs::create_dir_all(work)
        .and_then(|()| fs::write(&path, &bytes))
        .map_err(|source| LinkError::File { path: path.clone(), source })?;
    Ok(path)
}

/// Runs the linker for the object of that name.
pub(super) fn run(mut command: Command, soname: &str) -> Result<(), LinkError> {
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

fn implemented(job: &Job<'_>, defined: &BTreeSet<String>) -> Result<BTreeSet<String>, LinkError> {
    for name in [stub::STATUS, stub::ZERO] {
        if !defined.contains(name) {
            return Err(LinkError::NoAnswers { name, archive: job.archive.to_owned() });
        }
    }
    let listed: BTreeSet<&str> = job.symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    let unlisted: Vec<&str> = defined
        .iter()
        .map(String::as_str)
        .filter(|name| job.prefixes.iter().any(|prefix| name.starts_with(prefix)) && !listed.contains(name))
        .collect();
    if !unlisted.is_empty() {
        return Err(LinkError::Unlisted { names: unlisted.join(", "), soname: job.soname.to_owned() });
    }
    Ok(defined.iter().filter(|name| listed.contains(name.as_str())).cloned().collect())
}

fn version_script(job: &Job<'_>) -> String {
    let mut script = job.node.map_or_else(String::new, |node| format!("{node} "));
    script.push_str("{\n  global:\n");
    for symbol in job.symbols {
        let _ = writeln!(script, "    {};", symbol.name);
    }
    script.push_str("  local: *;\n};\n");
    script
}

pub(super) fn concat(option: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(option);
    argument.push(path);
    argument
}
