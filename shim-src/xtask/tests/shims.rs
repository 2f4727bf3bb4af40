//! The shims themselves, through the real loader. Builds them if they are not up to date.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use xtask::shims::symbols::{Kind, Returns};
use xtask::shims::{self, LIBRARIES, Options};
use xtask::{exports, workspace};

/// The workspace, its shims being up to date.
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = workspace::root().unwrap();
    let report = shims::update(&Options::embedded(&root)).unwrap();
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|(soname, error)| format!("{soname}: {}", workspace::chain(error)))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
    root
});

fn folder() -> PathBuf {
    Options::embedded(&ROOT).out
}

/// A value for LD_PRELOAD with all shims.
fn all() -> OsString {
    let paths: Vec<_> = LIBRARIES.iter().map(|library| folder().join(library.soname)).collect();
    std::env::join_paths(paths).unwrap()
}

#[test]
fn nothing_is_missing_and_nothing_is_extra() {
    let table = exports::table(&ROOT, &folder()).unwrap();
    assert!(table.ok, "{table}");
    // The limit that the whole project sets itself: 4.25 MiB. A quarter of each object is the standard library's printer of backtraces,
    // and 20 KiB are what it takes to open a log where other users can write.
    assert!(table.bytes < 4352 << 10, "{table}");
}

#[test]
fn the_manifest_is_true_and_nothing_is_left_to_build() {
    shims::open(&folder()).unwrap();
    assert_eq!(shims::stale(&Options::embedded(&ROOT)).unwrap(), []);
}

#[test]
fn a_stub_answers_not_supported_and_logs_its_name_once() {
    let loader = std::env::temp_dir().join(format!("vgpu-shims-loader-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loader.c");
    assert!(Command::new("cc").args(["-O1", "-o"]).arg(&loader).arg(source).status().unwrap().success());
    let manifest = shims::open(&folder()).unwrap();
    for library in &LIBRARIES {
        let implemented = &manifest.entry(library.soname).unwrap().implemented;
        let stub = shims::listed(&ROOT, library).unwrap().into_iter().find(|symbol| {
            symbol.kind == Kind::Function(Returns::Status) && !implemented.contains(&symbol.name)
        });
        // A library of which everything is implemented has no stub to call.
        let Some(stub) = stub else { continue };
        for (log, lines) in [("warn", 1), ("error", 0), ("", 0)] {
            let output = Command::new(&loader)
                .args([library.soname, &stub.name, &library.not_supported.to_string()])
                .env("LD_LIBRARY_PATH", folder())
                .env("VGPU_LOG", log)
                .env_remove("VGPU_LOG_FILE")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{} {}: {text}", library.soname, stub.name);
            assert_eq!(text.lines().count(), lines, "{text}");
            assert_eq!(text.matches(&stub.name).count(), lines, "{text}");
        }
    }
    fs::remove_file(loader).unwrap();
}

#[test]
fn preloaded_into_a_program_that_uses_none_they_are_not_noticed() {
    for (script, status) in [("true", 0), ("exit 7", 7 << 8), ("kill -9 $$", 9)] {
        let output = Command::new("sh")
            .args(["-c", script])
            .env("LD_PRELOAD", all())
            .env_remove("VGPU_LOG")
            .output()
            .unwrap();
        let seen = (output.status.into_raw(), output.stdout.len(), output.stderr.len());
        assert_eq!(seen, (status, 0, 0), "{output:?}");
    }
}
