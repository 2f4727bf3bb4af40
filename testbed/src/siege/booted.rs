//! A virtual machine that has booted with a device of version 2 on its PCI bus: good and hostile programs are
//! processes of its unprivileged user.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use vgpu_testbed::machine::{GuestMachine, Options};

use super::simulated::MEMORY_MIB;
use super::site::{self, DeviceLoad, Site};
use super::{plan, report};

/// Guest memory in MiB.
const GUEST_MIB: u64 = 2048;
/// Limit of a round, in addition to the time that programs run concurrently.
const ROUND_LIMIT: Duration = Duration::from_mins(5);
/// Name of the user who may open the device.
const USER: &str = "guest";

/// A booted virtual machine with a device of version 2.
pub struct Booted {
    guest: GuestMachine,
}

impl Booted {
    /// Boots the guest with its device.
    pub fn start() -> Result<Self> {
        let device = ["--memory", &format!("{MEMORY_MIB}M"), "--log", "info"].map(str::to_owned).to_vec();
        let options = Options { device, memory_mib: GUEST_MIB, quiet_device: true, ..Options::default() };
        Ok(Self { guest: GuestMachine::boot(&options)? })
    }

    /// Runs a command, which must succeed, and returns its stdout.
    fn run_in_guest(&mut self, command: &[&str], limit: Duration) -> Result<String> {
        let (end, out, err) = self.guest.output(USER, command, limit)?;
        if end.code() != 0 {
            bail!("{command:?} in the guest ended with {}: {out}{err}", end.code());
        }
        Ok(out)
    }
}

impl Site for Booted {
    fn name(&self) -> &'static str {
        "guest"
    }

    fn classes(&self) -> Vec<&'static str> {
        plan::CUDA.into_iter().chain([plan::MESSAGES]).collect()
    }

    fn has_own_kernel(&self) -> bool {
        true
    }

    fn round(&mut self, round: &plan::Round) -> Result<report::Round> {
        let arguments = site::arguments(round, |_| None);
        let arguments: Option<Vec<&str>> = arguments.iter().map(|argument| argument.to_str()).collect();
        let arguments = arguments.context("an argument that is no text")?;
        let limit = ROUND_LIMIT + Duration::from_secs_f64(round.seconds);
        site::read(&self.run_in_guest(&[&["vgpu-standin"], &arguments[..]].concat(), limit)?)
    }

    fn state(&mut self) -> Result<DeviceLoad> {
        Ok(DeviceLoad::from_status(&self.guest.device_status()?))
    }

    fn pid(&self) -> Result<u32> {
        self.guest.device_pid().context("the device has no process here")
    }

    fn terminate(mut self: Box<Self>) -> Result<Duration> {
        // The command ends at once, because the process that it leaves behind has its own session and none of
        // its pipes.
        let script =
            "setsid vgpu-run -- vgpu-standin siege hostile endless-grid < /dev/null > /dev/null 2>&1 &";
        self.run_in_guest(&["sh", "-c", script], ROUND_LIMIT)?;
        let (state, busy) = site::until(&mut *self, |state| state.busy > 0)?;
        if !busy {
            bail!("an endless kernel was never begun: {state:?}");
        }
        self.guest.terminate_device()
    }
}
