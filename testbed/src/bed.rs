//! Devices in a process of their own, on a simulated bus in a fresh directory, and the client of their
//! control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::RngExt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid};
use serde_json::{Value, json};
use tempfile::TempDir;
use vgpu_device::GpuConfig;
use vgpu_executor_soft::Soft;
use vgpu_serve::Facts;

use crate::programs;

/// Limit of the wait for a condition that normally holds within milliseconds.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Interval between two queries of a status that is waited for.
pub const TICK: Duration = Duration::from_millis(1);

/// Returns random facts of a device, with a compute capability from `ccs`.
pub fn random_facts(ccs: &[&str]) -> Facts {
    let mut rng = rand::rng();
    let word: u32 = rng.random();
    Facts {
        address: format!("0000:{:02x}:{:02x}.0", rng.random_range(1..=255u32), rng.random_range(0..32u32)),
        name: format!("VGPU-STUB test {word:08X}"),
        uuid: format!("{:032x}", rng.random::<u128>()),
        cc: ccs[rng.random_range(0..ccs.len())].to_owned(),
        memory_mib: rng.random_range(1024..22 * 1024),
    }
}

/// Name of the executor that drives a GPU, with this project's own libcuda on the soft device of a second bus
/// as that GPU.
const LOOP: &str = "cuda-loop";

/// Value of `--address-range` for both devices of a loop: the range that other devices of this host choose
/// last.
const LOOP_RANGE: &str = "44";

/// Device memory in MiB that the cuda executor reserves for two contexts of 640 MiB each.
const CONTEXTS_MIB: u64 = 2 * 640;

/// Options of `vgpu-testbed device` that belong to the soft executor, even if it is behind another one.
const OF_SOFT: [&str; 4] = ["--adversarial", "--engine", "--kernel-timeout", "--threads"];

/// A bus with devices, served by another process that ends when the value is dropped.
#[derive(Debug)]
pub struct Bed {
    folder: TempDir,
    /// Arguments with which the device process was started.
    arguments: Vec<String>,
    /// Whether the log of the device process is discarded.
    quiet: bool,
    child: Child,
    /// Pipe whose closing ends the device process.
    stdin: ChildStdin,
    /// Bus of the device that the executor uses as a GPU, if there is one.
    behind: Option<Box<Self>>,
}

impl Bed {
    /// Starts the devices and waits until they are served. The log of the device process goes to stderr.
    pub fn start(executor: &str, devices: &[Facts]) -> Result<Self> {
        Self::start_with(executor, devices, &[])
    }

    /// Starts the devices like [`Bed::start`], with more options of `vgpu-testbed device`.
    pub fn start_with(executor: &str, devices: &[Facts], options: &[&str]) -> Result<Self> {
        Self::start_logging(executor, devices, options, false)
    }

    /// Starts the devices like [`Bed::start_with`] and discards the log, for guests that are expected to fill
    /// it.
    pub fn start_quiet(executor: &str, devices: &[Facts], options: &[&str]) -> Result<Self> {
        Self::start_logging(executor, devices, options, true)
    }

    fn start_logging(executor: &str, devices: &[Facts], options: &[&str], quiet: bool) -> Result<Self> {
        if executor == LOOP {
            return Self::start_loop(devices, options, quiet);
        }
        Self::serve(executor, devices, options, quiet, None)
    }

    /// Starts a device whose executor drives, through our own libcuda, the soft device of a second bus. Each
    /// session has a worker process, as on a host with a GPU, because sessions in one process cannot have
    /// equal addresses. Libcuda reaches the second bus through a socket.
    fn start_loop(devices: &[Facts], options: &[&str], quiet: bool) -> Result<Self> {
        let [facts] = devices else { bail!("the executor {LOOP} has one device") };
        // Each of these options has a value.
        let (mut own, mut behind) = (Vec::new(), Vec::new());
        let mut rest = options.iter().copied();
        while let Some(option) = rest.next() {
            let place = if OF_SOFT.contains(&option) { &mut behind } else { &mut own };
            place.push(option);
            if OF_SOFT.contains(&option) {
                place.extend(rest.next());
            }
        }
        let gpu = StandIn::start(facts, &behind, quiet)?;
        let options = gpu.options();
        own.extend(options.iter().map(String::as_str));
        own.extend(["--worker", "--worker-connects"]);
        Self::serve("cuda", devices, &own, quiet, Some(Box::new(gpu.bed)))
    }

    fn serve(
        executor: &str,
        devices: &[Facts],
        options: &[&str],
        quiet: bool,
        behind: Option<Box<Self>>,
    ) -> Result<Self> {
        // Shared memory, so that the window's pages are never written back to a disk.
        let folder = TempDir::with_prefix_in("vgpu-bed-", "/dev/shm").context("make a folder in /dev/shm")?;
        let mut arguments = vec!["device".to_owned(), "--bus".to_owned()];
        arguments.push(format!("sim:{}", folder.path().display()));
        arguments.extend(["--executor", executor, "--until-stdin-closes"].map(str::to_owned));
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        for device in devices {
            arguments.extend(["--device".to_owned(), serde_json::to_string(device)?]);
        }
        let (child, stdin) = serve(&arguments, quiet, behind.as_deref())?;
        Ok(Self { folder, arguments, quiet, child, stdin, behind })
    }

