//! Version 1: a mediator that serves several machines, each a simulated bus with a device in a process of its
//! own. The good programs have one machine, each hostile program has another, and hostile clients connect to
//! the mediator's socket as well.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_testbed::bed::{Bed, random_facts, terminate};
use vgpu_testbed::programs;

use super::simulated::{Endless, MEMORY_MIB};
use super::site::{self, DeviceLoad, Site};
use super::{plan, report};

/// Machine number that hostile clients of the socket claim.
const STRANGER: usize = 200;
/// Time for which a disconnected machine keeps its resources: shorter than usual, since clients of the socket
/// leave for good in each round.
const GRACE: &str = "2s";

/// A mediator process, which ends when the value is dropped.
struct Mediator {
    child: Child,
    /// Pipe to the mediator process, whose closing ends it.
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Mediator {
    fn start(socket: &Path) -> Result<Self> {
        let mut command = Command::new(programs::testbed()?);
        command.arg("mediator").arg("--socket").arg(socket).args([
            "--executor",
            "soft",
            "--until-stdin-closes",
        ]);
        let memory = format!("{MEMORY_MIB}M");
        command.args(["--memory", &memory, "--grace", GRACE, "--log", "info"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("start the mediator")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        if line.trim() != "ready" {
            bail!("the mediator did not start: {}, said {line:?}", child.wait()?);
        }
        Ok(Self { child, stdin, stdout })
    }

    fn status(&mut self) -> Result<Value> {
        writeln!(self.stdin, "status").context("ask the mediator")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("read the mediator's answer")?;
        serde_json::from_str(&line).with_context(|| format!("understand the mediator's answer {line:?}"))
    }
}

impl Drop for Mediator {
    fn drop(&mut self) {
        // The process may already have ended; failures are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mediator of version 1 and the machines that share it.
pub struct Mediated {
    mediator: Mediator,
    machines: Vec<Bed>,
    folder: TempDir,
}

impl Mediated {
    /// Starts the mediator. Machines are started when they are needed.
    pub fn start() -> Result<Self> {
        let folder =
            TempDir::with_prefix_in("vgpu-siege-", "/dev/shm").context("make a folder in /dev/shm")?;
        let mediator = Mediator::start(&folder.path().join("mediator"))?;
        let mut mediated = Self { mediator, machines: Vec::new(), folder };
        mediated.have(1)?;
        Ok(mediated)
    }

    /// Starts machines until `count` of them run.
    fn have(&mut self, count: usize) -> Result<()> {
        let socket = self.folder.path().join("mediator");
        let socket = socket.to_str().context("a folder whose name is no text")?;
        while self.machines.len() < count {
            let number = (self.machines.len() + 1).to_string();
            let options = ["--protocol", "v1", "--mediator", socket, "--vm-id", &number, "--log", "info"];
            self.machines.push(Bed::start_quiet("soft", &[random_facts(&["6.1"])], &options)?);
        }
        Ok(())
    }

    /// Starts hostile clients of the socket, one for each class.
    fn strangers(&self, classes: &[&'static str]) -> Result<Vec<Stranger>> {
        let socket = self.folder.path().join("mediator");
        let start =
            |(index, class): (usize, &&'static str)| Stranger::start(class, &socket, STRANGER + index);
        classes.iter().enumerate().map(start).collect()
    }
}

impl Site for Mediated {
    fn name(&self) -> &'static str {
        "version-1"
    }

    fn classes(&self) -> Vec<&'static str> {
        plan::CUDA.into_iter().chain(plan::SOCKET).collect()
    }

    fn round(&mut self, round: &plan::Round) -> Result<report::Round> {
        let (sockets, programs): (Vec<_>, Vec<_>) =
            round.hostile.iter().copied().partition(|class| plan::SOCKET.contains(class));
        self.have(1 + programs.len())?;
        let strangers = self.strangers(&sockets)?;
        let round = plan::Round { hostile: programs, ..round.clone() };
        let bus = |index: usize| Some(self.machines[index + 1].sysfs().into());
        let mut done = site::run_round(&site::arguments(&round, bus), self.machines[0].sysfs())?;
        for stranger in strangers {
            done.hostile.push(stranger.wait()?);
        }
        Ok(done)
    }

    fn state(&mut self) -> Result<DeviceLoad> {
        // Owners belong to the mediator and registers to the devices, whose accesses include no attach.
        let mut state =
            DeviceLoad { longest_attach_us: None, ..DeviceLoad::from_status(&self.mediator.status()?) };
        for machine in &self.machines {
            let device = &machine.status()?["devices"][0];
            state.longest_access_us = state.longest_access_us.max(device["longest_access_us"].as_u64());
        }
        Ok(state)
    }

    fn pid(&self) -> Result<u32> {
        Ok(self.mediator.child.id())
    }

    fn terminate(mut self: Box<Self>) -> Result<Duration> {
        let _endless = Endless::start(self.machines[0].sysfs())?;
        // The running call is the launch, or the load of the module that it needs.
        let (state, busy) = site::until(&mut *self, |state| state.busy > 0)?;
        if !busy {
            bail!("an endless kernel was never begun: {state:?}");
        }
        terminate(&mut self.mediator.child)
    }
}

/// A hostile client of the socket, which is killed when the value is dropped.
struct Stranger {
    child: Child,
    class: &'static str,
}

impl Stranger {
    fn start(class: &'static str, socket: &Path, vm: usize) -> Result<Self> {
        let mut command = Command::new(programs::standin()?);
        command.args(["siege", "socket", class, "--vm", &vm.to_string(), "--socket"]).arg(socket);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Self { child: command.spawn().context("start a client of the mediator")?, class })
    }

    /// Kills the client and returns what it reported.
    fn wait(mut self) -> Result<report::Attack> {
        self.child.kill().context("kill a client of the mediator")?;
        let mut attack =
            report::Attack { class: self.class.to_owned(), starts: 1, ..report::Attack::default() };
        let mut outcomes = BTreeMap::new();
        for line in BufReader::new(self.child.stdout.take().context("no stdout")?).lines() {
            let line = line.context("read what a client of the mediator said")?;
            attack.begun |= line == "begun";
            if let ["outcome", call, code, count] = line.split(' ').collect::<Vec<_>>()[..] {
                outcomes.insert(format!("{call} {code}"), count.parse().unwrap_or(0));
            }
        }
        attack.outcomes = outcomes;
        Ok(attack)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // The process may already have ended; failures are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
