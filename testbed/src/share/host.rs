//! The host: the GPU, a device for each VM, the node process, and the guests' processes.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{StandIn, random_facts, sessions, until};
use vgpu_testbed::machine::{GuestMachine, Options};
use vgpu_testbed::programs;
use vgpu_wire::pci::V2_BAR2_BYTES;

use super::figures::{Round, VmFigures};
use super::options::{Fault, Load, ShareArgs};
use crate::server::Server;

/// Memory of the GPU, and memory that a VM is promised for each of its processes, which have a context.
const GPU_MIB: u64 = 32 << 10;
const PROCESS_MIB: u64 = 768;

/// PCI slot of the device in a booted guest.
const SLOT: u8 = 4;
/// Limit of what a booted guest does beside the time of a round. It is emulated, and programs load slowly.
const BOOTED_LIMIT: Duration = Duration::from_mins(2);
/// Time after which all programs of booted guests are ready.
const LOADING: Duration = Duration::from_secs(15);

/// A VM of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct VmSettings {
    pub(super) processes: usize,
    pub(super) weight: u32,
    pub(super) load: Load,
}

struct Vm {
    settings: VmSettings,
    /// Its booted guest. Otherwise processes of this machine play the guest's. It ends before its device.
    machine: Option<GuestMachine>,
    folder: TempDir,
    /// Directory of the control socket.
    control: PathBuf,
    device: Server,
}

impl Vm {
    /// Runs the VM's processes in its booted guest, and returns what each reported. They start at a time of
    /// the clock that all guests have from this machine.
    fn run_booted(&mut self, words: &[String], start: u64, limit: Duration) -> Result<Vec<Value>> {
        let machine = self.machine.as_mut().context("the guest is not booted")?;
        let script = "n=$1; at=$2; shift 2; \
                      go() { while [ $(date +%s) -lt $at ]; do sleep 0.1; done; echo go; }; \
                      while [ $n -gt 0 ]; do go | vgpu-run -- vgpu-standin \"$@\" & n=$((n-1)); done; wait";
        let processes = self.settings.processes.to_string();
        let start = start.to_string();
        let mut command = vec!["sh", "-c", script, "sh", &processes, &start];
        command.extend(words.iter().map(String::as_str));
        let (end, out, err) = machine.output("guest", &command, limit)?;
        let reports: Vec<Value> = out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if end.code() != 0 || reports.len() != self.settings.processes {
            bail!("the guest's programs ended with {}: {out}{err}", end.code());
        }
        if reports.iter().any(|report| report["waited_ms"].as_u64().is_none_or(|time| time < 100)) {
            bail!("a guest's program was not ready when all were to start");
        }
        Ok(reports)
    }

    /// Waits until nothing of the guest's processes is left, as after a death that systemd notices.
    fn until_free(&mut self) -> Result<()> {
        if let Some(machine) = &mut self.machine {
            let (end, _, err) = machine.output("guest", &["vgpu-run", "reap"], BOOTED_LIMIT)?;
            if end.code() != 0 {
                bail!("vgpu-run reap: {err}");
            }
        } else {
            let mut reap = Command::new(programs::launcher()?);
            reap.arg("reap").env("VGPU_SYSFS", self.folder.path()).stdout(Stdio::null());
            let status = reap.status().context("start reap")?;
            if !status.success() {
                bail!("vgpu-run reap: {status}");
            }
        }
        until(&self.control, "the processes of a round are gone", |status| sessions(status).is_empty())?;
        Ok(())
    }
}

/// A guest's process.
struct Guest {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Guest {
    /// Starts a process and waits until it has a context and a kernel.
    fn start(sysfs: &Path, arguments: &[String]) -> Result<Self> {
        let mut command = Command::new(programs::launcher()?);
        command.arg(programs::standin()?).args(arguments);
        command.env("VGPU_SYSFS", sysfs).env_remove("CUDA_VISIBLE_DEVICES");
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start a guest")?;
        let stdin = child.stdin.take().context("no stdin")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        if line.trim() != "ready" {
            let _ = child.kill();
            bail!("a guest's process did not start: {}", child.wait()?);
        }
        Ok(Self { child, stdin, lines })
    }

