//! A program under `vgpu-run trace`, with a device of its own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;
use vgpu_testbed::bed::{Bed, PATIENCE, TICK, random_facts};
use vgpu_testbed::programs;
use vgpu_trace_format::{Header, PREFIX, Record, RecordKind};

use super::perfetto;
use crate::support::launcher;

pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Result of a completed traced run.
pub struct Traced {
    pub folder: PathBuf,
    pub status: ExitStatus,
    pub summary: String,
    /// Number of calls of all processes, by function name.
    pub calls: BTreeMap<String, usize>,
    /// Number of messages of all processes, by kind.
    pub messages: BTreeMap<String, u64>,
    /// Number of waits of all processes.
    pub waits: u64,
    /// Function, status and reason of each refused call in all processes.
    pub refusals: Vec<(String, u64, String)>,
    _place: TempDir,
}

/// A traced run in progress.
pub struct Running {
    pub bed: Bed,
    pub launcher: Child,
    pub stdin: ChildStdin,
    folder: PathBuf,
    place: TempDir,
}

/// Compiles `testbed/standins/trace.c` once and returns its path.
pub fn standin() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = BUILT.get_or_init(|| {
        // The shims are built along with the launcher.
        programs::launcher().unwrap();
        let place = TempDir::with_prefix("vgpu-trace-").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = place.path().join("trace");
        let compiled = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program)
            .arg(Path::new(ROOT).join("testbed/standins/trace.c"))
            .arg(Path::new(ROOT).join("embedded/libcuda.so.1"))
            .args(["-lpthread", "-ldl"])
            .status()
            .unwrap();
        assert!(compiled.success());
        (place, program)
    });
    program
}

/// Starts a program under `vgpu-run trace` with the given options.
pub fn start(options: &[&str], program: &Path, arguments: &[&OsStr]) -> Running {
    let bed = Bed::start("soft", &[random_facts(&["6.1"])]).unwrap();
    let place = TempDir::with_prefix("vgpu-trace-").unwrap();
    let folder = place.path().join("run");
    // Another user's program must get there.
    for path in [bed.sysfs(), place.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut launcher = launcher(bed.sysfs())
        .args(options)
        .arg("trace")
        .arg("--output")
        .arg(&folder)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = launcher.stdin.take().unwrap();
    Running { bed, launcher, stdin, folder, place }
}

/// Starts the stand-in with one argument.
pub fn start_standin(word: &str) -> Running {
    start(&[], standin(), &[word.as_ref()])
}

impl Running {
    /// Waits for the program's line `ready` and returns the ID of its process.
    pub fn ready(&mut self) -> u32 {
        let mut line = String::new();
        let mut said = BufReader::new(self.launcher.stdout.as_mut().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let children = format!("/proc/{0}/task/{0}/children", self.launcher.id());
        fs::read_to_string(children).unwrap().trim().parse().unwrap()
    }

    /// Waits until a process has written a record of this kind.
    pub fn until_written(&self, kind: RecordKind) {
        let end = Instant::now() + PATIENCE;
        while !self.has_written(kind) {
            assert!(Instant::now() < end, "no {kind:?} within {PATIENCE:?}");
            std::thread::sleep(TICK);
        }
    }

    fn has_written(&self, kind: RecordKind) -> bool {
        let files = fs::read_dir(&self.folder).unwrap().flatten().map(|entry| entry.path());
        let traces = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(PREFIX));
        let records = traces.map(|path| fs::read(path).unwrap());
        let is = |record: &[u8]| record.starts_with(&(kind as u32).to_le_bytes());
        records
            .filter_map(|bytes| bytes.get(size_of::<Header>()..).map(<[u8]>::to_vec))
            .any(|records| records.chunks_exact(size_of::<Record>()).any(is))
    }

    /// Waits for the end of the run and reads the files that it wrote.
    pub fn finish(self) -> Traced {
        drop(self.stdin);
        let output = self.launcher.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let summary =
            fs::read_to_string(self.folder.join("summary.txt")).unwrap_or_else(|_| panic!("{errors}"));
        assert!(errors.contains(&summary), "it is printed too: {errors}");
        let timeline = fs::read(self.folder.join("trace.json")).unwrap();
        let timeline: Value = serde_json::from_slice(&timeline).unwrap();
        perfetto::check(&timeline);
        let mut traced = Traced {
            folder: self.folder,
            status: output.status,
            summary,
            calls: BTreeMap::new(),
            messages: BTreeMap::new(),
            waits: 0,
            refusals: Vec::new(),
            _place: self.place,
        };
        for event in timeline["traceEvents"].as_array().unwrap() {
            let name = || event["name"].as_str().unwrap().to_owned();
            match event["cat"].as_str() {
                Some("message") => *traced.messages.entry(name()).or_default() += 1,
                Some("wait") => traced.waits += 1,
                Some("refusal") => {
                    let (code, reason) = (&event["args"]["code"], &event["args"]["reason"]);
                    let reason = reason.as_str().unwrap().to_owned();
                    traced.refusals.push((name(), code.as_u64().unwrap(), reason));
                }
                Some(category) if category.starts_with("call") => {
                    *traced.calls.entry(name()).or_default() += 1;
                }
                _ => {}
            }
        }
        traced
    }
}

impl Traced {
    /// Returns the first line of the summary.
    pub fn head(&self) -> &str {
        self.summary.lines().next().unwrap_or_default()
    }

    /// Returns all lines of the text files that the run wrote.
    pub fn lines(&self) -> Vec<String> {
        let files = fs::read_dir(&self.folder).unwrap().flatten().map(|entry| entry.path());
        let texts = files.filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
        texts
            .flat_map(|path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }
}
