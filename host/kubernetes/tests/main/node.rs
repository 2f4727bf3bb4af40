//! A node in a temporary directory: the plugin's process, what a host has, and instances of `vgpu-device`.

use std::fs;
use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_recording_cuda::Recording;

use crate::kubelet::{Kubelet, Plugin, until};

/// A profile of two devices, each of which gets a quarter of the recording libcuda's 8 GiB.
pub const SMALL: &str = "[[profile]]\nname = \"small\"\nmemory = \"2G\"\nvm-memory = \"1G\"\ncount = 2\n";

/// A node. Its processes end when it is dropped.
pub struct Node {
    folder: TempDir,
    driver: Recording,
    plugin: Option<Child>,
    /// Devices that are not the plugin's.
    others: Vec<Child>,
}

/// Returns the program that serves devices, beside the plugin's program.
fn vgpu_device() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_vgpu-device-plugin")).with_file_name("vgpu-device");
        if !program.exists() {
            let cargo = std::env::var_os("CARGO").expect("run by cargo");
            let mut build = Command::new(cargo);
            build.args(["build", "--locked", "--package", "vgpu-serve", "--bin", "vgpu-device"]);
            if !cfg!(debug_assertions) {
                build.arg("--release");
            }
            assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        }
        program
    })
}

/// Starts a kubelet and the plugin with these profiles, and returns them once the plugin has registered.
pub async fn registered(profiles: &str) -> (Node, Kubelet, Plugin) {
    let mut node = Node::new(profiles);
    let mut kubelet = Kubelet::new(&node.path("kubelet"));
    kubelet.start();
    node.start_plugin();
    let plugin = kubelet.registration().await;
    (node, kubelet, plugin)
}

