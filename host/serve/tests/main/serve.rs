//! `vgpu-device serve`: settings from a file and from options, and the printed text.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use crate::program::program;

/// A `serve` process, which ends when this value is dropped.
pub struct Served {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
    /// Output of the process before `ready`.
    printed: String,
}

impl Served {
    /// Starts the process as systemd does, with a directory of its own in `folder`.
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::run(program().env("RUNTIME_DIRECTORY", folder.join("vm1")), arguments)
    }

    /// Starts the process as an operator does.
    fn by_hand(folder: &Path, arguments: &[&str]) -> Self {
        Self::run(&mut by_hand(folder), arguments)
    }

    pub fn run(command: &mut Command, arguments: &[&str]) -> Self {
        Self::run_as("serve", command, arguments)
    }

    /// Starts the program's command of this name.
    pub fn run_as(name: &str, command: &mut Command, arguments: &[&str]) -> Self {
        let mut child = command
            .arg(name)
            .args(arguments)
            .arg("--until-stdin-closes")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (mut printed, mut line) = (String::new(), String::new());
        while stdout.read_line(&mut line).unwrap() > 0 && line != "ready\n" {
            printed.push_str(&line);
            line.clear();
        }
        if line != "ready\n" {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("it is not ready: {printed}{errors}");
        }
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stdout, stderr, printed }
    }

    /// Returns the number of the process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process, and returns what it printed since `ready`.
    pub fn end(self) -> String {
        self.end_with_errors().0
    }

    /// Stops the process, and returns what it printed since `ready` and what was not read from its stderr.
    pub fn end_with_errors(mut self) -> (String, String) {
        drop(self.child.stdin.take());
        let (mut rest, mut errors) = (String::new(), String::new());
        self.stdout.read_to_string(&mut rest).unwrap();
        self.stderr.read_to_string(&mut errors).unwrap();
        assert!(self.child.wait().unwrap().success());
        (rest, errors)
    }

    /// Returns the next line that the process prints on stderr.
    pub fn error(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program's command as an operator starts it, either as root or with `folder` for its sockets.
fn by_hand(folder: &Path) -> Command {
    let mut command = program();
    command.env_remove("RUNTIME_DIRECTORY").env("XDG_RUNTIME_DIR", folder);
    command
}

/// Returns the error output of a command that must fail.
fn refused(arguments: &[&str]) -> String {
    refusal(&mut program(), arguments)
}

fn refusal(command: &mut Command, arguments: &[&str]) -> String {
    let output = command.arg("serve").args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_has_the_settings_and_options_take_precedence() {
    let folder = tempfile::tempdir().unwrap();
    let (config, socket) = (folder.path().join("vm.toml"), folder.path().join("its socket"));
    let bus = format!("vfio-user:{}", socket.display());
    std::fs::write(&config, format!("bus = {bus:?}\nexecutor = \"null\"\nvm-memory = \"2G\"\nvm-slot = 9\n"))
        .unwrap();
    let print = |more: &[&str]| {
        let mut command = program();
        command.args(["serve", "--config", text(&config), "--print"]).args(more);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let qemu = print(&["qemu"]);
    assert!(qemu.contains("size=2048M,share=on") && qemu.contains("\"addr\":\"9\""), "{qemu}");
    assert!(qemu.contains("\"x-msg-timeout\":60000"), "{qemu}");
    assert!(print(&["qemu", "--vm-memory", "512M"]).contains("size=512M"));
    let libvirt = print(&["libvirt"]);
    assert!(libvirt.contains("<qemu:arg value='{\"addr\":\"9\""), "{libvirt}");
    assert!(libvirt.contains("\"x-msg-timeout\":60000"), "{libvirt}");
    assert!(!socket.exists(), "nothing was served");

    let served = Served::start(folder.path(), &["--config", text(&config)]);
    assert!(served.printed.contains(qemu.trim_end()), "{}", served.printed);
    assert!(served.printed.contains(&libvirt), "{}", served.printed);
    assert!(socket.exists());
    // Two processes cannot serve one socket.
    assert!(refused(&["--config", text(&config)]).contains("another process"));
    served.end();
    assert!(!socket.exists());

    // The files of a killed process do not stop the next.
    drop(Served::start(folder.path(), &["--config", text(&config)]));
    assert!(socket.exists(), "it was killed");
    Served::start(folder.path(), &["--config", text(&config)]).end();
}

#[test]
fn each_bus_says_how_guests_come_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let sim = format!("sim:{}", folder.path().join("bus").display());
    let served = Served::start(folder.path(), &["--bus", &sim, "--executor", "null"]);
    assert!(served.printed.contains("VGPU_SYSFS="), "{}", served.printed);
    served.end();
    let v1 = format!("v1:{}", folder.path().join("mediator").display());
    let served = Served::start(folder.path(), &["--bus", &v1, "--executor", "null", "--rate", "1000"]);
    assert!(served.printed.contains("version 1 connect to"), "{}", served.printed);
    served.end();
}

#[test]
fn a_running_device_says_what_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("vm1/control");
    // Other devices of this host, such as those of other tests, share another directory.
    let shares = folder.path().join("shares");
    std::fs::create_dir(&shares).unwrap();
    let status_once = |more: &[&str]| {
        let asked = ["status", "--control", text(&control), "--shares", text(&shares)];
        let output = program().args(asked).args(more).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    // A device that has no processor for two seconds is not heard of. One that is not there is not waited for.
    let status = |more: &[&str]| {
        let mut said = status_once(more);
        for _ in 0..10 {
            if said.0 == Some(0) || !control.exists() {
                break;
            }
            said = status_once(more);
        }
        said
    };
    let (code, none) = status(&["--json"]);
    let none: serde_json::Value = serde_json::from_str(&none).unwrap();
    assert_eq!(
        (code, &none["instances"], &none["gpus"]),
        (Some(1), &[(); 0][..].into(), &[(); 0][..].into())
    );
    let reason = none["unanswered"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("connect to ") && reason.contains("No such file"), "none is served: {reason}");
    let device = folder.path().join("device.sock");
    let mediator = folder.path().join("mediator.sock");
    for (bus, line) in [
        (
            format!("vfio-user:{}", device.display()),
            "null: 0 bytes of 3 GiB in use, no session, 64 channels free",
        ),
        (format!("sim:{}", folder.path().join("bus").display()), "null: 0 bytes of 3 GiB in use, no session"),
        (format!("v1:{}", mediator.display()), "null: 0 bytes of 3 GiB in use, 0 owners of version 1"),
    ] {
        let served = Served::start(folder.path(), &["--bus", &bus, "--executor", "null", "--memory", "3G"]);
        let (code, human) = status(&[]);
        assert_eq!(code, Some(0), "{human}");
        assert!(human.starts_with(&format!("vm1  {bus}  process {}, up ", served.child.id())), "{human}");
        assert!(human.contains(line), "{human}");
        let json: serde_json::Value = serde_json::from_str(&status(&["--json"]).1).unwrap();
        let instance = &json["instances"][0];
        assert_eq!((&instance["name"], &instance["bus"]), (&"vm1".into(), &bus.as_str().into()), "{json}");
        assert_eq!(instance["devices"].as_array().unwrap().len(), usize::from(!bus.starts_with("v1:")));
        served.end();
        assert!(!control.exists());
    }
}

/// Removes the directories of control sockets that processes started by hand have made.
struct Names(Vec<String>);

impl Drop for Names {
    fn drop(&mut self) {
        for name in &self.0 {
            // The socket of another user is in the test's own directory.
            let _ = std::fs::remove_dir(Path::new("/run/vgpu-device").join(name));
        }
    }
}

#[test]
fn devices_that_are_started_by_hand_have_names_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let name = |which: &str| format!("test-{}-{which}", std::process::id());
    let names = Names(["a", "b", "c"].map(name).to_vec());
    let [a, b, c] = &names.0[..] else { unreachable!() };
    // The sockets of the unit's configuration file, and one of the guide.
    let socket = |above: &str, name: &str| {
        let directory = folder.path().join(above).join(name);
        std::fs::create_dir_all(&directory).unwrap();
        directory.join("device")
    };
    let bus = |socket: &Path| format!("vfio-user:{}", socket.display());
    let serve = |bus: &str| Served::by_hand(folder.path(), &["--bus", bus, "--executor", "null"]);
    let status = |name: &str| {
        let mut output = by_hand(folder.path()).args(["status", name]).output().unwrap();
        for _ in 0..10 {
            if output.status.success() {
                break;
            }
            // A device that has no processor for two seconds is not heard of.
            output = by_hand(folder.path()).args(["status", name]).output().unwrap();
        }
        String::from_utf8(output.stdout).unwrap()
    };
    let first = bus(&socket("run", a));
    let second = bus(&folder.path().join(format!("{b}.sock")));
    let served = [serve(&first), serve(&second)];
    assert!(
        status(a).starts_with(&format!("{a}  {first}  process {}", served[0].child.id())),
        "{}",
        status(a)
    );
    assert!(
        status(b).starts_with(&format!("{b}  {second}  process {}", served[1].child.id())),
        "{}",
        status(b)
    );

    // A directory of the same name elsewhere. The error names the option that solves this, and the option
    // works.
    let same = socket("elsewhere", a);
    let taken = bus(&same);
    let options = ["--bus", &taken, "--executor", "null"];
    let said = refusal(&mut by_hand(folder.path()), &options);
    assert!(said.contains(&format!("by the name `{a}`: another process")), "{said}");
    let (_, advised) = said.trim_end().split_once("such as --control ").unwrap();
    assert!(!same.exists(), "the socket of the refused process is left");
    let control = advised.replace("NAME", c);
    let third = Served::by_hand(folder.path(), &[&options[..], &["--control", &control]].concat());
    assert!(status(c).starts_with(&format!("{c}  {taken}  process {}", third.child.id())), "{}", status(c));
    for served in served.into_iter().chain([third]) {
        served.end();
    }
}

#[test]
fn what_cannot_be_served_is_refused_in_a_sentence() {
    assert!(refused(&[]).contains("no bus is given"));
    assert!(
        refused(&["--bus", "sim:/tmp/x", "--rate", "5", "--vm-slot", "3"]).contains("has no vm-slot, rate")
    );
    let said = refused(&["--bus", "sim:/tmp/x", "--cc", "9.0", "--threads", "2"]);
    assert!(said.contains("the executor cuda has no cc, threads"), "{said}");
    let said = refused(&["--bus", "sim:/tmp/x", "--executor", "null", "--libcuda", "/x", "--threads", "2"]);
    assert!(said.contains("the executor null has no libcuda, threads"), "{said}");
    let said = refused(&["--bus", "v1:/tmp/x"]);
    assert!(said.contains("needs devices of version 2") && said.contains("--executor soft"), "{said}");
    let said = refused(&["--bus", "sim:/tmp/x", "--libcuda", "/nowhere/libcuda.so.1"]);
    assert!(
        said.starts_with(
            "vgpu-device: load the NVIDIA driver: /nowhere/libcuda.so.1: cannot open shared object"
        ),
        "{said}"
    );
    assert_eq!(said.matches("libcuda.so.1").count(), 1, "{said}");
    assert!(said.ends_with("; install it on this host\n"), "{said}");
    assert!(refused(&["--bus", "v1:/tmp/x", "--print", "qemu"]).contains("not one that QEMU connects to"));
    assert!(
        refused(&["--config", "/does/not/exist"]).contains("read the configuration file /does/not/exist")
    );
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(refused(&["--config", text(&fifo)]).contains("fifo is a FIFO, not a regular file"));
    assert!(refused(&["--config", "/dev/zero"]).contains("/dev/zero is a character device"));
    let endless = folder.path().join("endless");
    std::fs::File::create(&endless).unwrap().set_len(1 << 40).unwrap();
    assert!(refused(&["--config", text(&endless)]).contains("endless has more than 1048576 bytes"));
    let config = folder.path().join("bad.toml");
    std::fs::write(&config, "bus = \"sim:/a\"\nmemroy = \"8G\"\n").unwrap();
    let said = refused(&["--config", text(&config)]);
    assert!(said.contains("line 2") && said.contains("memroy") && said.contains("bad.toml"), "{said}");
    assert!(said.ends_with("for example: memory = \"8G\"\n") && said.lines().count() == 1, "{said}");
    std::fs::write(&config, "bus = \"sim:/a\"\nmemory = \"8\"\n").unwrap();
    let said = refused(&["--config", text(&config)]);
    assert!(said.contains(&format!("`memory` in {}: memory = 8 is not possible", text(&config))), "{said}");
    let said = refused(&["--config", text(&config), "--memory", "9"]);
    assert!(said.contains("--memory: memory = 9 is not possible") && said.contains("such as 8G"), "{said}");
    let missing = format!("-{}", text(&folder.path().join("none.toml")));
    let said = refused(&["--config", &missing]);
    assert!(said.contains("there is no configuration: ") && said.contains("none.toml would do"), "{said}");
}

/// The first command of an operator names a directory that is not there.
#[test]
fn the_directory_of_a_socket_is_made_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vgpu/vm1.sock");
    let bus = |socket: &Path| format!("vfio-user:{}", socket.display());
    // An operator's umask keeps the VM's user out of nothing.
    let mut strict = Command::new("sh");
    strict.args(["-c", "umask 077; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vgpu-device")]);
    strict.env("RUNTIME_DIRECTORY", folder.path().join("vm1"));
    Served::run(&mut strict, &["--bus", &bus(&socket), "--executor", "null"]).end();
    let made = std::fs::metadata(folder.path().join("vgpu")).unwrap();
    assert_eq!((made.is_dir(), made.permissions().mode() & 0o777), (true, 0o755));
    let deep = folder.path().join("no/such/vm1.sock");
    let said = refused(&["--bus", &bus(&deep), "--executor", "null"]);
    assert!(said.contains(&format!("install -d -m 0755 {}", deep.parent().unwrap().display())), "{said}");
    assert!(!folder.path().join("no").exists());
}

