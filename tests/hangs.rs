//! Tests that no command of vgpu-run blocks on files that never answer, such as a FIFO that somebody put in
//! place of a file.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use vgpu_artifacts::executable;

/// Time limit for a command. A check ends within its `--timeout`, but these tests run in parallel.
const CHECK: Duration = Duration::from_mins(2);

/// Directory with an empty PCI bus and the files of a test.
struct Bed(tempfile::TempDir);

impl Bed {
    fn new() -> Self {
        let bed = Self(tempfile::TempDir::with_prefix("vgpu-hangs-").unwrap());
        fs::set_permissions(bed.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(bed.path("sys/bus/pci/devices")).unwrap();
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mkfifo(&path, Mode::from_bits_truncate(0o666)).unwrap();
        path
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vgpu-run"));
        command.args(words).env_clear().env("PATH", "/usr/bin:/bin").env("VGPU_SYSFS", self.path("sys"));
        command.stdin(Stdio::null());
        command
    }

    /// Builds a program that looks like an Ollama of the second era, in the directory layout of its releases.
    fn ollama(&self) -> PathBuf {
        const SOURCE: &str = "__attribute__((section(\".go.buildinfo\"), used)) static const char go[] = \"go1.26\";\n\
            const char *const texts[] = {\"discovering available GPUs\", \"inference compute\"};\n\
            int main(void) { return 0; }\n";
        let (bin, libraries) = (self.path("bin"), self.path("lib/ollama/cuda_v12"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&libraries).unwrap();
        fs::write(self.path("lib/ollama/libggml-base.so"), "").unwrap();
        let (program, source) = (bin.join("ollama"), self.path("ollama.c"));
        fs::write(&source, SOURCE).unwrap();
        let cc = Command::new("cc").arg("-o").arg(&program).arg(&source).output().unwrap();
        assert!(cc.status.success(), "{}", text(&cc.stderr));
        program
    }

    /// Creates a PCI function that looks like the device and has no host.
    fn function(&self) -> PathBuf {
        let dir = self.path("sys/bus/pci/devices/0000:00:05.0");
        fs::create_dir_all(&dir).unwrap();
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        let resource = format!(
            "0x00000000fe000000 0x00000000fe001fff 0x0000000000040200\n{none}\
             0x0000380000000000 0x000038000fffffff 0x000000000014220c\n{}",
            none.repeat(4)
        );
        for (name, text) in [
            ("vendor", "0x10de\n"),
            ("device", "0x2331\n"),
            ("class", "0x030200\n"),
            ("subsystem_vendor", "0x10de\n"),
            ("subsystem_device", "0x16c1\n"),
            ("revision", "0xa1\n"),
            ("enable", "1\n"),
            ("resource", &resource),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        dir
    }
}

/// Runs a command and returns its output. Panics if it does not end within `limit`.
#[track_caller]
fn ends(command: &mut Command, limit: Duration) -> Output {
    let begin = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let (tell, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(Child::wait_with_output(child)));
    let Ok(output) = ended.recv_timeout(limit) else {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid.cast_signed()),
            nix::sys::signal::Signal::SIGKILL,
        );
        panic!("{command:?} has not ended after {:?}", begin.elapsed());
    };
    output.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

fn found<'a>(report: &'a Value, link: &str) -> &'a str {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == link).unwrap()["found"].as_str().unwrap()
}

#[test]
fn a_fifo_where_a_backend_should_be_holds_no_start() {
    let bed = Bed::new();
    let program = bed.ollama();
    bed.function();
    let fifo = bed.fifo("lib/ollama/cuda_v12/libggml-cuda.so");
    let words = ["--allow-cpu", program.to_str().unwrap(), "serve"];
    let output = ends(bed.command(&words).env("VGPU_LOG", "warn"), CHECK);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains(fifo.to_str().unwrap()) && said.contains("is a FIFO, not a regular file"),
        "{said}"
    );
    let output = ends(&mut bed.command(&["env", program.to_str().unwrap()]), CHECK);
    assert_eq!(output.status.code(), Some(125), "no device answers: {}", text(&output.stderr));
}

#[test]
fn a_fifo_where_a_backend_should_be_holds_no_check() {
    let bed = Bed::new();
    let program = bed.ollama();
    let fifo = bed.fifo("lib/ollama/cuda_v12/libggml-cuda.so");
    let words = ["check", "--json", "--only", "backend", "--ollama", program.to_str().unwrap()];
    let output = ends(&mut bed.command(&words), CHECK);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = report(&output);
    assert_eq!(report["first_failure"]["cause"], "backend-unreadable", "{report:#}");
    let expected = format!("{} is a FIFO, not a regular file", fifo.display());
    assert!(found(&report, "backend").contains(&expected), "{report:#}");
}