impl Node {
    /// Makes a node with these profiles, on which no plugin runs.
    pub fn new(profiles: &str) -> Self {
        // Paths of sockets have 107 bytes.
        let folder = tempfile::Builder::new().prefix("k8s").tempdir_in("/tmp").unwrap();
        for name in ["etc", "run", "units", "kubelet"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let host = folder.path().join("host");
        // Another process writes it, so that no thread of this one holds it open while it is started.
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/main/host.py");
        assert!(Command::new("cp").arg(script).arg(&host).status().unwrap().success());
        fs::set_permissions(&host, fs::Permissions::from_mode(0o755)).unwrap();
        let driver = Recording::new(&serde_json::json!({})).unwrap();
        let node = Self { folder, driver, plugin: None, others: Vec::new() };
        node.configure(profiles);
        node
    }

    /// Writes the file of profiles.
    pub fn configure(&self, profiles: &str) {
        let text = |path: PathBuf| path.display().to_string();
        let settings = format!(
            "host-command = [{:?}]\ndevices = [\"/dev/null\"]\n[settings]\nlibcuda = {:?}\nlibcublas = {:?}\n\
             shares = {:?}\n",
            text(self.path("host")),
            text(self.driver.library()),
            text(self.driver.cublas()),
            text(self.path("shares")),
        );
        fs::write(self.path("profiles.toml"), settings + profiles).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the first digits of the GPU's UUID, by which its devices are called.
    pub fn id(&self, profile: &str, index: u32) -> String {
        let gpus = Command::new(vgpu_device())
            .arg("gpus")
            .arg(format!("--libcuda={}", self.driver.library().display()))
            .output()
            .unwrap();
        let gpus: Value = serde_json::from_slice(&gpus.stdout).unwrap();
        let uuid = gpus[0]["uuid"].as_str().unwrap();
        assert_eq!(gpus[0]["memory"], 8_u64 << 30);
        format!("k8s-{profile}-{}-{index}", &uuid[4..12])
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vgpu-device-plugin"));
        for (option, name) in [
            ("--config", "profiles.toml"),
            ("--kubelet", "kubelet"),
            ("--configurations", "etc"),
            ("--runtime", "run"),
        ] {
            command.arg(option).arg(self.path(name));
        }
        command.args(["--tick", "50", "--grace", "1000"]);
        command.env("VGPU_DEVICE", vgpu_device()).stdin(Stdio::null());
        command
    }

    /// Starts the plugin.
    pub fn start_plugin(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        self.plugin = Some(self.command().stderr(log).spawn().unwrap());
    }

    /// Ends the plugin by a signal, and returns whether it ended in order.
    pub fn end_plugin(&mut self, signal: Signal) -> bool {
        let mut plugin = self.plugin.take().unwrap();
        kill_process(pid(plugin.id()), signal).unwrap();
        plugin.wait().unwrap().success()
    }

    /// Runs the plugin's check of the profiles. Returns whether it succeeds, and what it prints.
    pub fn check(&self) -> (bool, String) {
        let output = self.command().arg("--check").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    }

    /// Returns what the plugin has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Has an order of the stand-in for systemctl fail, or not.
    pub fn fail(&self, verb: &str, fails: bool) {
        let path = self.path(&format!("no-{verb}"));
        if fails { fs::write(path, "").unwrap() } else { fs::remove_file(path).unwrap() }
    }

    /// Waits until the plugin has looked at its instances so many times more, whether it was answered or not.
    pub async fn until_looks(&self, more: u64) {
        let looks = || fs::metadata(self.path("looks")).map_or(0, |looks| looks.len());
        let wanted = looks() + more;
        until("the plugin looks at its instances", || looks() >= wanted).await;
    }

    /// Has the stand-in for systemctl take its time for a stop, and record when it is done.
    pub fn slow_stops(&self) {
        fs::write(self.path("slow-stop"), "").unwrap();
    }

    /// Returns the orders that systemctl was given.
    pub fn orders(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("orders")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the process of an instance.
    pub fn process(&self, id: &str) -> u32 {
        fs::read_to_string(self.path(&format!("units/{id}.pid"))).unwrap().parse().unwrap()
    }

    /// Sends a signal to the process of an instance.
    pub fn signal(&self, id: &str, signal: Signal) {
        kill_process(pid(self.process(id)), signal).unwrap();
    }

    /// Waits until the socket of an instance is there, or is not.
    pub async fn until_served(&self, id: &str, is_there: bool) {
        let socket = self.path(&format!("run/{id}/vm/device"));
        until(&format!("{id} served: {is_there}"), || socket.exists() == is_there).await;
    }

    /// Connects to an instance as a VMM does, and shares memory with it. The VM goes on until this is
    /// dropped.
    pub fn vm(&self, id: &str) -> UnixStream {
        let mut vmm = UnixStream::connect(self.path(&format!("run/{id}/vm/device"))).unwrap();
        ask(&mut vmm, 1, b"\0\0\0\0{}\0", &[]);
        let memory = rustix::fs::memfd_create("vm", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, 4096).unwrap();
        let [size, flags] = [32_u32, 3].map(u32::to_ne_bytes);
        let [offset, address, bytes] = [0_u64, 0, 4096].map(u64::to_ne_bytes);
        let map = [&size[..], &flags, &offset, &address, &bytes].concat();
        ask(&mut vmm, 2, &map, &[memory.as_fd()]);
        vmm
    }

    /// Serves a device of the operator's, which is promised memory of the same GPU.
    pub fn serve_other(&mut self, name: &str, memory: &str) {
        let log = fs::File::create(self.path(name)).unwrap();
        fs::create_dir_all(self.path(&format!("other/{name}"))).unwrap();
        let path = |name: &str| self.path(name).display().to_string();
        let mut command = Command::new(vgpu_device());
        command.arg("serve").arg(format!("--bus=vfio-user:{}", path(&format!("other/{name}/device"))));
        command.arg(format!("--control={}", path(&format!("other/{name}/control"))));
        command.arg(format!("--shares={}", path("shares"))).arg(format!("--memory={memory}"));
        command.arg(format!("--libcuda={}", self.driver.library().display()));
        command.arg(format!("--libcublas={}", self.driver.cublas().display()));
        self.others.push(command.stdin(Stdio::null()).stdout(log).spawn().unwrap());
        let ready = || fs::read_to_string(self.path(name)).unwrap().contains("\nready\n");
        let start = std::time::Instant::now();
        while !ready() {
            assert!(start.elapsed().as_secs() < 120, "waited in vain for {name}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Ends the operator's devices.
    pub fn end_others(&mut self) {
        for mut other in self.others.drain(..) {
            kill_process(pid(other.id()), Signal::TERM).unwrap();
            other.wait().unwrap();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(plugin) = &mut self.plugin {
            plugin.kill().unwrap();
            plugin.wait().unwrap();
        }
        self.end_others();
        for unit in fs::read_dir(self.path("units")).unwrap() {
            let path = unit.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "pid") {
                let number: u32 = fs::read_to_string(path).unwrap().parse().unwrap();
                // It may have ended, and its number be another process's.
                let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
                if String::from_utf8_lossy(&line).contains(self.folder.path().to_str().unwrap()) {
                    let _ = kill_process(pid(number), Signal::KILL);
                }
            }
        }
        if std::thread::panicking() {
            eprintln!("the plugin's log:\n{}", fs::read_to_string(self.path("log")).unwrap_or_default());
        }
    }
}

/// Sends a request of the vfio-user protocol by its number, and checks that the reply has no error.
fn ask(vmm: &mut UnixStream, command: u8, payload: &[u8], files: &[BorrowedFd<'_>]) {
    let size = u32::try_from(16 + payload.len()).unwrap().to_ne_bytes();
    let message = [&[command, 0, command, 0][..], &size, &[0; 8], payload].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(files)));
    }
    let sent = sendmsg(&*vmm, &[IoSlice::new(&message)], &mut control, SendFlags::empty()).unwrap();
    assert_eq!(sent, message.len());
    let mut header = [0; 16];
    vmm.read_exact(&mut header).unwrap();
    assert_eq!((&header[..4], header[8]), (&message[..4], 1), "a reply without an error");
    let rest = u32::from_ne_bytes(header[4..8].try_into().unwrap()) - 16;
    vmm.read_exact(&mut vec![0; rest as usize]).unwrap();
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).unwrap()
}
