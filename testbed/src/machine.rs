//! A virtual machine with a VGPU-STUB on its PCI bus: the device's process, the machine, and what lies in it.
//!
//! In the guest are busybox, the launcher and the test bed's programs in `/usr/local/bin`, the host's C
//! library and what else those need, and read-only directories of the host under their own paths. Users:
//! `root`; one in the group that may open the device; and `nobody`, who may not.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_guest::agent::init::{InitPlan, PLAN};
use vgpu_guest::agent::message::{End, Job};
use vgpu_guest::vm::initramfs::Initramfs;
use vgpu_guest::vm::machine::{Machine, MachineError, agent_socket};
use vgpu_guest::vm::modules::Modules;
pub use vgpu_guest::vm::qemu::Accelerator;
use vgpu_guest::vm::qemu::{Qemu, Settings, check_kvm};
use vgpu_guest::vm::share::Daemon;
use vgpu_serve::vm::Vm;
use vgpu_wire::pci::V2_BAR2_BYTES;

use crate::bed::terminate;
use crate::programs;

/// Name of the artifact that contains QEMU and virtiofsd.
const QEMU: &str = "qemu";
const KERNEL: &str = "guest-kernel";
/// Kernel modules that a guest needs for its buses, the agent's port and the host's directories.
const MODULES: [&str; 3] = ["virtio_pci", "virtio_console", "virtiofs"];
/// Group ID, and user ID of its only member, that may open the device.
const DEVICE_GROUP: u32 = 990;
const USER: u32 = 1000;
/// PCI slot of the device in the guest.
const SLOT: u8 = 4;
/// Error text for queries of a device that another process serves.
const OTHERS: &str = "the device is served by somebody else";
/// Limit of a boot, which takes two seconds on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_mins(2);

/// Returns the QEMU at `given`, or that of the artifacts, after checking that it runs.
fn qemu(given: Option<&Path>) -> Result<Qemu> {
    let qemu = match given {
        Some(path) => Qemu::Installed(path.to_owned()),
        None => Qemu::Unpacked(vgpu_artifacts::fetch(QEMU).context("fetch QEMU")?),
    };
    qemu.check()?;
    Ok(qemu)
}