/// A FIFO does not block a reader, whether its path comes from a variable or from a directory of other users.
#[test]
fn fifos_in_other_places_hold_nobody() {
    let bed = Bed::new();
    let program = bed.ollama();
    bed.function();
    fs::write(bed.path("lib/ollama/cuda_v12/libggml-cuda.so"), "no library").unwrap();
    let fifo = bed.fifo("fifo");
    let ollama = program.to_str().unwrap();
    let libraries = bed.fifo("libraries/libcublas.so.12").parent().unwrap().to_owned();
    for name in ["libcuda.so.1", "libcudart.so.12", "libggml-base.so"] {
        bed.fifo(&format!("libraries/{name}"));
    }
    let variables: [(&str, &Path); 7] = [
        ("VGPU_LD_SO_PRELOAD", &fifo),
        ("LD_LIBRARY_PATH", &libraries),
        ("GGML_BACKEND_PATH", &fifo),
        ("VGPU_LOG_FILE", &fifo),
        ("OLLAMA_MODELS", &fifo),
        ("TMPDIR", &fifo),
        ("XDG_RUNTIME_DIR", &fifo),
    ];
    for (name, value) in variables {
        let words = ["check", "--json", "--timeout", "60", "--no-ollama", "--ollama", ollama];
        let output = ends(bed.command(&words).env(name, value), CHECK);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output.stderr));
        let found = report(&output);
        assert_eq!(found["unanswered"], serde_json::json!([]), "{name}: {found:#}");
        let output = ends(bed.command(&["--allow-cpu", ollama, "serve"]).env(name, value), CHECK);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
    }
    // As the program, and as what interprets it.
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o777)).unwrap();
    let script = bed.path("script");
    executable::write(&script, format!("#!{}\n", fifo.display()).as_bytes()).unwrap();
    for program in [&fifo, &script] {
        let program = program.to_str().unwrap();
        assert_eq!(ends(&mut bed.command(&["--allow-cpu", program]), CHECK).status.code(), Some(126));
        let output = ends(&mut bed.command(&["check", "--json", "--no-ollama", program]), CHECK);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    }
}

/// A FIFO among the files of the PCI bus blocks no command; VGPU_SYSFS may name any directory.
#[test]
fn fifos_on_the_bus_hold_nobody() {
    for name in ["vendor", "modalias", "resource", "enable"] {
        let bed = Bed::new();
        let path = bed.function().join(name);
        let _ = fs::remove_file(&path);
        mkfifo(&path, Mode::from_bits_truncate(0o666)).unwrap();
        let output = ends(&mut bed.command(&["check", "--json", "--no-ollama"]), CHECK);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", text(&output.stderr));
        let output = ends(&mut bed.command(&["--allow-cpu", "/bin/true"]), CHECK);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
    }
}

/// A FIFO as an environment file of a unit blocks no check, if systemctl does not answer.
#[test]
fn a_fifo_as_a_file_of_variables_holds_no_check() {
    let bed = Bed::new();
    let fifo = bed.fifo("variables");
    let tools = bed.path("tools");
    fs::create_dir(&tools).unwrap();
    let shown =
        format!("LoadState=loaded\nUser=\nExecStart=/bin/true\nEnvironmentFiles={}\n", fifo.display());
    let text = format!("#!/bin/sh\nprintf '%s' '{shown}'\n");
    executable::write(&tools.join("systemctl"), text.as_bytes()).unwrap();
    let mut check = bed.command(&["check", "--json", "--only", "environment", "--service"]);
    let output = ends(check.env("PATH", format!("{}:/usr/bin:/bin", tools.display())), CHECK);
    let found = report(&output);
    assert!(self::found(&found, "environment").contains("is a FIFO, not a regular file"), "{found:#}");
}

/// A program that never answers is abandoned when time is up, and its name is reported.
#[test]
fn what_does_not_answer_is_named_when_time_is_up() {
    let bed = Bed::new();
    let tools = bed.path("tools");
    fs::create_dir(&tools).unwrap();
    // It ignores what asks it to end.
    executable::write(&tools.join("systemctl"), b"#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n")
        .unwrap();
    let mut check = bed.command(&["check", "--json", "--no-ollama", "--service", "--timeout", "3"]);
    let begin = Instant::now();
    let output = ends(check.env("PATH", format!("{}:/usr/bin:/bin", tools.display())), CHECK);
    // What follows shows that its time was up. Without that it would wait for systemctl without end.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let found = report(&output);
    assert_eq!(found["verdict"], "incomplete");
    assert_eq!(found["unanswered"][0], "systemctl show --no-pager", "{found:#}");
    assert_eq!(self::found(&found, "pci"), "not reached (no time left)");
}