/// The log says who connects and leaves, at its default level, and not without end.
#[test]
fn a_vm_that_connects_and_leaves_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("device");
    let mut served = Served::start(
        folder.path(),
        &["--bus", &format!("vfio-user:{}", socket.display()), "--executor", "null"],
    );
    let connect = || std::os::unix::net::UnixStream::connect(&socket).unwrap();
    drop(connect());
    let said = served.error();
    assert!(said.contains("a VM has connected") && said.contains(&std::process::id().to_string()), "{said}");
    let said = served.error();
    assert!(said.contains("the VM has left") && said.contains(text(&socket)), "{said}");
    for _ in 0..100 {
        drop(connect());
    }
    // The last one is served when it is answered.
    let mut vmm = connect();
    let version = *b"\x01\0\x01\0\x17\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0{}\0";
    std::io::Write::write_all(&mut vmm, &version).unwrap();
    vmm.read_exact(&mut [0; 16]).unwrap();
    drop(vmm);
    let (_, errors) = served.end_with_errors();
    assert!(errors.lines().count() < 60 && errors.contains("too many lines for the log"), "{errors}");
}

/// A GPU of this machine whose driver has no version is served, with a warning.
#[test]
fn a_driver_without_a_version_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let recording = vgpu_recording_cuda::Recording::new(&serde_json::json!({})).unwrap();
    let (libcuda, libcublas) = (recording.library(), recording.cublas());
    let bus = format!("sim:{}", text(&folder.path().join("bus")));
    let arguments = ["--bus", &bus, "--libcuda", text(&libcuda), "--libcublas", text(&libcublas)];
    let (_, warnings) = Served::start(folder.path(), &arguments).end_with_errors();
    let known = ["/sys/module/nvidia/version", "/proc/driver/nvidia/version"]
        .iter()
        .any(|file| Path::new(file).exists());
    assert_eq!(warnings.contains("the driver's version is not known"), !known, "{warnings}");
}