    fn report(mut self) -> Result<Value> {
        let mut text = String::new();
        self.lines.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        serde_json::from_str(text.trim()).with_context(|| format!("{status}: the report {text:?}"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The process has ended, unless something failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The host of a measurement.
pub(super) struct Host {
    node: Option<Server>,
    vms: Vec<Vm>,
    gpu: StandIn,
    /// Directory of the GPU's file, which this measurement has to itself.
    shares: TempDir,
}

impl Host {
    /// Starts the GPU and the devices.
    pub(super) fn start(vms: &[VmSettings], arguments: &ShareArgs) -> Result<Self> {
        let facts = Facts { memory_mib: GPU_MIB, ..random_facts(&["7.0"]) };
        let gpu = match &arguments.block_time {
            Some(time) => StandIn::start_on("null", &facts, &["--complete-after", time], false)?,
            None => StandIn::start_on("soft", &facts, &["--threads", &arguments.threads.to_string()], false)?,
        };
        let shares =
            TempDir::with_prefix_in("vgpu-gpus-", "/dev/shm").context("make a folder in /dev/shm")?;
        let mut host = Self { node: None, vms: Vec::new(), gpu, shares };
        for (index, settings) in vms.iter().enumerate() {
            let vm = host.serve(index, *settings, arguments.guest)?;
            host.vms.push(vm);
        }
        Ok(host)
    }

    fn serve(&self, index: usize, settings: VmSettings, booted: bool) -> Result<Vm> {
        let folder =
            TempDir::with_prefix_in("vgpu-share-", "/dev/shm").context("make a folder in /dev/shm")?;
        let control = folder.path().join(format!("vm{index}"));
        let mut command = Command::new(programs::device()?);
        command.args(["serve", "--executor", "cuda", "--until-stdin-closes", "--worker-connects", "true"]);
        let socket = folder.path().join("device");
        let bus = if booted {
            format!("vfio-user:{}", socket.display())
        } else {
            format!("sim:{}", folder.path().display())
        };
        command.arg("--bus").arg(bus);
        command.arg("--control").arg(control.join("control"));
        let memory = format!("{}M", PROCESS_MIB * settings.processes as u64);
        command.args(["--memory", &memory, "--weight", &settings.weight.to_string()]);
        command.arg("--shares").arg(self.shares.path());
        command.args(self.gpu.options()).env("VGPU_SYSFS", self.gpu.bed.sysfs());
        let device = Server::start(&mut command)?;
        let options = Options::default();
        let boot = || {
            let window_bytes = V2_BAR2_BYTES;
            let vm =
                vgpu_serve::vm::Vm { socket, memory_mib: options.memory_mib, slot: Some(SLOT), window_bytes };
            GuestMachine::boot_on(&options, &vm.qemu()).context("boot a guest")
        };
        let machine = booted.then(boot).transpose()?;
        Ok(Vm { settings, machine, folder, control, device })
    }

    /// Starts a node process with slices of this length, or ends it.
    pub(super) fn set_node(&mut self, slice: Option<&str>) -> Result<()> {
        self.node = None;
        if let Some(slice) = slice {
            let mut command = Command::new(programs::device()?);
            command.args(["node", "--until-stdin-closes", "--metrics", "off", "--slice", slice]);
            command.arg("--shares").arg(self.shares.path());
            self.node = Some(Server::start(&mut command)?);
        }
        Ok(())
    }

    /// Makes a process fail after a third of the time, and lets one that was stopped go on at its end.
    fn fail(&self, fault: Fault, time: Duration) -> Result<()> {
        let process = match fault {
            Fault::NodeKill | Fault::NodeStop => self.node.as_ref().context("there is no node process")?,
            Fault::DeviceKill | Fault::DeviceStop => &self.vms[0].device,
        };
        thread::sleep(time / 3);
        if matches!(fault, Fault::NodeKill | Fault::DeviceKill) {
            return process.signal(Signal::KILL);
        }
        process.signal(Signal::STOP)?;
        thread::sleep(time * 2 / 3);
        process.signal(Signal::CONT)
    }

    /// Runs all guests' processes side by side for the time of a round.
    pub(super) fn round(&mut self, arguments: &ShareArgs) -> Result<Round> {
        let reports =
            if arguments.guest { self.reports_of_machines(arguments)? } else { self.reports(arguments)? };
        let mut vms = vec![VmFigures::default(); self.vms.len()];
        for (index, report) in reports {
            let launches = report["launches"].as_f64().context("launches")?;
            vms[index].launches += launches / arguments.time().as_secs_f64();
            let late = report["launches_in_the_last_third"].as_f64().unwrap_or(0.0);
            vms[index].last_third += late / arguments.time().as_secs_f64();
            let asked = report["asked"].as_f64();
            vms[index].served = asked.map(|asked| launches / asked).or(vms[index].served);
            let token = |key: &str| report["token_ns"][key].as_f64().map(|time| time / 1e6);
            vms[index].token_ms = token("p50").zip(token("p99")).or(vms[index].token_ms);
        }
        for vm in vms.iter_mut().filter(|vm| vm.launches > 0.0) {
            vm.last_third /= vm.launches;
        }
        let killed = arguments.fault == Some(Fault::DeviceKill);
        self.vms.iter_mut().skip(usize::from(killed)).try_for_each(Vm::until_free)?;
        Ok(Round { vms })
    }

    /// Runs processes of this machine as those of the guests. Returns what each reported, with the index of
    /// its VM.
    fn reports(&self, arguments: &ShareArgs) -> Result<Vec<(usize, Value)>> {
        let mut guests = Vec::new();
        for (index, vm) in self.vms.iter().enumerate().filter(|(_, vm)| vm.settings.load != Load::None) {
            for _ in 0..vm.settings.processes {
                let guest = Guest::start(vm.folder.path(), &arguments.play(vm.settings.load))?;
                guests.push((index, guest));
            }
        }
        for (_, guest) in &mut guests {
            guest.stdin.write_all(b"go\n").context("start a guest's process")?;
        }
        if let Some(fault) = arguments.fault {
            self.fail(fault, arguments.time())?;
        }
        let killed = arguments.fault == Some(Fault::DeviceKill);
        let report = |(index, guest): (usize, Guest)| match guest.report() {
            // Its device is gone.
            Err(_) if killed && index == 0 => None,
            report => Some(report.map(|report| (index, report))),
        };
        guests.into_iter().filter_map(report).collect()
    }

    /// Runs processes in booted guests, like [`Host::reports`].
    fn reports_of_machines(&mut self, arguments: &ShareArgs) -> Result<Vec<(usize, Value)>> {
        let start = SystemTime::now() + LOADING;
        let start = start.duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
        thread::scope(|scope| {
            let busy = self.vms.iter_mut().enumerate().filter(|(_, vm)| vm.settings.load != Load::None);
            let runs: Vec<_> = busy
                .map(|(index, vm)| {
                    let words = arguments.play(vm.settings.load);
                    let limit = BOOTED_LIMIT + arguments.time();
                    scope.spawn(move || Ok::<_, anyhow::Error>((index, vm.run_booted(&words, start, limit)?)))
                })
                .collect();
            let mut reports = Vec::new();
            for run in runs {
                let (index, of_vm) = run.join().map_err(|_| anyhow!("a thread panicked"))??;
                reports.extend(of_vm.into_iter().map(|report| (index, report)));
            }
            Ok(reports)
        })
    }
}