/// A mounted file system whose server reads requests and never answers them.
struct DeadMount(PathBuf);

impl DeadMount {
    /// Mounts the file system at `at`. Returns `None` if this process may not mount.
    fn new(at: &Path) -> Option<Self> {
        if !Uid::effective().is_root() {
            println!("only root can mount a file system that does not answer");
            return None;
        }
        let device = match fs::File::options().read(true).write(true).open("/dev/fuse") {
            Ok(device) => device,
            Err(error) => {
                println!("no file system that does not answer can be made: /dev/fuse: {error}");
                return None;
            }
        };
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options).unwrap();
        mount("dead", at, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
        std::thread::spawn(move || serve(&device));
        Some(Self(at.to_owned()))
    }
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        // Forced, the unmount releases everyone that waits for it.
        unmount(&self.0, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
    }
}

/// Answers `FUSE_INIT` and leaves every other request unanswered. The requests are read, so that not even a
/// signal frees the caller.
fn serve(mut device: &fs::File) {
    const INIT: u32 = 26;
    let mut request = vec![0; 1 << 20];
    // The mount's end is an error.
    while let Ok(bytes) = device.read(&mut request) {
        let word = |at: usize| u32::from_le_bytes(request[at..at + 4].try_into().unwrap());
        if bytes < 16 || word(4) != INIT {
            continue;
        }
        // struct fuse_out_header: length, no error, the request's number; then struct fuse_init_out.
        let mut answer = vec![0; 16 + 64];
        answer[..4].copy_from_slice(&80_u32.to_le_bytes());
        answer[8..16].copy_from_slice(&request[8..16]);
        for (at, number) in [(16, 7_u32), (20, 31), (24, 65536), (36, 65536), (40, 1)] {
            answer[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        device.write_all(&answer).unwrap();
    }
}

/// A check reports its findings and the operation that blocked, although the blocked process cannot be
/// killed.
#[test]
fn a_file_system_that_does_not_answer_holds_no_check() {
    let bed = Bed::new();
    let at = bed.path("dead");
    fs::create_dir(&at).unwrap();
    let Some(_mount) = DeadMount::new(&at) else { return };
    let program = at.join("bin/ollama");
    let words = ["check", "--json", "--timeout", "10", "--ollama", program.to_str().unwrap()];
    let begin = Instant::now();
    let output = ends(&mut bed.command(&words), CHECK);
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
    let found = report(&output);
    assert_eq!(output.status.code(), Some(1), "the bus is empty: {found:#}");
    assert_eq!(found["first_failure"]["link"], "pci", "{found:#}");
    assert_eq!(found["unanswered"][0], program.to_str().unwrap(), "{found:#}");
    let bundle = bed.path("bundle.json");
    let words = ["check", "--quiet", "--timeout", "10", "--bundle", bundle.to_str().unwrap()];
    let output = ends(bed.command(&words).env("PATH", at.join("bin")), CHECK);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let bundle: Value = serde_json::from_slice(&fs::read(bundle).unwrap()).unwrap();
    assert!(bundle["check.json"].as_str().unwrap().contains("dead/bin/ollama"), "{bundle:#}");
}

/// A check as root does not report that memory decoding is off, as in a guest that was just booted, because
/// vgpu-run as root turns it on.
#[test]
fn root_is_not_told_that_decoding_is_off() {
    let bed = Bed::new();
    let enable = bed.function().join("enable");
    fs::write(&enable, "0\n").unwrap();
    let output = ends(&mut bed.command(&["check", "--json", "--no-ollama"]), CHECK);
    let report = report(&output);
    let checks = report["checks"].as_array().unwrap();
    let pci = checks.iter().find(|check| check["id"] == "pci").unwrap();
    assert_eq!(pci["cause"], "memory-decoding-off", "{report:#}");
    if Uid::effective().is_root() {
        assert_eq!((&pci["status"], &report["first_failure"]["link"]), (&"warn".into(), &"device".into()));
        assert_eq!(report["first_failure"]["cause"], "host-gone", "nothing is behind it: {report:#}");
        assert!(pci["fix"]["command"].as_str().unwrap().contains("service install"), "{report:#}");
        assert_eq!(fs::read_to_string(enable).unwrap(), "1\n");
    } else {
        assert_eq!((&pci["status"], &report["first_failure"]["link"]), (&"fail".into(), &"pci".into()));
        assert_eq!(fs::read_to_string(enable).unwrap(), "0\n");
    }
}
