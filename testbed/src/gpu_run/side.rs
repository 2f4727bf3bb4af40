//! The two sides that are compared: programs through vgpu-run and vgpu-device, and the same programs on the
//! GPU itself. Where there is no GPU, a rehearsal puts something else in its place, and says what.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use tempfile::TempDir;
use vgpu_serve::Facts;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{self, StandIn, random_facts};
use vgpu_testbed::guest;
use vgpu_testbed::programs;

use super::limit::within;

/// How long a device process may take to serve: a GPU's driver loads.
const READY: Duration = Duration::from_mins(2);
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Memory of the device that stands in for a GPU.
const LOOP_MIB: u64 = 8 << 10;
/// The log of a device process, in its bus's directory.
const LOG: &str = "vgpu-device.log";
/// Lines of it that the report has at most: the last ones.
const LOG_LINES: usize = 200;

/// What stands behind the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Executor {
    /// The GPU of this machine.
    Cuda,
    /// A rehearsal: our own libcuda, on the soft device of a second process.
    CudaLoop,
    /// A rehearsal: no GPU, and no executor for one.
    Soft,
}

impl Executor {
    /// What the side `native` is.
    const fn native(self) -> &'static str {
        match self {
            Self::Cuda => "NVIDIA's driver and libraries, without vgpu-run",
            Self::CudaLoop => "rehearsal: vgpu-run on the soft device that stands in for the GPU",
            Self::Soft => "rehearsal: the same soft device once more",
        }
    }
}

/// A device process; it ends with this value.
struct Device {
    folder: TempDir,
    child: Child,
    /// It ends when this closes.
    _stdin: ChildStdin,
}

impl Device {
    /// Starts it and waits until it serves. `behind`: the bus of the device that it takes for a GPU.
    /// `libraries`: where it finds NVIDIA's.
    fn start(arguments: &[&str], behind: Option<&Path>, libraries: Option<&Path>) -> Result<Self> {
        // Shared memory, so that the window's pages are never written back to a disk.
        let folder = TempDir::with_prefix_in("vgpu-gpu-", "/dev/shm").context("make a folder in /dev/shm")?;
        let mut command = Command::new(programs::device()?);
        command.arg("serve").arg("--bus").arg(format!("sim:{}", folder.path().display()));
        command.arg("--control").arg(folder.path().join("asked"));
        command.args(arguments).arg("--until-stdin-closes").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env_remove("VGPU_SYSFS");
        if let Some(behind) = behind {
            command.env("VGPU_SYSFS", behind);
        }
        if let Some(libraries) = libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.stderr(File::create(folder.path().join(LOG)).context("make a file for a log")?);
        let mut child = command.spawn().context("start vgpu-device")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let device = Self { folder, child, _stdin: stdin };
        match within(READY, move || lines.any(|line| line.is_ok_and(|line| line == "ready"))) {
            Some(true) => Ok(device),
            Some(false) => bail!("vgpu-device serves nothing: {}", device.log().pop().unwrap_or_default()),
            None => bail!("vgpu-device does not serve within {READY:?}: {}", device.log().join("; ")),
        }
    }

    /// The last lines of its log.
    fn log(&self) -> Vec<String> {
        let text = fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|&line| line.to_owned()).collect()
    }

    fn sysfs(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // It may have ended; nothing can be done about either failure here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How programs get at a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side<'a> {
    /// Under the launcher, with the device of this bus.
    Through(&'a Path),
    /// On the GPU, with NVIDIA's libraries from this folder, or those of the machine.
    Native(Option<&'a Path>),
}

impl Side<'_> {
    /// A program on this side.
    pub fn command(self, program: &Path) -> Result<Command> {
        Ok(match self {
            Self::Through(sysfs) => {
                let mut command = Command::new(programs::launcher()?);
                command.arg("--").arg(program).env("VGPU_SYSFS", sysfs);
                command
            }
            Self::Native(folder) => {
                let mut command = Command::new(program);
                if let Some(folder) = folder {
                    command.env("LD_LIBRARY_PATH", folder);
                }
                command
            }
        })
    }

    /// The same for a model.
    pub const fn place(&self) -> guest::Place<'_> {
        match self {
            Self::Through(sysfs) => guest::Place::Gpu(sysfs),
            Self::Native(folder) => guest::Place::Native(*folder),
        }
    }
}

/// The device processes, and both sides. They end with this value, the one in front first.
pub struct Sides {
    front: Device,
    behind: Option<StandIn>,
    /// NVIDIA's libraries, where they are in the cache.
    libraries: Option<PathBuf>,
    executor: Executor,
}

impl Sides {
    /// Starts what is needed. `gpu`: the UUID of the GPU, if it is not the first.
    pub fn start(executor: Executor, cc: &str, gpu: Option<&str>, backend: Backend) -> Result<Self> {
        let libraries = backend.nvidia_if_there()?;
        let soft = ["--executor", "soft", "--cc", cc];
        let (front, behind) = match executor {
            Executor::Soft => (Device::start(&soft, None, None)?, None),
            Executor::CudaLoop => {
                let facts = Facts { memory_mib: LOOP_MIB, ..random_facts(&[cc]) };
                let behind = StandIn::start(&facts, &[], false)?;
                let options = behind.options();
                let mut cuda = vec!["--executor", "cuda", "--worker-connects", "true"];
                cuda.extend(options.iter().map(String::as_str));
                (Device::start(&cuda, Some(behind.bed.sysfs()), None)?, Some(behind))
            }
            Executor::Cuda => {
                let mut cuda = vec!["--executor", "cuda"];
                cuda.extend(gpu.iter().flat_map(|gpu| ["--gpu", gpu]));
                (Device::start(&cuda, None, libraries.as_deref())?, None)
            }
        };
        Ok(Self { front, behind, libraries, executor })
    }

    /// Through vgpu-run and vgpu-device.
    pub fn through(&self) -> Side<'_> {
        Side::Through(self.front.sysfs())
    }

    /// What that is compared with.
    pub fn native(&self) -> Side<'_> {
        match (self.executor, &self.behind) {
            (Executor::Cuda, _) => Side::Native(self.libraries.as_deref()),
            (_, Some(behind)) => Side::Through(behind.bed.sysfs()),
            (_, None) => self.through(),
        }
    }

    /// Both, by their names in the report. Which is first alternates with `round`.
    pub fn both(&self, round: usize) -> [(&'static str, Side<'_>); 2] {
        let sides = [("native", self.native()), ("through", self.through())];
        let [one, other] = sides;
        if round.is_multiple_of(2) { sides } else { [other, one] }
    }

    /// The bus of the device, for programs of the test bed.
    pub fn sysfs(&self) -> &Path {
        self.front.sysfs()
    }

    /// What the sides are.
    pub fn describe(&self) -> Value {
        json!({
            "through": "vgpu-run, and vgpu-device on the simulated bus",
            "native": self.executor.native(),
            "rehearsal": self.executor != Executor::Cuda,
            "libraries": self.libraries,
        })
    }

    /// What the device says of itself.
    pub fn status(&self) -> Result<Value> {
        let folder = self.sysfs().to_owned();
        within(ANSWER, move || bed::control(&folder, "status")).context("vgpu-device does not answer")?
    }

    /// The last lines of its log.
    pub fn log(&self) -> Vec<String> {
        self.front.log()
    }
}
