//! The two sides that are compared: programs through vgpu-run and vgpu-device, and the same programs on the
//! GPU itself. Where there is no GPU, a rehearsal puts something else in its place, and says what.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Value, json};
use vgpu_serve::Facts;
use vgpu_testbed::bed::{self, StandIn, random_facts};
use vgpu_testbed::{guest, programs};

use super::limit::within;
use super::process::{Device, Start};

/// How long a device may take to answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Memory of the device that stands in for a GPU.
const LOOP_MIB: u64 = 8 << 10;

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

/// How programs get at a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side<'a> {
    /// Under the launcher, with the device of this bus.
    Through(&'a Path),
    /// On the GPU, with NVIDIA's libraries from these folders before those of the machine.
    Native(&'a [PathBuf]),
}

impl Side<'_> {
    /// Returns a program on this side.
    pub fn command(self, program: &Path) -> Result<Command> {
        Ok(match self {
            Self::Through(sysfs) => {
                let mut command = Command::new(programs::launcher()?);
                command.arg("--").arg(program).env("VGPU_SYSFS", sysfs);
                command
            }
            Self::Native(folders) => {
                let mut command = Command::new(program);
                programs::prepend_libraries(&mut command, folders.iter().map(PathBuf::as_path));
                command
            }
        })
    }

    /// Returns the same for a model.
    pub const fn place(&self) -> guest::Place<'_> {
        match self {
            Self::Through(sysfs) => guest::Place::Gpu(sysfs),
            Self::Native(folders) => guest::Place::Native(folders),
        }
    }
}

/// What the sides are made of.
#[derive(Clone, Debug)]
pub struct SidePlan {
    /// What stands behind the device.
    pub executor: Executor,
    /// Compute capability of a rehearsal's device.
    pub cc: String,
    /// UUID of the GPU, if it is not the first.
    pub gpu: Option<String>,
    /// Folders of NVIDIA's libraries, for programs without vgpu-run and for the device.
    pub libraries: Vec<PathBuf>,
    /// Where the device keeps what the driver compiles.
    pub compiled: PathBuf,
}

impl SidePlan {
    /// How the device process is started, and what stands behind it.
    fn start(&self) -> Result<(Start, Option<StandIn>)> {
        let compiled = self.compiled.to_str().context("a directory whose name is no text")?;
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        Ok(match self.executor {
            Executor::Soft => {
                let options = words(&["--executor", "soft", "--cc", &self.cc]);
                (Start { options, ..Start::default() }, None)
            }
            Executor::CudaLoop => {
                let facts = Facts { memory_mib: LOOP_MIB, ..random_facts(&[&self.cc]) };
                let behind = StandIn::start(&facts, &[], false)?;
                let mut options = words(&["--executor", "cuda", "--worker-connects", "true"]);
                options.extend(words(&["--compiled", compiled]));
                options.extend(behind.options());
                let start =
                    Start { options, behind: Some(behind.bed.sysfs().to_owned()), ..Start::default() };
                (start, Some(behind))
            }
            Executor::Cuda => {
                let mut options = words(&["--executor", "cuda", "--compiled", compiled]);
                options.extend(self.gpu.iter().flat_map(|gpu| ["--gpu".to_owned(), gpu.clone()]));
                (Start { options, behind: None, libraries: self.libraries.clone() }, None)
            }
        })
    }
}

/// The device processes, and both sides. They end with this value, the one in front first.
pub struct Sides {
    front: Device,
    behind: Option<StandIn>,
    start: Start,
    plan: SidePlan,
}

impl Sides {
    /// Starts what is needed. The device serves within `limit`.
    pub fn start(plan: &SidePlan, limit: Duration) -> Result<Self> {
        let (start, behind) = plan.start()?;
        Ok(Self { front: Device::start(&start, limit)?, behind, start, plan: plan.clone() })
    }

    /// Starts the device process anew if it has ended; says then how it did.
    pub fn revive(&mut self, limit: Duration) -> Result<Option<String>> {
        let Some(mut how) = self.front.ended() else { return Ok(None) };
        for line in self.front.log(0) {
            how = how + "\n" + &line;
        }
        self.front = Device::start(&self.start, limit).with_context(|| how.clone())?;
        Ok(Some(how))
    }

    /// Through vgpu-run and vgpu-device.
    pub fn through(&self) -> Side<'_> {
        Side::Through(self.front.sysfs())
    }

    /// What that is compared with.
    pub fn native(&self) -> Side<'_> {
        match (self.plan.executor, &self.behind) {
            (Executor::Cuda, _) => Side::Native(&self.plan.libraries),
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

    /// Returns the bus of the device, for programs of the test bed.
    pub fn sysfs(&self) -> &Path {
        self.front.sysfs()
    }

    /// What the sides are.
    pub fn describe(&self) -> Value {
        json!({
            "through": "vgpu-run, and vgpu-device on the simulated bus",
            "native": self.plan.executor.native(),
            "rehearsal": self.plan.executor != Executor::Cuda,
            "libraries": self.plan.libraries,
            "compiled": self.plan.compiled,
        })
    }

    /// Where the device keeps what the driver compiles.
    pub fn compiled(&self) -> &Path {
        &self.plan.compiled
    }

    /// Time that the device took until it served.
    pub const fn ready(&self) -> Duration {
        self.front.ready
    }

    /// What the device says of itself.
    pub fn status(&self) -> Result<Value> {
        let folder = self.sysfs().to_owned();
        within(ANSWER, move || bed::control(&folder, "status")).context("vgpu-device does not answer")?
    }

    /// Returns the number of bytes of the device's log so far.
    pub fn logged(&self) -> usize {
        self.front.logged()
    }

    /// Returns the last lines of the log of the device and its workers, behind the first `from` bytes.
    pub fn log(&self, from: usize) -> Vec<String> {
        self.front.log(from)
    }
}
