//! `vgpu-run trace`: what it says of programs is what they did.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use vgpu_testbed::bed::{Bed, Facts};
use vgpu_testbed::programs;
use xtask::artifacts::Cache;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

struct Traced {
    folder: PathBuf,
    output: Output,
    summary: String,
    /// Calls of all processes: how many of each name.
    calls: BTreeMap<String, usize>,
    _place: TempDir,
}

fn trace(program: &Path, arguments: &[&OsStr]) -> Traced {
    let bed = Bed::start("soft", &[Facts::random(&["6.1"])]).unwrap();
    let place = TempDir::with_prefix("vgpu-trace-").unwrap();
    let folder = place.path().join("run");
    let output = Command::new(programs::launcher().unwrap())
        .arg("trace")
        .arg("--output")
        .arg(&folder)
        .arg(program)
        .args(arguments)
        .env("VGPU_SYSFS", bed.sysfs())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let summary = std::fs::read_to_string(folder.join("summary.txt")).unwrap_or_else(|_| panic!("{errors}"));
    assert!(errors.contains(&summary), "it is printed too: {errors}");
    let mut calls = BTreeMap::new();
    let timeline: Value = serde_json::from_slice(&std::fs::read(folder.join("trace.json")).unwrap()).unwrap();
    for event in timeline["traceEvents"].as_array().unwrap() {
        if event["cat"].as_str().is_some_and(|category| category.starts_with("call")) {
            *calls.entry(event["name"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    Traced { folder, output, summary, calls, _place: place }
}

fn lines(traced: &Traced) -> Vec<String> {
    let files = std::fs::read_dir(&traced.folder).unwrap().flatten().map(|entry| entry.path());
    let texts = files.filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
    texts
        .flat_map(|path| {
            std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn a_backends_calls_are_counted_and_named() {
    for backend in ["ggml-cuda12", "ggml-cuda13"] {
        let folder = Cache::open().unwrap().fetch(backend).unwrap();
        let probe = Path::new(ROOT).join("embedded/vgpu-probe");
        let library = folder.join("libggml-cuda.so");
        let base = folder.join("libggml-base.so");
        let arguments = ["load".as_ref(), library.as_os_str(), "--with".as_ref(), base.as_os_str()];
        let traced = trace(&probe, &arguments);
        let Traced { summary, calls, .. } = &traced;
        assert!(traced.output.status.success(), "{summary}");
        assert_eq!(calls.get("cudaGetDeviceCount"), Some(&1), "{summary}");
        assert!(calls["cudaMemGetInfo"] >= 1 && calls["cuInit"] >= 1, "{calls:?}");
        let registered = summary.lines().find(|line| line.ends_with(" __cudaRegisterFunction")).unwrap();
        let registered: u32 = registered.split_whitespace().next().unwrap().parse().unwrap();
        assert!(registered > 1000, "{summary}");
        if backend == "ggml-cuda12" {
            assert_eq!(registered, 6741);
        }
        for part in ["no call failed", "libcuda.so.1 from vgpu-run", "libggml-cuda.so"] {
            assert!(summary.contains(part), "{part}: {summary}");
        }
    }
}

#[test]
fn the_call_that_a_process_died_in_is_named() {
    let place = TempDir::with_prefix("vgpu-trace-").unwrap();
    let program = place.path().join("trace");
    // The shims are built along with the launcher.
    programs::launcher().unwrap();
    let compiled = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(Path::new(ROOT).join("testbed/standins/trace.c"))
        .arg(Path::new(ROOT).join("embedded/libcuda.so.1"))
        .arg("-lpthread")
        .status()
        .unwrap();
    assert!(compiled.success());
    let traced = trace(&program, &[]);
    let Traced { summary, calls, .. } = &traced;
    let head = summary.lines().next().unwrap();
    assert!(head.contains("SIGSEGV") && head.contains("ended inside cuDeviceGetCount(0x8,"), "{summary}");
    assert!(summary.contains("101 CUDA_ERROR_INVALID_DEVICE"), "{summary}");
    assert_eq!(traced.output.status.code(), Some(128 + 11));
    assert_eq!(calls.get("cuDriverGetVersion"), Some(&60_000), "two threads of 30,000");
    assert_eq!(calls.get("cuDeviceGetCount"), Some(&3), "one of them the child's");
    assert!(summary.contains("2 processes made"), "{summary}");
    let unfinished = lines(&traced).iter().filter(|line| line.ends_with("did not return")).count();
    assert!(unfinished >= 1);
}
