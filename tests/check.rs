//! Tests `vgpu-run check` as scripts use it: exit codes, output streams, and that a problem has the same name
//! everywhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use vgpu_artifacts::executable;

/// Directory of an empty PCI bus. Dropping it removes the directory.
struct Bus(PathBuf);

impl Bus {
    fn new() -> Self {
        let template = std::env::temp_dir().join("vgpu-run-bus.XXXXXX");
        let bus = Self(nix::unistd::mkdtemp(&template).unwrap());
        std::fs::create_dir_all(bus.0.join("bus/pci/devices")).unwrap();
        bus
    }

    /// Creates a function with the device's ids and a BAR0 of `registers` bytes.
    fn function(&self, address: &str, registers: u64) -> PathBuf {
        let dir = self.0.join("bus/pci/devices").join(address);
        std::fs::create_dir_all(&dir).unwrap();
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        let resource = format!(
            "0x00000000fe000000 {:#018x} 0x0000000000040200\n{none}\
             0x0000380000000000 0x000038000fffffff 0x000000000014220c\n{}",
            0xfe00_0000 + registers - 1,
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
            std::fs::write(dir.join(name), text).unwrap();
        }
        dir
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // Nothing to be done about it, and the test has been decided.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn vgpu_run(bus: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vgpu-run"))
        .args(arguments)
        .env_clear()
        .envs(std::env::var_os("TMPDIR").map(|folder| ("TMPDIR", folder)))
        .env("PATH", "/usr/bin:/bin")
        .env("VGPU_SYSFS", bus)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(bus: &Path, arguments: &[&str]) -> (i32, Value) {
    let output = vgpu_run(bus, &[&["check", "--json", "--no-ollama"], arguments].concat());
    let value = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), value)
}

#[test]
fn exit_codes() {
    let bus = Bus::new();
    let code = |arguments: &[&str]| vgpu_run(&bus.0, arguments).status.code().unwrap();
    assert_eq!(code(&["check", "--no-ollama"]), 1);
    assert_eq!(code(&["check", "--only", "kernel"]), 0);
    assert_eq!(code(&["check", "--no-such-option"]), 2);
    assert_eq!(code(&["check", "--only", "no-such-link"]), 2);
    assert_eq!(code(&["check", "--help"]), 0);
    assert_eq!(code(&["check", "--only", "kernel", "--timeout", "0.000001"]), 3);
    assert_eq!(code(&["--no-such-option", "x"]), 125, "the launcher's own is another");
}

/// A resource limit that prevents the examination is reported in a sentence, and ends no process.
#[test]
fn limits_under_which_little_can_be_examined() {
    let bus = Bus::new();
    bus.function("0000:00:05.0", 0x1000);
    let under = |limit: &str| {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            &format!("ulimit {limit}; exec \"$0\" check --json"),
            env!("CARGO_BIN_EXE_vgpu-run"),
        ]);
        let output =
            shell.env_clear().env("PATH", "/usr/bin:/bin").env("VGPU_SYSFS", &bus.0).output().unwrap();
        let said = text(&output.stderr);
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{limit}: {said}"));
        (output.status.code(), report["headline"].as_str().unwrap().to_owned())
    };
    for (limit, code, words) in [
        ("-d 1000", 1, "the limit on data is 1000 KiB, and Ollama's server needs 64 MiB"),
        ("-d 40000", 1, "Lift the limit on data (ulimit -d"),
        ("-v 20000", 1, "Lift the limit on address space (ulimit -v"),
        (
            "-n 16",
            3,
            "Not finished: nothing was examined: the limit on open files is 16, and check needs 24.",
        ),
        ("-s 48", 1, "Broken: "),
    ] {
        let (exit, headline) = under(limit);
        assert_eq!(exit, Some(code), "{limit}: {headline}");
        assert!(headline.contains(words), "{limit}: {headline}");
    }
}

