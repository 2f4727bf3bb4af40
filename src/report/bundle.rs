//! Writes the file of `--bundle FILE` with everything that a bug report needs, redacted. The file is an
//! archive, or one JSON object of texts if its name ends in `.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use vgpu_findings::style::Style;

use super::CheckReport;
use super::redact::Redaction;
use super::{human, json};
use crate::check::context::CheckContext;
use crate::device::survey;
use crate::diagnosis::Fix;
use crate::env::Environment;
use crate::error::LauncherError;

/// Files that describe the system.
const SYSTEM: [&str; 8] = [
    "/etc/os-release",
    "/proc/version",
    "/proc/meminfo",
    "/proc/self/mounts",
    "/proc/self/limits",
    "/proc/self/cgroup",
    "/etc/ld.so.preload",
    "/proc/sys/vm/memfd_noexec",
];
/// Maximum number of bytes that are kept of each text.
const KEPT: u64 = 64 << 10;
/// Depth to which library directories are listed, which reaches `lib/ollama/cuda_v12`.
const DEEPEST: usize = 2;

/// Name prefixes of variables that matter to the chain. Only the names of other variables are recorded.
const TOLD: [&str; 15] = [
    "LD_",
    "CUDA",
    "NVIDIA",
    "OLLAMA",
    "GGML",
    "LLAMA",
    "VGPU",
    "LC_",
    "LANG",
    "PATH",
    "HOME",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "HIP_",
    "GPU_",
];

/// Texts of a bundle, by name.
pub type Texts = BTreeMap<String, String>;

/// The bundle could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {}", path.display())]
pub struct BundleError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl LauncherError for BundleError {
    fn fix(&self) -> Option<Fix> {
        vgpu_paths::hint(&self.source).map(Fix::from)
    }
}

/// Returns the redacted texts of a bundle, by name.
pub fn texts(report: &CheckReport, context: &mut CheckContext, redaction: &Redaction) -> Texts {
    let style = Style { unicode: true, colour: false, width: Some(100) };
    let mut texts =
        BTreeMap::from([("system.txt".to_owned(), system()), ("pci.txt".to_owned(), pci(&context.root))]);
    if let Some(unit) = &context.unit {
        let lines: String = unit
            .properties
            .iter()
            .filter(|(key, _)| !key.starts_with("Environment"))
            .fold(String::new(), |text, (key, value)| text + key + "=" + value + "\n");
        texts.insert("unit.txt".into(), lines);
    }
    let folder = context.target().ollama.as_ref().map(|ollama| ollama.libraries.clone());
    if let Some(folder) = folder {
        let mut listing = String::new();
        list(&mut listing, &folder, 0);
        texts.insert("libraries.txt".into(), listing);
    }
    let mut texts: BTreeMap<String, String> =
        texts.into_iter().map(|(name, text)| (name, redaction.text(&text))).collect();
    let report = report.redacted(redaction);
    texts.insert("check.txt".into(), human::whole(&report, style, true));
    texts.insert("check.json".into(), json::object(&report));
    texts.insert("environment.txt".into(), variables(&context.environment, redaction));
    texts
}

/// Writes the bundle to `path`.
pub fn write(path: &Path, texts: &Texts) -> Result<(), BundleError> {
    let error = |source| BundleError { path: path.to_owned(), source };
    // Only the user who requested the bundle may read it.
    let file = vgpu_paths::overwrite(path).map_err(error)?;
    let single = path.extension().is_some_and(|extension| extension == "json");
    if single { write_json(file, texts) } else { write_archive(file, texts) }.map_err(error)
}

fn write_json(mut file: impl Write, texts: &BTreeMap<String, String>) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut file, texts)?;
    file.write_all(b"\n")
}