/// A process without a free descriptor keeps a VMM waiting, and serves it as soon as it has one.
#[test]
fn a_vmm_waits_for_a_free_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("device");
    let bus = format!("vfio-user:{}", socket.display());
    let mut served = Served::start(folder.path(), &["--bus", &bus, "--executor", "null"]);
    let pid = rustix::process::Pid::from_raw(served.process().cast_signed()).unwrap();
    let limit = |current| {
        let limit = rustix::process::Rlimit { current: Some(current), maximum: Some(4096) };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limit).unwrap()
    };
    // No number is free below the lowest limit.
    let before = limit(3);
    let mut vmm = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    // The control socket cannot accept then, either, and may be the first to say so.
    let mut told = served.error();
    while told.contains("a client of the control socket") {
        told = served.error();
    }
    assert!(told.contains("a VMM waits to be accepted"), "{told}");
    limit(before.current.unwrap_or(4096).min(4096));
    let version = *b"\x01\0\x01\0\x17\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0{}\0";
    std::io::Write::write_all(&mut vmm, &version).unwrap();
    let mut header = [0; 16];
    vmm.read_exact(&mut header).unwrap();
    assert_eq!(header[..4], version[..4]);
    assert_eq!(header[8], 1, "it is a reply without an error");
    drop(vmm);
    served.end();
}