#[test]
fn what_is_broken_has_one_name_in_check_and_at_a_start() {
    let bus = Bus::new();
    let names = |expected: &str| {
        let (code, value) = json(&bus.0, &[]);
        assert_eq!((code, value["verdict"].as_str()), (1, Some("broken")));
        let first = &value["first_failure"];
        assert_eq!(
            format!("{}/{}", first["link"].as_str().unwrap(), first["cause"].as_str().unwrap()),
            expected
        );
        let refused = vgpu_run(&bus.0, &["true"]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(125));
        assert!(said.contains(&format!("\ncheck: {expected}: ")), "{said}");
        let check =
            value["checks"].as_array().unwrap().iter().find(|check| check["id"] == first["link"]).unwrap();
        assert!(said.contains(check["found"].as_str().unwrap()), "{said}\n{check}");
    };
    names("pci/device-absent");
    bus.function("0000:01:00.0", 16 << 20);
    names("pci/real-gpu");
    let dir = bus.function("0000:02:00.0", 8 << 10);
    std::os::unix::fs::symlink("/nowhere/drivers/nouveau", dir.join("driver")).unwrap();
    names("pci/driver-bound");
    std::fs::remove_file(dir.join("driver")).unwrap();
    names("device/host-gone");
    std::fs::write(dir.join("vendor"), "nvidia\n").unwrap();
    names("pci/unknown");
}

