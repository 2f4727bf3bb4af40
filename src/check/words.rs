//! Chooses the remedy for a failure by the line in which a program says why it fails.

use std::path::Path;

use super::unit::Unit;
use crate::diagnosis::by_kind as fix;
use crate::diagnosis::fix::backend::OLD_SYSTEM;
use crate::diagnosis::{Finding, Remedy};
use crate::env::{Environment, LD_LIBRARY_PATH, LD_PRELOAD};
use crate::inject::folder;
use crate::ollama::fatal::{Decisive, FailureKind, decisive};

/// Returns the finding with the remedy for the decisive line of a log, if the log has one.
pub fn mended(finding: Finding, log: &str) -> Finding {
    match decisive(log).filter(|decisive| decisive.kind != FailureKind::Ended) {
        Some(decisive) => by_line(finding, &decisive),
        None => finding,
    }
}

/// Returns the finding with the remedy for a library that it names and that does not suit: out of the
/// variable that brings it, away with a file below Ollama's directory `libraries`, or a newer system.
/// `environment` is that of the program, which `unit` sets if there is one. `libraries` is `None` if there
/// is no Ollama.
pub fn blamed(
    finding: Finding,
    environment: &Environment,
    libraries: Option<&Path>,
    unit: Option<&Unit>,
) -> Finding {
    let Some((file, says)) = unsuitable(&finding.found) else { return finding };
    let own = libraries.is_some_and(|libraries| file.starts_with(libraries));
    let file = file.to_owned();
    // The loader names the library that asks for the symbol, not the one that lacks it.
    if own && says.starts_with(UNDEFINED) {
        return finding;
    }
    let node = says.strip_prefix(VERSION).unwrap_or_default();
    let old = SYSTEM_NODES.iter().any(|start| node.starts_with(start));
    if brought_by(&file, environment).is_some() {
        return brought(finding, &file, environment, unit);
    }
    match (own, old) {
        (true, _) => finding.fix(fix::UNSUITABLE).with("file", file.display()),
        (false, true) => finding.fix(OLD_SYSTEM),
        (false, false) => finding,
    }
}

/// Returns whether words name a library below Ollama's directory `libraries` that does not suit.
pub fn blames_own(found: &str, libraries: &Path) -> bool {
    unsuitable(found).is_some_and(|(file, _)| file.starts_with(libraries))
}

/// Returns the finding about a library, with the remedy for the variable that brings it, which `unit` sets
/// if there is one. Without such a variable the finding keeps its own.
pub fn brought(finding: Finding, file: &Path, environment: &Environment, unit: Option<&Unit>) -> Finding {
    let Some(variable) = brought_by(file, environment) else { return finding };
    match unit {
        Some(unit) => finding.fix(fix::BROUGHT_IN_UNIT).with("unit", &unit.name),
        None => finding.fix(fix::BROUGHT),
    }
    .with("variable", variable)
    .with("file", file.display())
}

/// Returns the finding about a library that lacks a function and is not vgpu-run's. One below Ollama's
/// directory `libraries` is not of Ollama's release. Any other is the system's, and must never be moved away.
pub fn unsuitable_file(finding: Finding, file: &Path, libraries: &Path) -> Finding {
    let remedy = if file.starts_with(libraries) { fix::UNSUITABLE } else { OLD_SYSTEM };
    finding.fix(remedy).with("file", file.display())
}

/// Names of directories in which the loader looks for libraries for a kind of processor, beside those of
/// glibc-hwcaps. Releases before 2.37 know the others.
const PROCESSORS: [&str; 5] = ["glibc-hwcaps", "tls", "haswell", "avx512_1", "x86_64"];
/// Mark of the loader's words about a version that a library does not have.
const VERSION: &str = ": version `";
/// Mark of the loader's words about a symbol that no library has, after the path of the library that asks.
const UNDEFINED: &str = ": undefined symbol";
/// Starts of the versions in the libraries of a system's compiler and C library.
const SYSTEM_NODES: [&str; 4] = ["GLIBC", "CXXABI", "GCC", "GOMP"];
/// Marks of the loader's words about a library that it has found and cannot use, after its path.
const UNSUITABLE: [&str; 7] = [
    VERSION,
    ": wrong ELF class",
    ": invalid ELF header",
    ": file too short",
    UNDEFINED,
    ": ELF load command",
    ": cannot read file data",
];

