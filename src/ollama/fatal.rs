//! The line in which a server or one of its processes says why it fails, and the kind of failure. The lines
//! are those of Ollama's, llama.cpp's and ggml's sources (`cargo xtask fatal-lines`), and those of the loader
//! and of shells.

use std::sync::LazyLock;

use super::evidence::{last_words, shortened};

/// Lines of the sources: kind, program, eras and text, separated by tabs.
const LINES: &str = include_str!("fatal_lines.txt");
/// Minimum number of bytes of a pattern's longest fixed part. A shorter one occurs in other lines, too.
const FIXED: usize = 10;

/// Kind of a failure, which determines the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The loader lacks a library or a symbol.
    Loader,
    /// The kernel or a shell cannot execute a file.
    Interpreter,
    /// An argument or a variable has a value that llama-server does not accept.
    Setting,
    /// The type of the KV cache is unknown or does not fit.
    CacheType,
    /// A device is selected that there is not.
    DeviceIndex,
    /// An API key is not accepted.
    ApiKey,
    /// A certificate or a key of TLS is not accepted.
    Tls,
    /// The server cannot listen.
    Address,
    /// A model's chat template is not accepted.
    Template,
    /// The home directory cannot be used.
    Home,
    /// The directory of models cannot be used.
    Models,
    /// A model's manifest is damaged.
    Manifest,
    /// A model's file is missing, damaged, or of another release.
    Blob,
    /// Memory of the device or of the machine is used up.
    Memory,
    /// The backend has no code for the device.
    Architecture,
    /// The driver is refused.
    Driver,
    /// A backend cannot be loaded.
    Backend,
    /// A load took too long.
    LoadTimeout,
    /// A call of CUDA failed.
    GpuCall,
    /// A process ended or could not be started, for a reason that only another line can name.
    Ended,
}

/// Names of the kinds in the data, in which the loader's and the shells' do not occur.
const NAMES: [(&str, FailureKind); 18] = [
    ("setting", FailureKind::Setting),
    ("cache-type", FailureKind::CacheType),
    ("device-index", FailureKind::DeviceIndex),
    ("api-key", FailureKind::ApiKey),
    ("tls", FailureKind::Tls),
    ("address", FailureKind::Address),
    ("template", FailureKind::Template),
    ("home", FailureKind::Home),
    ("models", FailureKind::Models),
    ("manifest", FailureKind::Manifest),
    ("blob", FailureKind::Blob),
    ("memory", FailureKind::Memory),
    ("architecture", FailureKind::Architecture),
    ("driver", FailureKind::Driver),
    ("backend", FailureKind::Backend),
    ("load-timeout", FailureKind::LoadTimeout),
    ("gpu-call", FailureKind::GpuCall),
    ("ended", FailureKind::Ended),
];
/// Texts of the dynamic loader.
const LOADER: [&str; 4] = [
    "error while loading shared libraries",
    "symbol lookup error",
    "version `GLIBC",
    "cannot open shared object file",
];
/// Texts of shells, of the kernel's errors in Go, and of env(1).
const INTERPRETER: [&str; 4] =
    ["bad interpreter", "cannot execute", "xec format error", "required file not found"];
/// Marks of lines that report no failure, or that of a backend which is not CUDA's.
const ASIDE: [&str; 10] = [
    "level=INFO",
    "level=DEBUG",
    "level=TRACE",
    "level=WARN",
    "vulkan",
    "Vulkan",
    "rocm",
    "libggml-hip",
    "msg=subprocess",
    "library=cpu",
];

/// A line that says why something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisive {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// The line, shortened.
    pub line: String,
}

/// Fixed parts of a known line, in order.
struct Pattern {
    kind: FailureKind,
    parts: Vec<&'static str>,
}

static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| LINES.lines().filter_map(pattern).collect());

fn pattern(line: &'static str) -> Option<Pattern> {
    let mut fields = line.splitn(4, '\t');
    let (kind, text) = (fields.next()?, fields.nth(2)?);
    let (_, kind) = NAMES.iter().find(|(name, _)| *name == kind)?;
    let parts: Vec<&str> = text.split("{}").filter(|part| !part.trim().is_empty()).collect();
    let longest = parts.iter().map(|part| part.trim().len()).max()?;
    (longest >= FIXED).then_some(Pattern { kind: *kind, parts })
}

impl Pattern {
    /// Returns whether the line contains all fixed parts in their order.
    fn fits(&self, line: &str) -> bool {
        let mut rest = line;
        self.parts.iter().all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }
}

/// Returns the kind of failure that a line reports.
pub fn kind(line: &str) -> Option<FailureKind> {
    let has = |texts: &[&str]| texts.iter().any(|text| line.contains(text));
    if has(&ASIDE) {
        None
    } else if has(&LOADER) {
        Some(FailureKind::Loader)
    } else if has(&INTERPRETER) {
        Some(FailureKind::Interpreter)
    } else {
        // The pattern that says most about the line. What is wrong with a setting says more than that one is.
        let says = |pattern: &&Pattern| {
            let fixed: usize = pattern.parts.iter().map(|part| part.len()).sum();
            (pattern.kind != FailureKind::Setting, fixed)
        };
        PATTERNS.iter().filter(|pattern| pattern.fits(line)).max_by_key(says).map(|pattern| pattern.kind)
    }
}

