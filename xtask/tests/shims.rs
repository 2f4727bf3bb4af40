//! Tests the shims through the real loader, after building those that are not up to date.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use xtask::shims::symbols::{Kind, Returns};
use xtask::shims::{self, LIBRARIES, Library, Options};
use xtask::{exports, workspace};

/// Root of the workspace, after its shims were brought up to date.
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

/// Returns a value of LD_PRELOAD with all shims.
fn all() -> OsString {
    let paths: Vec<_> = LIBRARIES.iter().map(|library| folder().join(library.soname)).collect();
    std::env::join_paths(paths).unwrap()
}

#[test]
fn nothing_is_missing_and_nothing_is_extra() {
    let table = exports::table(&ROOT, &folder()).unwrap();
    assert!(table.ok, "{table}");
    // The launcher copies all of them at each start, and every process of a program maps them. They were 1.68
    // MiB when libcuda first held the code of all, and are 1.76; with a copy of std in each object they were
    // 2.4 MiB, and with std's printer of backtraces 4.1 MiB.
    assert!(table.bytes < 15 << 17, "{table}");
}

#[test]
fn the_manifest_is_true_and_nothing_is_left_to_build() {
    shims::open(&folder()).unwrap();
    assert_eq!(shims::stale(&Options::embedded(&ROOT)).unwrap(), []);
}

/// Builds the program that calls stubs and returns its path.
fn loader(test: &str) -> PathBuf {
    program(test, "loader.c")
}

/// Builds a program from a source in this directory and returns its path.
fn program(test: &str, source: &str) -> PathBuf {
    let program = std::env::temp_dir().join(format!("vgpu-shims-{test}-{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let mut command = Command::new("cc");
    assert!(command.args(["-O1", "-o"]).arg(&program).arg(source).arg("-ldl").status().unwrap().success());
    program
}

/// Returns a stub that returns a status from each library, except for those whose functions are all
/// implemented.
fn stubs() -> Vec<(&'static Library, String)> {
    let manifest = shims::open(&folder()).unwrap();
    let stub = |library: &'static Library| {
        let implemented = &manifest.entry(library.soname).unwrap().implemented;
        let stub = shims::listed(&ROOT, library).unwrap().into_iter().find(|symbol| {
            symbol.kind == Kind::Function(Returns::Status) && !implemented.contains(&symbol.name)
        });
        stub.map(|stub| (library, stub.name))
    };
    LIBRARIES.iter().filter_map(stub).collect()
}

/// Returns the command that calls the stub, which must return not-supported, with logging disabled.
fn call(loader: &Path, library: &Library, stub: &str) -> Command {
    let mut command = Command::new(loader);
    command
        .args([library.soname, stub, &library.not_supported.to_string()])
        .env("LD_LIBRARY_PATH", folder())
        .env_remove("VGPU_LOG")
        .env_remove("VGPU_LOG_FILE");
    command
}

#[test]
fn a_stub_answers_not_supported_and_logs_its_name_once() {
    let loader = loader("stubs");
    for (library, stub) in stubs() {
        for (log, lines) in [("warn", 1), ("error", 0), ("", 0)] {
            let output = call(&loader, library, &stub).env("VGPU_LOG", log).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{} {stub}: {text}", library.soname);
            assert_eq!(text.lines().count(), lines, "{text}");
            assert_eq!(text.matches(&stub).count(), lines, "{text}");
        }
    }
    fs::remove_file(loader).unwrap();
}

#[test]
fn lines_of_every_shim_reach_the_log_file_and_stderr_where_it_is_refused() {
    let loader = loader("logs");
    let folder = std::env::temp_dir().join(format!("vgpu-shims-logs-{}.d", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let (file, fifo) = (folder.join("log"), folder.join("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let stubs = stubs();
    assert!(stubs.iter().any(|(library, _)| library.soname != "libcuda.so.1"));
    for (library, stub) in &stubs {
        let logging = |file: &Path| {
            let mut command = call(&loader, library, stub);
            let output = command.env("VGPU_LOG", "warn").env("VGPU_LOG_FILE", file).output().unwrap();
            assert!(output.status.success(), "{} {stub}", library.soname);
            String::from_utf8(output.stderr).unwrap()
        };
        assert_eq!(logging(&file), "", "{}", library.soname);
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!((text.lines().count(), text.matches(stub).count()), (1, 1), "{}: {text}", library.soname);
        fs::remove_file(&file).unwrap();
        let text = logging(&fifo);
        let why = format!("the log goes to stderr: failed to open {}", fifo.display());
        assert_eq!((text.matches(&why).count(), text.matches(stub).count()), (1, 1), "{text}");
    }
    fs::remove_dir_all(folder).unwrap();
    fs::remove_file(loader).unwrap();
}

/// The code of both runtimes is in one object, but each library keeps its own versions and statuses.
#[test]
fn a_process_can_have_the_runtimes_of_both_versions() {
    let program = program("versions", "versions.c");
    let (old, new) = ("libcudart.so.12", "libcudart.so.13");
    for order in [&[old][..], &[new], &[old, new], &[new, old]] {
        for preload in ["".into(), all()] {
            let mut command = Command::new(&program);
            command.args(order).env("LD_LIBRARY_PATH", folder()).env("LD_PRELOAD", preload);
            let output = command.output().unwrap();
            let expected: Vec<_> = order.iter().map(|soname| format!("{soname} {}", &soname[13..])).collect();
            assert!(output.status.success(), "{order:?}: {output:?}");
            let answers = String::from_utf8_lossy(&output.stdout);
            assert_eq!(answers.lines().collect::<Vec<_>>(), expected);
        }
    }
    fs::remove_file(program).unwrap();
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