/// A device process behind a vfio-user socket, which ends when the value is dropped.
#[derive(Debug)]
struct Served {
    child: Child,
    socket: PathBuf,
    /// Pipe to the device process, whose closing ends it.
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Served {
    fn start(folder: &Path, options: &Options) -> Result<Self> {
        let socket = folder.join("device");
        let mut command = Command::new(programs::testbed()?);
        command.arg("device").arg("--bus").arg(format!("vfio-user:{}", socket.display()));
        command.args(["--executor", &options.executor, "--until-stdin-closes"]).args(&options.device);
        if options.quiet_device {
            command.stderr(Stdio::null());
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start the device")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        stdout.read_line(&mut line)?;
        if line.trim() != "ready" {
            let status = child.wait()?;
            bail!("the device did not start: {status}, said {line:?}");
        }
        Ok(Self { child, socket, stdin, stdout })
    }

    /// Queries the status of the device.
    fn status(&mut self) -> Result<Value> {
        writeln!(self.stdin, "status").context("ask the device")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("read the device's answer")?;
        serde_json::from_str(&line).with_context(|| format!("understand the device's answer {line:?}"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The process may already have ended; failures are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Options of a guest to boot.
#[derive(Clone, Debug)]
pub struct Options {
    /// Accelerator of the guest's processor.
    pub accelerator: Accelerator,
    /// Number of processors of the guest.
    pub cpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u64,
    /// Path of an installed QEMU; `None` selects the artifact.
    pub qemu: Option<PathBuf>,
    /// Name of the user who may open the device.
    pub user: String,
    /// Executor of the device.
    pub executor: String,
    /// Additional options of `vgpu-testbed device`.
    pub device: Vec<String>,
    /// Whether the device's log is discarded, for guests that are expected to fill it.
    pub quiet_device: bool,
    /// Directories of the host that the guest sees read-only.
    pub shares: Vec<PathBuf>,
    /// Number of 2 MiB pages that the guest's kernel reserves.
    pub huge_pages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            accelerator: Accelerator::Tcg,
            cpus: 1,
            memory_mib: 1024,
            qemu: None,
            user: "guest".to_owned(),
            executor: "soft".to_owned(),
            device: Vec::new(),
            quiet_device: false,
            shares: Vec::new(),
            huge_pages: 0,
        }
    }
}

/// A booted guest, which ends when the value is dropped.
#[derive(Debug)]
pub struct GuestMachine {
    // Drop order: first the machine, then the processes that it talks to.
    machine: Machine,
    _shares: Vec<Daemon>,
    /// Process of the device; `None` if another process serves it.
    device: Option<Served>,
    _folder: TempDir,
}

impl GuestMachine {
    /// Boots a guest and waits until it accepts commands.
    pub fn boot(options: &Options) -> Result<Self> {
        Self::boot_with(options, None)
    }

    /// Boots a guest whose device another process serves. `arguments` are the QEMU arguments that define its
    /// memory and device; the options for these are ignored.
    pub fn boot_on(options: &Options, arguments: &[String]) -> Result<Self> {
        Self::boot_with(options, Some(arguments))
    }

    fn boot_with(options: &Options, others: Option<&[String]>) -> Result<Self> {
        if options.accelerator == Accelerator::Kvm {
            check_kvm()?;
        }
        let qemu = qemu(options.qemu.as_deref())?;
        let kernel = Kernel::fetch()?;
        let folder = TempDir::with_prefix("vgpu-guest-").context("make a folder for the guest")?;
        let device = match others {
            Some(_) => None,
            None => Some(Served::start(folder.path(), options)?),
        };
        let daemons = options.shares.iter().enumerate().map(|(number, share)| {
            let system = vgpu_artifacts::fetch(QEMU).context("fetch virtiofsd")?;
            let command = Qemu::unpacked_program(&system, "usr/libexec/virtiofsd");
            Ok(Daemon::start(command, share, folder.path(), number)?)
        });
        let daemons: Vec<Daemon> = daemons.collect::<Result<_>>()?;
        let initramfs = folder.path().join("initramfs");
        kernel.root(options, &daemons)?.write_to(&initramfs)?;
        let settings = Settings {
            accelerator: options.accelerator,
            cpus: options.cpus,
            kernel: kernel.image,
            initramfs,
            append: match options.huge_pages {
                0 => String::new(),
                pages => format!("hugepagesz=2M hugepages={pages}"),
            },
        };
        let (agent, listener) = agent_socket(folder.path())?;
        // The guest boots with the arguments that `vgpu-device serve` prints for its users.
        let own = device.as_ref().map(|device| {
            let (socket, memory_mib) = (device.socket.clone(), options.memory_mib);
            Vm { socket, memory_mib, slot: Some(SLOT), window_bytes: V2_BAR2_BYTES }.qemu()
        });
        let arguments = others.or(own.as_deref()).unwrap_or_default();
        let command = qemu.machine(&settings, &daemons, &agent, arguments);
        let machine = Machine::boot(command, listener, BOOT_LIMIT)?;
        Ok(Self { machine, _shares: daemons, device, _folder: folder })
    }

    /// Returns the time at which the guest accepted commands, in seconds since the kernel's start, as the
    /// kernel counts them.
    pub fn ready(&self) -> &str {
        self.machine.ready()
    }

    /// Returns the console's output so far.
    pub fn console(&self) -> String {
        self.machine.console()
    }

    /// Returns the device's status: its sessions, if it is of version 2, and the number of the guest's
    /// register accesses.
    pub fn device_status(&mut self) -> Result<Value> {
        status(self.device.as_mut())
    }

    /// Returns the ID of the device process, if this guest has its own.
    pub fn device_pid(&self) -> Option<u32> {
        self.device.as_ref().map(|device| device.child.id())
    }

    /// Sends the device process SIGTERM, waits until it has ended, and returns how long that took.
    pub fn terminate_device(&mut self) -> Result<Duration> {
        terminate(&mut self.device.as_mut().context(OTHERS)?.child)
    }

    /// Runs a command as a user of the guest and copies its output to `out` and `err` as it arrives.
    pub fn run_command(
        &mut self,
        user: &str,
        command: &[String],
        limit: Option<Duration>,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> Result<End, MachineError> {
        self.machine.run_job(&job(user, command.to_vec()), limit, out, err)
    }

    /// Runs a command and calls `each` with every line of its stdout as it arrives, and with a function that
    /// queries the device's status at that moment.
    pub fn follow(
        &mut self,
        user: &str,
        command: &[&str],
        limit: Duration,
        each: impl FnMut(&str, &mut dyn FnMut() -> Result<Value>) -> Result<()>,
    ) -> Result<End> {
        let job = job(user, command.iter().map(|&word| word.to_owned()).collect());
        let mut lines = Lines { device: self.device.as_mut(), begun: Vec::new(), each, failed: None };
        let mut err = Vec::new();
        let ended = self.machine.run_job(&job, Some(limit), &mut lines, &mut err);
        if let Some(error) = lines.failed {
            return Err(error);
        }
        let end = ended?;
        if end.code() != 0 {
            eprint!("{}", String::from_utf8_lossy(&err));
        }
        Ok(end)
    }

    /// Runs a command and returns how it ended, its stdout and its stderr.
    pub fn output(
        &mut self,
        user: &str,
        command: &[&str],
        limit: Duration,
    ) -> Result<(End, String, String), MachineError> {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = self.run_command(user, &command, Some(limit), &mut out, &mut err)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok((end, text(out), text(err)))
    }
}

/// Queries the status of a device, or fails if another process serves it.
fn status(device: Option<&mut Served>) -> Result<Value> {
    device.context(OTHERS)?.status()
}

fn job(user: &str, command: Vec<String>) -> Job {
    Job {
        command,
        user: user.to_owned(),
        folder: "/".to_owned(),
        environment: [("GGML_NO_BACKTRACE".to_owned(), "1".to_owned())].into(),
    }
}

/// A writer that splits a command's output into lines.
struct Lines<'a, F> {
    device: Option<&'a mut Served>,
    /// Start of a line whose end has not arrived.
    begun: Vec<u8>,
    each: F,
    failed: Option<anyhow::Error>,
}

impl<F: FnMut(&str, &mut dyn FnMut() -> Result<Value>) -> Result<()>> Write for Lines<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        while let Some(end) = self.begun.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.begun.drain(..=end).collect();
            let mut device = self.device.as_deref_mut();
            let each = &mut self.each;
            if let Err(error) =
                each(String::from_utf8_lossy(&line).trim_end(), &mut || status(device.as_deref_mut()))
            {
                self.failed = Some(error);
                return Err(std::io::ErrorKind::Other.into());
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The kernel and userland of the artifact.
struct Kernel {
    folder: PathBuf,
    image: PathBuf,
    version: String,
}

impl Kernel {
    fn fetch() -> Result<Self> {
        let folder = vgpu_artifacts::fetch(KERNEL).context("fetch the guest's kernel")?;
        let boot = folder.join("boot");
        for entry in std::fs::read_dir(&boot).with_context(|| format!("list {}", boot.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(version) = name.strip_prefix("vmlinuz-") {
                return Ok(Self { image: boot.join(&name), version: version.to_owned(), folder });
            }
        }
        bail!("{} holds no kernel", boot.display())
    }

    /// Returns the root file system of the guest.
    fn root(&self, options: &Options, daemons: &[Daemon]) -> Result<Initramfs> {
        let mut root = Initramfs::new();
        root.program("/init", &programs::agent()?)?;
        for program in [programs::launcher()?, programs::llama()?, programs::standin()?] {
            let name = program.file_name().context("a program without a name")?;
            root.program(Path::new("/usr/local/bin").join(name), &program)?;
        }
        self.busybox(&mut root)?;
        for share in daemons.iter().map(Daemon::share) {
            libraries(&mut root, &share.path)?;
        }

        let user = &options.user;
        let accounts = format!(
            "root:x:0:0:root:/root:/bin/sh\n{user}:x:{USER}:{DEVICE_GROUP}::/home/{user}:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
        );
        root.text("/etc/passwd", accounts)?;
        root.text("/etc/group", format!("root:x:0:\nvgpu:x:{DEVICE_GROUP}:\nnogroup:x:65534:\n"))?;
        // Open to all users, because shared directories of the host may lie below it.
        root.folder("/root", 0o755, 0)?;
        root.folder(Path::new("/home").join(user), 0o755, USER)?;

        let system = self.folder.join("lib/modules").join(&self.version);
        let files = Modules::below(&system)?.order(&MODULES)?;
        let mut modules = Vec::new();
        for file in files {
            let place = Path::new("/").join(file.strip_prefix(&self.folder)?);
            root.file(&place, &file)?;
            modules.push(place);
        }
        let shares = daemons.iter().map(|daemon| daemon.share().clone()).collect();
        let plan = InitPlan { modules, shares, device_group: Some(DEVICE_GROUP) };
        root.text(PLAN, serde_json::to_vec(&plan)?)?;
        Ok(root)
    }

    /// Adds busybox and a link for each of its commands.
    fn busybox(&self, root: &mut Initramfs) -> Result<()> {
        let busybox = self.folder.join("bin/busybox");
        // It is static: the one that goes into the guest runs here.
        let output = Command::new(&busybox).arg("--list").output().context("run busybox")?;
        for name in String::from_utf8_lossy(&output.stdout).lines() {
            root.link(Path::new("/bin").join(name), "busybox")?;
        }
        root.program("/bin/busybox", &busybox)?;
        Ok(())
    }
}

/// Adds the host libraries on which the libraries in a directory depend.
fn libraries(root: &mut Initramfs, folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        let is_library = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
        if is_library && path.is_file() {
            root.libraries_of(&path, Some(folder))?;
        }
    }
    Ok(())
}
