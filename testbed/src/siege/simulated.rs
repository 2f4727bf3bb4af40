//! The simulated bus with a device of version 2.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use vgpu_serve::Facts;
use vgpu_testbed::bed::{Bed, random_facts};
use vgpu_testbed::programs;

use super::site::{self, DeviceLoad, Site};
use super::{plan, report};

/// Device memory in MiB, more than hostile programs may make the host hold.
pub const MEMORY_MIB: u64 = 4096;

/// A simulated bus with a device of version 2.
pub struct Simulated {
    bed: Bed,
}

impl Simulated {
    /// Starts a device on a simulated bus.
    pub fn start() -> Result<Self> {
        let facts = Facts { memory_mib: MEMORY_MIB, ..random_facts(&["6.1"]) };
        Ok(Self { bed: Bed::start_quiet("soft", &[facts], &["--log", "info"])? })
    }
}

impl Site for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn classes(&self) -> Vec<&'static str> {
        plan::CUDA.into_iter().chain([plan::MESSAGES]).collect()
    }

    fn round(&mut self, round: &plan::Round) -> Result<report::Round> {
        site::run_round(&site::arguments(round, |_| None), self.bed.sysfs())
    }

    fn state(&mut self) -> Result<DeviceLoad> {
        Ok(DeviceLoad::from_status(&self.bed.status()?["devices"][0]))
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.bed.pid())
    }

    fn terminate(mut self: Box<Self>) -> Result<Duration> {
        let _endless = Endless::start(self.bed.sysfs())?;
        let (state, busy) = site::until(&mut *self, |state| state.busy > 0)?;
        if !busy {
            bail!("an endless kernel was never begun: {state:?}");
        }
        self.bed.terminate()
    }
}

/// A program with an endless kernel, which is killed when the value is dropped.
pub struct Endless {
    program: Child,
    /// Stdout of the program. Closing it would end the program and its work.
    out: BufReader<ChildStdout>,
}

impl Endless {
    /// Starts the program on a simulated bus, and waits until its next call is the launch.
    pub fn start(bus: &Path) -> Result<Self> {
        let mut command = Command::new(programs::launcher()?);
        command.arg("--").arg(programs::standin()?).args(["siege", "hostile", "endless-grid"]);
        command.env("VGPU_SYSFS", bus).env_remove("CUDA_VISIBLE_DEVICES");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = command.spawn().context("start a program with endless work")?;
        let out = BufReader::new(program.stdout.take().context("no stdout")?);
        let mut endless = Self { program, out };
        let mut line = String::new();
        endless.out.read_line(&mut line).context("wait for a program with endless work")?;
        if line.trim() != "begun" {
            bail!("a program with endless work did not begin: it said {line:?}");
        }
        Ok(endless)
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        // The process may already have ended; failures are ignored.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