/// Returns the first line that says why something failed. A line about a process that ended counts only if no
/// other says more.
pub fn decisive(log: &str) -> Option<Decisive> {
    let mut ended = None;
    for line in log.lines().map(str::trim) {
        let Some(kind) = kind(line) else { continue };
        let decisive = Decisive { kind, line: shortened(line) };
        if kind != FailureKind::Ended {
            return Some(decisive);
        }
        ended.get_or_insert(decisive);
    }
    ended
}

/// Returns the line to quote in a headline: the decisive one, or else the last words of a dying program.
pub fn words(log: &str) -> Option<String> {
    let decisive = decisive(log).filter(|decisive| decisive.kind != FailureKind::Ended);
    decisive.map(|decisive| decisive.line).or_else(|| last_words(log))
}

/// Options of llama-server that Ollama derives from variables of its own.
const OPTIONS: [(&str, &str); 3] = [
    ("--cache-type", "OLLAMA_KV_CACHE_TYPE"),
    ("--flash-attn", "OLLAMA_FLASH_ATTENTION"),
    ("cache type", "OLLAMA_KV_CACHE_TYPE"),
];

impl Decisive {
    /// Returns the variable that has the refused value, if the line names it or an option that Ollama derives
    /// from one.
    pub fn variable(&self) -> Option<&str> {
        let named = self.line.split(['"', ' ', '\'', '=', ':']).find(|word| {
            ["LLAMA_", "OLLAMA_", "CUDA_", "GGML_", "LD_"].iter().any(|start| word.starts_with(start))
        });
        named.or_else(|| {
            OPTIONS.iter().find(|(option, _)| self.line.contains(option)).map(|(_, variable)| *variable)
        })
    }

    /// Returns the first absolute path in the line.
    pub fn file(&self) -> Option<&str> {
        let mut words = self.line.split(['"', ' ', '\'', '`', ',', '(', ')']);
        words
            .find(|word| word.len() > 1 && word.starts_with('/'))
            .map(|path| path.trim_end_matches([':', '.']))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_line() {
        for (line, expected) in [
            (
                "error while handling environment variable \"LLAMA_ARG_FIT\": invalid value",
                FailureKind::Setting,
            ),
            (
                "error while handling argument \"--cache-type-k\": Unsupported cache type: q9",
                FailureKind::CacheType,
            ),
            (
                "error while handling environment variable \"LLAMA_ARG_DEVICE\": invalid device: CUDA7",
                FailureKind::DeviceIndex,
            ),
            (
                "0.00.1 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 7",
                FailureKind::Address,
            ),
            ("Error: could not create directory mkdir /x: permission denied", FailureKind::Home),
            ("Error: mkdir /m: not a directory: ensure path elements are traversable", FailureKind::Models),
            ("gguf_init_from_file: invalid magic characters: 'abcd', expected 'GGUF'", FailureKind::Blob),
            (
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.5 MiB on device 0: cudaMalloc failed: out of memory",
                FailureKind::Memory,
            ),
            ("Error: timed out waiting for llama-server to start - x", FailureKind::LoadTimeout),
            ("/x/ollama: error while loading shared libraries: libx.so: cannot open", FailureKind::Loader),
            ("sh: 1: /x/run: bad interpreter: No such file", FailureKind::Interpreter),
            ("Error: llama-server process has terminated: exit status 1", FailureKind::Ended),
        ] {
            assert_eq!(kind(line), Some(expected), "{line}");
        }
        for line in [
            "",
            "time=x level=INFO msg=\"failed to load model\"",
            "load_backend: failed to load /l/libggml-vulkan.so: libvulkan.so.1: cannot open shared object file",
            "msg=\"inference compute\" library=CUDA",
            "load_backend: loaded CUDA backend from /l/libggml-cuda.so",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
    }

    #[test]
    fn the_reason_comes_before_the_end() {
        let log = "msg=\"x\"\nError: llama-server process has terminated: exit status 1\n\
                   error while handling environment variable \"LLAMA_ARG_DEVICE\": invalid device: CUDA7\n";
        let decisive = decisive(log).unwrap();
        assert_eq!(
            (decisive.kind, decisive.variable()),
            (FailureKind::DeviceIndex, Some("LLAMA_ARG_DEVICE"))
        );
        let blob =
            Decisive { kind: FailureKind::Blob, line: "failed to load model, '/m/blobs/sha256-1'".into() };
        assert_eq!((blob.file(), blob.variable()), (Some("/m/blobs/sha256-1"), None));
        let cache = Decisive { kind: FailureKind::CacheType, line: "Unsupported cache type: q9".into() };
        assert_eq!(cache.variable(), Some("OLLAMA_KV_CACHE_TYPE"));
        assert_eq!(words("panic: x\n").as_deref(), Some("panic: x"));
    }

    #[test]
    fn every_line_of_the_data_has_a_known_kind() {
        let rows = LINES.lines().filter(|line| !line.starts_with('#'));
        for line in rows.clone() {
            let kind = line.split('\t').next().unwrap();
            assert!(NAMES.iter().any(|(name, _)| *name == kind), "{line}");
        }
        assert!(PATTERNS.len() * 10 > rows.count() * 8, "{} patterns", PATTERNS.len());
    }

    proptest! {
        #[test]
        fn no_line_breaks_the_reader(text in ".{0,80}") {
            let _ = (decisive(&text), words(&format!("Error: {text}")));
            let decisive = Decisive { kind: FailureKind::Blob, line: text };
            let _ = (decisive.file(), decisive.variable());
        }
    }
}