/// Returns the line in which the loader says that it has found a library and cannot use it.
pub fn of_unsuitable(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| unsuitable(line).is_some())
}

/// Returns the path of a library that the loader has found and cannot use, and what follows it in the line.
/// vgpu-run's own libraries are none.
fn unsuitable(line: &str) -> Option<(&Path, &str)> {
    let end = UNSUITABLE.iter().find_map(|mark| line.find(mark))?;
    let start = line[..end].rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let path = Path::new(&line[start..end]);
    let library = path.file_name()?.to_string_lossy().contains(".so");
    let ours = path.starts_with("/proc") || folder::is_ours(path);
    (library && path.is_absolute() && !ours).then_some((path, &line[end..]))
}

/// Returns the variable of the loader that names the file or its directory.
fn brought_by(file: &Path, environment: &Environment) -> Option<&'static str> {
    let names = |variable: &str, wanted: &Path| {
        let value = environment.get(variable).unwrap_or_default().to_string_lossy().into_owned();
        value.split([':', ';', ' ']).any(|entry| Path::new(entry) == wanted)
    };
    if names(LD_PRELOAD, file) {
        return Some(LD_PRELOAD);
    }
    let mut folders = file.ancestors().skip(1);
    // The loader looks into directories for kinds of processors first, below the one that is named.
    let mut above = folders.next();
    while let Some(folder) = above {
        if names(LD_LIBRARY_PATH, folder) {
            return Some(LD_LIBRARY_PATH);
        }
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let of_processors = PROCESSORS.iter().any(|known| name == *known) || name.starts_with("x86-64-v");
        above = folders.next().filter(|_| of_processors);
    }
    None
}

fn by_line(finding: Finding, decisive: &Decisive) -> Finding {
    if let (Some(variable), true) = (decisive.variable(), is_setting(decisive.kind)) {
        return finding.fix(fix::VARIABLE).with("variable", variable);
    }
    match (remedy(decisive.kind), decisive.file()) {
        (Remedies::OfFile(..), Some(file)) if decisive.kind == FailureKind::Blob && !is_of_model(file) => {
            finding.fix(fix::OTHER_FILE).with("file", file)
        }
        (Remedies::Plain(remedy), _) | (Remedies::OfFile(_, remedy), None) => finding.fix(remedy),
        (Remedies::OfFile(remedy, _), Some(file)) => finding.fix(remedy).with("file", file),
    }
}

/// Returns whether a file is one of the store of models, or has the name of a model's file.
fn is_of_model(file: &str) -> bool {
    file.contains("/blobs/sha256") || Path::new(file).extension().is_some_and(|end| end == "gguf")
}

/// Returns whether failures of this kind are those of a value that somebody has set.
pub fn is_setting(kind: FailureKind) -> bool {
    use FailureKind::{ApiKey, CacheType, DeviceIndex, Setting, Tls};
    matches!(kind, Setting | CacheType | DeviceIndex | ApiKey | Tls)
}

enum Remedies {
    Plain(Remedy),
    /// A remedy that names a file, and the one where the line names none.
    OfFile(Remedy, Remedy),
}