fn write_archive(file: impl Write, texts: &BTreeMap<String, String>) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, text) in texts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        archive.append_data(&mut header, format!("vgpu-run-check/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}

fn variables(environment: &Environment, redaction: &Redaction) -> String {
    let mut lines: Vec<String> = environment
        .iter()
        .map(|(name, value)| {
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
            if TOLD.iter().any(|begin| name.starts_with(begin)) {
                format!("{name}={}\n", redaction.variable(&name, &value))
            } else {
                format!("{name} (set)\n")
            }
        })
        .collect();
    lines.sort();
    lines.concat()
}

fn system() -> String {
    let mut text = String::new();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    _ = writeln!(text, "vgpu-run {}\nprocessors {processors}", env!("CARGO_PKG_VERSION"));
    for path in SYSTEM {
        let mut bytes = Vec::new();
        let opened = vgpu_paths::open_regular(Path::new(path));
        let read = opened.and_then(|file| io::Read::take(file, KEPT).read_to_end(&mut bytes));
        let content = match read {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("({error})"),
        };
        _ = writeln!(text, "\n== {path}\n{}", content.trim_end());
    }
    text
}

fn pci(root: &Path) -> String {
    let mut text = match survey::functions(root) {
        Ok(count) => format!("{count} functions\n"),
        Err(error) => format!("({error})\n"),
    };
    for candidate in survey::candidates(root) {
        _ = writeln!(
            text,
            "{} class {:06x} driver {} bars {:x?}",
            candidate.name,
            candidate.class,
            survey::driver(&candidate.dir).unwrap_or_else(|| "none".into()),
            candidate.bars
        );
    }
    text
}

/// Appends the names, sizes and link targets below a directory to `text`.
fn list(text: &mut String, folder: &Path, depth: usize) {
    _ = writeln!(text, "{}:", folder.display());
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in &paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = std::fs::symlink_metadata(path).map_or(0, |metadata| metadata.len());
        match std::fs::read_link(path) {
            Ok(target) => _ = writeln!(text, "  {name} -> {}", target.display()),
            Err(_) => _ = writeln!(text, "  {name} {bytes}"),
        }
    }
    for path in paths.iter().filter(|path| depth < DEEPEST && path.is_dir() && !path.is_symlink()) {
        list(text, path, depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::samples;
    use super::*;
    use crate::cli::{CheckOptions, Options};
    use crate::scratch::Scratch;

    fn bundle() -> BTreeMap<String, String> {
        let mut context = CheckContext::new(Options::default(), CheckOptions::default());
        context.environment.set("MY_NOTES", "hunter3");
        context.environment.set("OLLAMA_API_KEY", "hunter2");
        context.environment.set("OLLAMA_MODELS", "/home/alice/models");
        let report = samples::report(&samples::failures().swap_remove(0));
        texts(&report, &mut context, &Redaction::new(["alice".to_owned(), "status".into()], []))
    }

    #[test]
    fn a_user_may_be_called_like_a_key() {
        let object: serde_json::Value = serde_json::from_str(&bundle()["check.json"]).unwrap();
        assert_eq!(object["checks"][0]["status"], "fail");
    }

    #[test]
    fn it_holds_the_report_and_no_secrets() {
        let texts = bundle();
        for name in ["check.txt", "check.json", "system.txt", "pci.txt", "environment.txt"] {
            assert!(texts.contains_key(name), "{name}");
        }
        let all: String = texts.values().map(String::as_str).collect();
        assert!(!all.contains("hunter") && !all.contains("alice"));
        assert!(texts["environment.txt"].contains("OLLAMA_API_KEY=<redacted>\n"));
        assert!(texts["environment.txt"].contains("MY_NOTES (set)\n"));
        assert!(texts["environment.txt"].contains("OLLAMA_MODELS=/home/USER/models\n"));
    }

    /// Guards against privilege escalation: a bundle is not written through a link that another user planted.
    #[test]
    fn it_is_not_written_through_a_planted_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let scratch = Scratch::new();
        let (secret, hostile) = (scratch.join("secret"), scratch.join("hostile"));
        std::fs::write(&secret, "secret").unwrap();
        std::fs::create_dir(&hostile).unwrap();
        std::fs::set_permissions(&hostile, std::fs::Permissions::from_mode(0o1777)).unwrap();
        symlink(&secret, hostile.join("link.json")).unwrap();
        std::fs::hard_link(&secret, hostile.join("name.json")).unwrap();
        for (name, why) in [("link.json", "is a symbolic link"), ("name.json", "one of several names")] {
            let error = write(&hostile.join(name), &bundle()).unwrap_err();
            assert!(crate::error::chain(&error).contains(why), "{error:?}");
            assert!(error.hint().is_some());
            assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
        }
        let own = hostile.join("own.json");
        write(&own, &bundle()).unwrap();
        write(&own, &bundle()).unwrap();
        assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn an_archive_and_a_text_hold_the_same() {
        let scratch = Scratch::new();
        let texts = bundle();
        let path = scratch.join("bundle.tar.gz");
        write(&path, &texts).unwrap();
        let mut archive =
            tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap()));
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.insert(name, text);
        }
        assert_eq!(found, texts);
        let path = scratch.join("bundle.json");
        write(&path, &texts).unwrap();
        let found: BTreeMap<String, String> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(found, texts);
        assert!(
            write(&scratch.join("no/bundle.json"), &texts)
                .unwrap_err()
                .to_string()
                .contains("no/bundle.json")
        );
    }
}