    /// Serves the same devices in the same directory again after [`Bed::kill`], like a host that restarts.
    pub fn restart(&mut self) -> Result<()> {
        (self.child, self.stdin) = serve(&self.arguments, self.quiet, self.behind.as_deref())?;
        Ok(())
    }

    /// Returns the directory that imitates sysfs.
    pub fn sysfs(&self) -> &Path {
        self.folder.path()
    }

    /// Links the functions of another device process into this bus, as one machine has them on one bus. The
    /// other must outlive the users of this bus.
    pub fn show(&self, other: &Self) -> Result<()> {
        let devices = "bus/pci/devices";
        for entry in std::fs::read_dir(other.sysfs().join(devices)).context("list functions")? {
            let entry = entry.context("list functions")?;
            let shown = self.sysfs().join(devices).join(entry.file_name());
            symlink(entry.path(), &shown).with_context(|| format!("create {}", shown.display()))?;
        }
        Ok(())
    }

    /// Returns the path of a device's window file.
    pub fn window(&self, device: &Facts) -> PathBuf {
        self.sysfs().join("bus/pci/devices").join(&device.address).join("resource2")
    }

    /// Returns the bus of the devices that the executor uses as GPUs, if there is one.
    #[must_use]
    pub fn behind(&self) -> Option<&Self> {
        self.behind.as_deref()
    }

    /// Kills the process of the devices that the executor uses as GPUs, like a GPU that falls off its bus.
    ///
    /// # Errors
    /// Fails if the process cannot be killed.
    pub fn kill_behind(&mut self) -> Result<()> {
        self.behind.as_mut().context("there is no device behind")?.kill()
    }

    /// Kills the device process, like a host that crashes.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends the device process SIGTERM, waits until it has ended, and returns how long that took.
    pub fn terminate(&mut self) -> Result<Duration> {
        terminate(&mut self.child)
    }

    /// Stops the device process with SIGSTOP, like a host that hangs.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        stopped(self.pid())
    }

    /// Resumes the device process after [`Bed::stop`].
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Returns the process ID of the device process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command to the control socket and returns the answer.
    pub fn control(&self, command: &str) -> Result<Value> {
        control(self.sysfs(), command)
    }

    /// Queries the devices' status.
    pub fn status(&self) -> Result<Value> {
        self.control("status")
    }

    /// Waits until the devices have no sessions, memory and workers left, and the devices used as GPUs no
    /// sessions and memory.
    ///
    /// # Errors
    /// Fails if something is left after the wait.
    pub fn until_nothing_is_left(&self) -> Result<()> {
        let gone = |status: &Value| {
            let none = |device: &Value| {
                let workers = device["workers_running"].as_u64().unwrap_or(0);
                device["allocated"] == 0 && device["charged_bytes"] == 0 && workers == 0
            };
            let devices = status["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
            sessions(status).is_empty() && devices.iter().all(none)
        };
        self.until("nothing of ended programs is left", gone)?;
        match &self.behind {
            Some(behind) => behind.until_nothing_is_left(),
            None => Ok(()),
        }
    }

    /// Polls `status` until `wanted` accepts it, and returns it. `what` names the condition in the error.
    pub fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        until(self.sysfs(), what, wanted)
    }
}

/// Waits until all threads of a child that was sent SIGSTOP have stopped; until then some of them still run.
///
/// # Errors
/// Fails if `child` is no child of this process.
pub fn stopped(child: u32) -> Result<()> {
    let pid = Pid::from_raw(child.cast_signed()).context("no process")?;
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).context("wait for a process to stop")?;
    Ok(())
}

/// Polls `status` of the bus in `folder` until `wanted` accepts it, and returns it.
pub fn until(folder: &Path, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let end = Instant::now() + PATIENCE;
    loop {
        let status = control(folder, "status")?;
        if wanted(&status) {
            return Ok(status);
        }
        if Instant::now() > end {
            bail!("{what}: not within {PATIENCE:?}; the devices say {status}");
        }
        std::thread::sleep(TICK);
    }
}

/// A soft device that the cuda executor uses as a GPU, through our own libcuda.
#[derive(Debug)]
pub struct StandIn {
    /// Bus of the soft device, which libcuda finds by `VGPU_SYSFS`.
    pub bed: Bed,
    /// Settings of the device whose executor uses the stand-in, named as `vgpu-device` names them. All are
    /// texts except `address-range`. Its worker processes connect to the bus's sockets.
    pub settings: Vec<(&'static str, String)>,
}

impl StandIn {
    /// Serves a soft device with the memory that the executor leaves to guests with these facts.
    ///
    /// # Errors
    /// Fails if the device cannot be served.
    pub fn start(facts: &Facts, options: &[&str], quiet: bool) -> Result<Self> {
        Self::start_on("soft", facts, options, quiet)
    }