fn remedy(kind: FailureKind) -> Remedies {
    use Remedies::{OfFile, Plain};
    match kind {
        FailureKind::Loader => Plain(fix::LOADER),
        FailureKind::Interpreter => Plain(fix::INTERPRETER),
        FailureKind::Setting
        | FailureKind::CacheType
        | FailureKind::DeviceIndex
        | FailureKind::ApiKey
        | FailureKind::Tls => Plain(fix::SETTING),
        FailureKind::Address => Plain(fix::ADDRESS),
        FailureKind::Home | FailureKind::Models => OfFile(fix::DIRECTORY, fix::SETTING),
        FailureKind::Template | FailureKind::Blob => OfFile(fix::FILE, fix::MODEL),
        FailureKind::Manifest => Plain(fix::MANIFEST),
        FailureKind::Memory => Plain(fix::MEMORY),
        FailureKind::Architecture => Plain(fix::ARCHITECTURE),
        FailureKind::Driver => Plain(fix::DRIVER),
        FailureKind::Backend => Plain(fix::BACKEND),
        FailureKind::LoadTimeout => Plain(fix::TIMEOUT),
        FailureKind::GpuCall | FailureKind::Ended => Plain(fix::HOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::cause;

    fn command(log: &str) -> String {
        let finding = mended(Finding::fail(cause::truth::SERVER_DIED, "x"), log);
        finding.fix.unwrap().sentence()
    }

    #[test]
    fn a_library_of_ollamas_own_is_told_from_the_systems() {
        let own = "no CPU backend: load_backend: failed to load /l/libggml-cpu.so: /l/libggml-cpu.so: file too short";
        assert!(blames_own(own, Path::new("/l")));
        let other = "no CPU backend: /usr/lib/libgomp.so.1: wrong ELF class: ELFCLASS32";
        assert!(!blames_own(other, Path::new("/l")) && !blames_own("none", Path::new("/l")));
    }

    #[test]
    fn who_brought_a_library_is_named() {
        let environment = Environment::from_iter([("LD_LIBRARY_PATH", "/a:/opt/old/lib")]);
        let of = |line: &str| {
            let finding = Finding::fail(cause::truth::SERVER_DIED, line);
            blamed(finding, &environment, Some(Path::new("/x/lib")), None).fix.unwrap().sentence()
        };
        let line = "/x/ollama: /opt/old/lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /x/l.so)";
        assert_eq!(
            of(line),
            "Unset LD_LIBRARY_PATH, which brings /opt/old/lib/libstdc++.so.6: unset LD_LIBRARY_PATH"
        );
        let below = line.replace("lib/libstdc", "lib/glibc-hwcaps/x86-64-v3/libstdc");
        assert!(of(&below).starts_with("Unset LD_LIBRARY_PATH"), "{}", of(&below));
        let other = line.replace("lib/libstdc", "lib/other/libstdc");
        assert!(!of(&other).contains("LD_LIBRARY_PATH"), "no directory of the loader's: {}", of(&other));
        let unit = Unit::with(&[]);
        let finding = Finding::fail(cause::truth::SERVER_DIED, line);
        let fix = blamed(finding, &environment, None, Some(&unit)).fix.unwrap();
        assert_eq!(fix.command.as_deref(), Some("systemctl edit ollama.service"), "{}", fix.text);
        let line =
            "error while loading shared libraries: /x/lib/libcudart.so.12: wrong ELF class: ELFCLASS32";
        assert!(of(line).contains("file -L /x/lib/libcudart.so.12"), "{}", of(line));
        assert_eq!(unsuitable("libx.so: cannot open shared object file"), None);
        assert_eq!(unsuitable("/proc/7/fd/900: undefined symbol: x"), None);
        let old = "/x/ollama: /lib64/libc.so.6: version `GLIBC_2.38' not found (required by /x/l.so)";
        assert!(of(old).starts_with("Use a newer distribution"), "{}", of(old));
        for line in ["/usr/lib/libz.so.1: invalid ELF header", "/x/lib/libggml-cuda.so: undefined symbol: x"]
        {
            assert!(of(line).starts_with("Start the server by hand"), "the remedy stays: {}", of(line));
        }
    }

    #[test]
    fn only_files_of_ollama_are_moved_away() {
        let of = |file: &str| {
            let finding = Finding::fail(cause::backend::IMPORT_MISSING, "x");
            unsuitable_file(finding, Path::new(file), Path::new("/x/lib/ollama")).fix.unwrap().sentence()
        };
        let libc = of("/lib/x86_64-linux-gnu/libc.so.6");
        assert!(libc.starts_with("Use a newer distribution") && !libc.contains("libc.so.6"), "{libc}");
        let bundled = of("/x/lib/ollama/libggml-base.so.0");
        assert!(bundled.starts_with("Replace /x/lib/ollama/libggml-base.so.0 by"), "{bundled}");
    }

    #[test]
    fn variable_and_file_are_named() {
        let line = "error while handling environment variable \"LLAMA_ARG_DEVICE\": invalid device: CUDA7";
        assert!(command(line).ends_with("unset LLAMA_ARG_DEVICE"), "{}", command(line));
        let line = "llama_model_load: error loading model: invalid magic, file /m/blobs/sha256-9";
        assert!(command(line).contains("ls -l /m/blobs/sha256-9"), "{}", command(line));
        let line = "E common_log: failed to open /var/log/llama.log: Permission denied";
        assert!(command(line).ends_with("ls -l /var/log/llama.log"), "{}", command(line));
        assert!(command("nothing of the kind").starts_with("Start the server by hand"), "the remedy stays");
    }
}