#[test]
fn interrupted_it_takes_its_children_along() {
    use nix::sys::signal::{Signal, kill};
    let bus = Bus::new();
    // A systemctl that never answers is the child.
    let tools = bus.0.join("tools");
    std::fs::create_dir(&tools).unwrap();
    let (script, mark) = (tools.join("systemctl"), bus.0.join("mark"));
    let text = format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", mark.display());
    executable::write(&script, text.as_bytes()).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_vgpu-run"))
        .args(["check", "--service"])
        .env("PATH", format!("{}:/usr/bin:/bin", tools.display()))
        .env("VGPU_SYSFS", &bus.0)
        .spawn()
        .unwrap();
    let child = loop {
        let written = std::fs::read_to_string(&mark).unwrap_or_default();
        if let (true, Ok(child)) = (written.ends_with('\n'), written.trim().parse()) {
            break nix::unistd::Pid::from_raw(child);
        }
        assert!(check.try_wait().unwrap().is_none(), "it ended before its child began");
        std::thread::yield_now();
    };
    kill(nix::unistd::Pid::from_raw(check.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(check.wait().unwrap().code(), Some(130));
    // Killed, and left to whoever takes over orphans.
    while kill(child, None).is_ok() {
        let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        if state.contains(") Z ") {
            break;
        }
        std::thread::yield_now();
    }
}

#[test]
fn json_is_one_object_whatever_is_asked_for() {
    let bus = Bus::new();
    for arguments in
        [&[][..], &["--only", "environment"], &["--timeout", "0.000001"], &["--verbose"], &["--quiet"]]
    {
        let (_, value) = json(&bus.0, arguments);
        assert_eq!(value["schema"], "vgpu-run.check/1", "{arguments:?}");
        assert!(value["checks"].as_array().is_some_and(|checks| !checks.is_empty()), "{arguments:?}");
    }
}

/// Compiles a C source in the bus's directory with `flags` and returns the path of the result.
fn compiled(bus: &Bus, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (path, file) = (bus.0.join(name), bus.0.join(format!("{name}.c")));
    std::fs::write(&file, source).unwrap();
    let cc =
        Command::new("cc").arg("-o").arg(&path).arg(&file).args(flags).current_dir(&bus.0).output().unwrap();
    assert!(cc.status.success(), "{}", text(&cc.stderr));
    path
}

/// `check PROGRAM` says in one sentence that a program needs private tables of NVIDIA's driver.
#[test]
fn a_program_that_needs_private_tables_is_told_so() {
    const RUNTIME: &str = "const char *const names[] = {\"libcuda.so.1\", \"cuGetExportTable\"};\n\
        const unsigned char table[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};\n";
    const MAIN: &str = "int main(void) { return 0; }\n";
    let bus = Bus::new();
    let looked = |program: &Path| {
        let (code, value) = json(&bus.0, &["--only", "ollama", program.to_str().unwrap()]);
        let check =
            value["checks"].as_array().unwrap().iter().find(|check| check["id"] == "ollama").unwrap().clone();
        (code, check, value["headline"].as_str().unwrap().to_owned(), value["issues"].clone())
    };
    let linked_in = compiled(&bus, "linked-in", &format!("{RUNTIME}{MAIN}"), &[]);
    let (code, check, headline, issues) = looked(&linked_in);
    assert_eq!((code, &issues), (1, &serde_json::json!(["ollama/private-tables"])), "{check}");
    let expected = format!(
        "{} has the CUDA runtime linked in, which asks for NVIDIA's private export tables. Behind NVIDIA's private export tables is a check \
         that the driver is genuine, which vgpu-run does not defeat.",
        linked_in.display()
    );
    assert!(headline.contains(&expected), "{headline}");

    let soname = "libcudnn.so.9";
    compiled(&bus, soname, "", &["-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9"]);
    let needs = compiled(&bus, "needs", MAIN, &["-Wl,--no-as-needed", "-L.", "-l:libcudnn.so.9"]);
    let (code, check, _, issues) = looked(&needs);
    assert_eq!((code, &issues), (0, &serde_json::json!(["ollama/private-tables"])), "a warning: {check}");
    assert!(check["found"].as_str().unwrap().contains("needs libcudnn.so.9, NVIDIA's cuDNN"), "{check}");

    let neither = compiled(&bus, "neither", MAIN, &[]);
    let (code, check, _, issues) = looked(&neither);
    assert_eq!((code, &issues), (0, &serde_json::json!([])), "{check}");
    assert!(check["found"].as_str().unwrap().contains("is no Ollama"), "{check}");
    let (code, check, _, _) = looked(&bus.0.join("nowhere"));
    assert_eq!((code, check["status"].as_str()), (1, Some("fail")), "{check}");
}

#[test]
fn piped_output_is_plain() {
    let bus = Bus::new();
    let output = vgpu_run(&bus.0, &["check", "--no-ollama"]);
    let said = text(&output.stdout);
    assert!(said.is_ascii() && !said.contains('\u{1b}'), "no locale, no terminal: {said}");
    // But a line for each link that takes five seconds, as on a busy machine.
    let said_besides = text(&output.stderr);
    let shown = said_besides.lines().find(|line| !line.starts_with("vgpu-run: check: "));
    assert_eq!(shown, None, "no progress where nobody sees it");
    assert!(said.contains("[x] PCI function") && said.contains("\nBroken: PCI function: "));
    assert!(said.contains("not reached (needs pci)"));
    let quiet = text(&vgpu_run(&bus.0, &["check", "-q", "--no-ollama"]).stdout);
    assert!(quiet.starts_with("Broken: ") && said.ends_with(&quiet));
}

#[test]
fn pages_and_lists() {
    let bus = Bus::new();
    let list = text(&vgpu_run(&bus.0, &["check", "--list"]).stdout);
    for line in list.lines() {
        let id = line.split_whitespace().next().unwrap();
        let page = text(&vgpu_run(&bus.0, &["check", "--explain", id]).stdout);
        assert!(page.starts_with(&format!("# {id}: ")), "{id}");
    }
}

#[test]
fn a_bundle_is_written_and_said_on_stderr() {
    let bus = Bus::new();
    let path = bus.0.join("bundle.json");
    let output = vgpu_run(&bus.0, &["check", "--json", "--no-ollama", "--bundle", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "the verdict's");
    assert!(text(&output.stderr).contains("wrote"));
    let bundle: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let inner: Value = serde_json::from_str(bundle["check.json"].as_str().unwrap()).unwrap();
    assert_eq!(inner["verdict"], "broken");
    let nowhere = vgpu_run(&bus.0, &["check", "--no-ollama", "--bundle", "/no/such/folder/x.tar.gz"]);
    assert_eq!(nowhere.status.code(), Some(3));
}