    /// Serves a device like [`StandIn::start`], with another executor.
    ///
    /// # Errors
    /// Fails if the device cannot be served.
    pub fn start_on(executor: &str, facts: &Facts, options: &[&str], quiet: bool) -> Result<Self> {
        let gpu = Facts { memory_mib: facts.memory_mib + CONTEXTS_MIB, ..facts.clone() };
        let library =
            |name| Ok::<_, anyhow::Error>(programs::shim(name)?.to_str().context("a path")?.to_owned());
        let settings = vec![
            ("libcuda", library("libcuda.so.1")?),
            ("libcublas", library("libcublas.so.13")?),
            // No program sees both devices, and this one only uses addresses of its own part.
            ("address-range", LOOP_RANGE.to_owned()),
            ("address-part", reservable(&gpu)?),
        ];
        let options = [options, &["--address-range", LOOP_RANGE]].concat();
        Ok(Self { bed: Bed::serve(executor, &[gpu], &options, quiet, None)?, settings })
    }

    /// Returns the settings as words of a command line.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        self.settings.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect()
    }
}

/// Returns the part of a soft device's address range in which programs may choose addresses, in the format of
/// the option `--address-part`.
///
/// # Errors
/// Fails if the device cannot be described.
pub fn reservable(facts: &Facts) -> Result<String> {
    let config = GpuConfig { memory_bytes: facts.memory_mib << 20, ..GpuConfig::new(&facts.name)? };
    let part = Soft::reservable(&config);
    let offset = part.start - config.addresses.range().base;
    Ok(format!("{offset}+{}", part.end - part.start))
}

/// Sends a process SIGTERM, waits up to [`PATIENCE`] until it has ended, and returns how long that took. Its
/// exit status must be success, since a process killed by the signal has not cleaned up.
pub fn terminate(child: &mut Child) -> Result<Duration> {
    let pid = Pid::from_raw(child.id().cast_signed()).context("no process")?;
    let start = Instant::now();
    kill_process(pid, Signal::TERM).context("send SIGTERM")?;
    end_in_order(child, start)
}

/// Waits up to [`PATIENCE`] until a process has ended that was told to do so at `start`, and returns how long
/// that took. Its exit status must be success.
///
/// # Errors
/// Fails if the process does not end, or ends in another way.
pub fn end_in_order(child: &mut Child, start: Instant) -> Result<Duration> {
    let pid = Pid::from_raw(child.id().cast_signed()).context("no process")?;
    // The pidfd becomes readable when the process has ended, so the measured time is exact.
    let ended = pidfd_open(pid, PidfdFlags::empty()).context("watch a process")?;
    let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let ready =
        poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit)).context("wait for a process")?;
    let took = start.elapsed();
    if ready == 0 {
        bail!("a process that was told to end did not within {PATIENCE:?}");
    }
    let status = child.wait().context("wait for a process")?;
    if !status.success() {
        bail!("a process that was told to end did so with {status}");
    }
    Ok(took)
}

/// Starts the test bed's program and waits until it is ready; it ends when the pipe closes. `behind` is the
/// bus of the device that it uses as a GPU.
fn serve(arguments: &[String], quiet: bool, behind: Option<&Bed>) -> Result<(Child, ChildStdin)> {
    let mut command = Command::new(programs::testbed()?);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    if quiet {
        command.stderr(Stdio::null());
    }
    if let Some(behind) = behind {
        command.env("VGPU_SYSFS", behind.sysfs());
    }
    let mut child = command.spawn().context("start the device")?;
    let stdin = child.stdin.take().context("no stdin")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    if line.trim() != "ready" {
        let status = child.wait()?;
        bail!("the device did not start: {status}, said {line:?}");
    }
    Ok((child, stdin))
}

impl Drop for Bed {
    fn drop(&mut self) {
        // The process may already have been killed; failures are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one command to the control socket of the bus in `folder`.
pub fn control(folder: &Path, command: &str) -> Result<Value> {
    let path = folder.join("control");
    let mut socket = UnixStream::connect(&path).with_context(|| format!("connect to {}", path.display()))?;
    writeln!(socket, "{}", json!({ "cmd": command }))?;
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line)?;
    serde_json::from_str(&line).with_context(|| format!("read the answer {line:?}"))
}

/// Returns the sessions of all devices in a status.
pub fn sessions(status: &Value) -> Vec<&Value> {
    let devices = status["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    devices.iter().filter_map(|device| device["sessions"].as_array()).flatten().collect()
}

/// Returns the session of the process `pid` in a status.
pub fn session_of(status: &Value, pid: u32) -> Option<&Value> {
    sessions(status).into_iter().find(|session| session["process"] == pid)
}
