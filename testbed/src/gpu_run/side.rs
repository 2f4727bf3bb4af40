//! The two sides of the comparison: programs through vgpu-run and vgpu-device, and the same programs on the
//! GPU. Without a GPU, a rehearsal puts a named substitute in its place.

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

/// Limit of a device's answer.
const ANSWER: Duration = Duration::from_mins(1);
/// Memory in MiB of the device that stands in for a GPU.
const LOOP_MIB: u64 = 8 << 10;

/// Executor behind the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Executor {
    /// Executor for the GPU of this machine.
    Cuda,
    /// Rehearsal with our own libcuda on the soft device of a second process.
    CudaLoop,
    /// Rehearsal with the soft executor, which needs no GPU.
    Soft,
}

impl Executor {
    /// Returns a description of the side `native`.
    const fn native(self) -> &'static str {
        match self {
            Self::Cuda => "NVIDIA's driver and libraries, without vgpu-run",
            Self::CudaLoop => "rehearsal: vgpu-run on the soft device that stands in for the GPU",
            Self::Soft => "rehearsal: the same soft device once more",
        }
    }
}

/// Access of a program to a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side<'a> {
    /// Access through the launcher, to the device of this bus.
    Through(&'a Path),
    /// Direct access to the GPU, with NVIDIA's libraries from these directories before those of the machine.
    Native(&'a [PathBuf]),
}

impl Side<'_> {
    /// Returns the command of a program on this side.
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

    /// Returns the place of a model's layers on this side.
    pub const fn place(&self) -> guest::Place<'_> {
        match self {
            Self::Through(sysfs) => guest::Place::Gpu(sysfs),
            Self::Native(folders) => guest::Place::Native(folders),
        }
    }
}

/// Description of both sides before they are started.
#[derive(Clone, Debug)]
pub struct SidePlan {
    /// Executor behind the device.
    pub executor: Executor,
    /// Compute capability of a rehearsal's device.
    pub cc: String,
    /// UUID of the GPU, or `None` for the first.
    pub gpu: Option<String>,
    /// Directories of NVIDIA's libraries, for programs without vgpu-run and for the device.
    pub libraries: Vec<PathBuf>,
    /// Directory in which the device stores what the driver compiles.
    pub compiled: PathBuf,
}

impl SidePlan {
    /// Starts the soft device that stands in for a GPU in a rehearsal of the cuda executor.
    pub fn stand_in(&self) -> Result<Option<StandIn>> {
        let facts = || Facts { memory_mib: LOOP_MIB, ..random_facts(&[&self.cc]) };
        (self.executor == Executor::CudaLoop).then(|| StandIn::start(&facts(), &[], false)).transpose()
    }

    /// Returns the description of the device process, after starting the stand-in for a GPU if one is needed.
    fn start(&self) -> Result<(Start, Option<StandIn>)> {
        let compiled = self.compiled.to_str().context("a directory whose name is no text")?;
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        Ok(match (self.executor, self.stand_in()?) {
            (Executor::Soft, _) => {
                let options = words(&["--executor", "soft", "--cc", &self.cc]);
                (Start { options, ..Start::default() }, None)
            }
            (_, Some(behind)) => {
                let mut options = words(&["--executor", "cuda", "--worker-connects", "true"]);
                options.extend(words(&["--compiled", compiled]));
                options.extend(behind.options());
                let start =
                    Start { options, behind: Some(behind.bed.sysfs().to_owned()), ..Start::default() };
                (start, Some(behind))
            }
            (_, None) => {
                let mut options = words(&["--executor", "cuda", "--compiled", compiled]);
                options.extend(self.gpu.iter().flat_map(|gpu| ["--gpu".to_owned(), gpu.clone()]));
                (Start { options, behind: None, libraries: self.libraries.clone() }, None)
            }
        })
    }
}

/// Both sides with their device processes, which end when the value is dropped, the one in front first.
pub struct Sides {
    front: Device,
    behind: Option<StandIn>,
    start: Start,
    plan: SidePlan,
}

impl Sides {
    /// Starts both sides. The device must serve within `limit`.
    pub fn start(plan: &SidePlan, limit: Duration) -> Result<Self> {
        let (start, behind) = plan.start()?;
        Ok(Self { front: Device::start(&start, limit)?, behind, start, plan: plan.clone() })
    }

    /// Restarts the device process if it has ended, and returns how it ended.
    pub fn revive(&mut self, limit: Duration) -> Result<Option<String>> {
        let Some(mut how) = self.front.ended() else { return Ok(None) };
        for line in self.front.log(0) {
            how = how + "\n" + &line;
        }
        self.front = Device::start(&self.start, limit).with_context(|| how.clone())?;
        Ok(Some(how))
    }

    /// Returns the side through vgpu-run and vgpu-device.
    pub fn through(&self) -> Side<'_> {
        Side::Through(self.front.sysfs())
    }

    /// Returns the side with which the other is compared.
    pub fn native(&self) -> Side<'_> {
        match (self.plan.executor, &self.behind) {
            (Executor::Cuda, _) => Side::Native(&self.plan.libraries),
            (_, Some(behind)) => Side::Through(behind.bed.sysfs()),
            (_, None) => self.through(),
        }
    }

    /// Returns both sides with their names in the report. The order alternates with `round`.
    pub fn both(&self, round: usize) -> [(&'static str, Side<'_>); 2] {
        let sides = [("native", self.native()), ("through", self.through())];
        let [one, other] = sides;
        if round.is_multiple_of(2) { sides } else { [other, one] }
    }

    /// Returns the device's bus, for programs of the test bed.
    pub fn sysfs(&self) -> &Path {
        self.front.sysfs()
    }

    /// Returns a description of both sides for the report.
    pub fn describe(&self) -> Value {
        json!({
            "through": "vgpu-run, and vgpu-device on the simulated bus",
            "native": self.plan.executor.native(),
            "rehearsal": self.plan.executor != Executor::Cuda,
            "libraries": self.plan.libraries,
            "compiled": self.plan.compiled,
        })
    }

    /// Returns the directory in which the device stores what the driver compiles.
    pub fn compiled(&self) -> &Path {
        &self.plan.compiled
    }

    /// Returns the time that the device took until it served.
    pub const fn ready(&self) -> Duration {
        self.front.ready
    }

    /// Queries the device's status.
    pub fn status(&self) -> Result<Value> {
        let folder = self.sysfs().to_owned();
        within(ANSWER, move || bed::control(&folder, "status")).context("vgpu-device does not answer")?
    }

    /// Returns the number of bytes in the device's log.
    pub fn logged(&self) -> usize {
        self.front.logged()
    }

    /// Returns the last log lines of the device and its workers after the first `from` bytes.
    pub fn log(&self, from: usize) -> Vec<String> {
        self.front.log(from)
    }
}
