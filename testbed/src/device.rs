//! `vgpu-testbed device`: devices on a bus, until told to stop.

mod wrong;

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vgpu_device::{
    DeviceConfig, Executor, GpuConfig, PciAddress, SimBus, parse_bytes, parse_compute_capability, parse_uuid,
};
use vgpu_executor_null::Null;
use vgpu_executor_soft::{Soft, SoftOptions};
use vgpu_guest::pci::socket::FunctionSocket;
use vgpu_guest::pci::stub::V2;
use vgpu_testbed::bed::Facts;

/// Slot of the first device that is not given by `--device`.
const FIRST_SLOT: u8 = 5;

/// What stands behind the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExecutorKind {
    /// Carries calls out on the CPU: memory, copies, kernels from their PTX, matrix products.
    Soft,
    /// Answers success and does nothing: for measuring.
    Null,
}

/// Options.
#[derive(clap::Args)]
pub struct Arguments {
    /// The bus: `sim:DIR`, a folder that looks like sysfs, or `vfio-user:SOCKET`, where a QEMU of 10.1 or later connects.
    #[arg(long, value_parser = parse_bus)]
    bus: Bus,
    /// What stands behind the devices.
    #[arg(long, value_enum, default_value_t = ExecutorKind::Soft)]
    executor: ExecutorKind,
    /// Compute capability.
    #[arg(long, default_value = "6.1", value_parser = capability)]
    cc: (u32, u32),
    /// Device memory, such as 8G.
    #[arg(long, default_value = "8G", value_parser = bytes)]
    memory: u64,
    /// Product name.
    #[arg(long, default_value = vgpu_executor_soft::NAME)]
    name: String,
    /// UUID; drawn at random if not given.
    #[arg(long, value_parser = uuid)]
    uuid: Option<[u8; 16]>,
    /// `cuDriverGetVersion`: the newest CUDA that the device supports.
    #[arg(long, default_value_t = 13_000)]
    driver: u32,
    /// Version text of the driver.
    #[arg(long, default_value = "580.65.06")]
    driver_text: String,
    /// Size of the window.
    #[arg(long, default_value = "256M", value_parser = bytes)]
    window: u64,
    /// How many guest processes can be attached to a device at a time.
    #[arg(long, default_value_t = 64)]
    channels: u32,
    /// How many devices.
    #[arg(long, default_value_t = 1, conflicts_with = "device")]
    devices: u8,
    /// One device by its facts, as JSON: address, name, uuid, cc, memory_mib. Can be given several times.
    #[arg(long, value_parser = facts)]
    device: Vec<Facts>,
    /// Threads of the soft executor that run one kernel; one for each CPU if not given.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// How long a kernel of the soft executor may run, in seconds, before its launch fails.
    #[arg(long, default_value = "60", value_parser = seconds)]
    kernel_timeout: Duration,
    /// The soft executor does work of independent streams in an order that CUDA allows and no program expects, drawn
    /// from this seed.
    #[arg(long, value_name = "SEED")]
    adversarial: Option<u64>,
    /// What is logged on stderr: error, warn, info (what kernels print, too), debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: tracing::Level,
    /// Something that is wrong with the devices, on purpose: register:OFFSET=VALUE, facts:zero (no-capability, no-driver),
    /// open:refuse, or KIND:drop (fail=CODE, lose, hang, flip) of a kind of messages. Can be given
    /// several times.
    #[arg(long, value_name = "WHAT")]
    wrong: Vec<wrong::Wrong>,
    /// Stop when stdin closes, as well as on SIGTERM, SIGINT, or `exit` on the control socket.
    #[arg(long)]
    until_stdin_closes: bool,
}

/// Where devices are put.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bus {
    /// A folder that looks like sysfs.
    Sim(PathBuf),
    /// One function behind a socket, for a machine.
    VfioUser(PathBuf),
}

fn parse_bus(text: &str) -> Result<Bus, String> {
    match text.split_once(':') {
        Some(("sim", folder)) if !folder.is_empty() => Ok(Bus::Sim(PathBuf::from(folder))),
        Some(("vfio-user", socket)) if !socket.is_empty() => Ok(Bus::VfioUser(PathBuf::from(socket))),
        _ => Err("expected sim:DIR or vfio-user:SOCKET".to_owned()),
    }
}

/// `sim:DIR`, of a bus that has a control socket.
pub fn parse_sim(text: &str) -> Result<PathBuf, String> {
    match parse_bus(text) {
        Ok(Bus::Sim(folder)) => Ok(folder),
        _ => Err("expected sim:DIR".to_owned()),
    }
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    parse_compute_capability(text).ok_or_else(|| "expected MAJOR.MINOR".to_owned())
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "expected a size such as 8G, 512M".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || "expected seconds, such as 60 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| expected())
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    parse_uuid(text).ok_or_else(|| "expected a UUID".to_owned())
}

fn facts(text: &str) -> Result<Facts, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl Arguments {
    /// Address and GPU of each device.
    fn gpus(&self) -> Result<Vec<(PciAddress, GpuConfig)>> {
        let usual = || -> Result<GpuConfig> {
            let mut gpu = GpuConfig::new(&self.name)?;
            gpu.compute_capability = self.cc;
            gpu.memory_bytes = self.memory;
            gpu.driver_version = self.driver;
            gpu.driver_text.clone_from(&self.driver_text);
            Ok(gpu)
        };
        if self.device.is_empty() {
            return (0..self.devices)
                .map(|index| {
                    let mut gpu = usual()?;
                    // A UUID names one device.
                    if let (0, Some(uuid)) = (index, self.uuid) {
                        gpu.uuid = uuid;
                    }
                    Ok((PciAddress { domain: 0, bus: 0, device: FIRST_SLOT + index, function: 0 }, gpu))
                })
                .collect();
        }
        self.device
            .iter()
            .map(|facts| {
                let mut gpu = usual()?;
                gpu.name.clone_from(&facts.name);
                gpu.uuid = parse_uuid(&facts.uuid).context("read a device's uuid")?;
                gpu.compute_capability = parse_compute_capability(&facts.cc).context("read a device's cc")?;
                gpu.memory_bytes = facts.memory_mib << 20;
                Ok((facts.address.parse().context("read a device's address")?, gpu))
            })
            .collect()
    }

    fn executor(&self, gpu: &GpuConfig) -> Result<Arc<dyn Executor>> {
        Ok(match self.executor {
            ExecutorKind::Soft => {
                let usual = SoftOptions::default();
                let options = SoftOptions {
                    threads: self.threads.unwrap_or(usual.threads),
                    kernel_timeout: self.kernel_timeout,
                    adversary: self.adversarial,
                };
                Arc::new(Soft::with_options(gpu, options)?)
            }
            ExecutorKind::Null => Arc::new(Null::new(gpu)?),
        })
    }
}

/// Serves, says `ready` on stdout, and waits until it is told to stop.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(arguments.log).init();
    let mut configs = Vec::new();
    for (address, gpu) in arguments.gpus()? {
        let executor = wrong::around(arguments.executor(&gpu)?, &arguments.wrong);
        let mut config = DeviceConfig::new(address, executor);
        config.registers = wrong::registers(&arguments.wrong);
        config.window_bytes = arguments.window;
        config.channels = arguments.channels;
        configs.push(config);
    }
    match &arguments.bus {
        Bus::Sim(folder) => {
            let bus = SimBus::serve(folder, configs)?;
            let exit = bus.exit_handle();
            when_asked(arguments, move || exit.request())?;
            ready()?;
            // Without a limit it returns only when it was told to.
            let _asked = bus.wait_for_exit(None);
        }
        Bus::VfioUser(path) => serve_machine(arguments, path, &configs)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves one function to machines until told to stop.
fn serve_machine(arguments: &Arguments, path: &Path, configs: &[DeviceConfig]) -> Result<()> {
    let [config] = configs else { bail!("a vfio-user socket has one device") };
    let stub = V2::new(config)?;
    let device = Arc::clone(stub.device());
    let mut socket = FunctionSocket::bind(path, Arc::new(stub))?;
    let (told, stop) = mpsc::channel();
    when_asked(arguments, {
        let told = told.clone();
        // The other end goes when this process does.
        move || drop(told.send(Ok(())))
    })?;
    thread::spawn(move || told.send(socket.serve()));
    ready()?;
    let ended = stop.recv().context("wait for the end")?;
    device.shutdown();
    // The thread above is still in the socket, which it would have removed.
    std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    Ok(ended?)
}

/// Has `stop` called when a signal says so, or the end of stdin.
fn when_asked(arguments: &Arguments, stop: impl Fn() + Clone + Send + 'static) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watch for signals")?;
    let on_signal = stop.clone();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            on_signal();
        }
    });
    if arguments.until_stdin_closes {
        thread::spawn(move || {
            // Whatever comes is dropped; an error ends the wait as the end does.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            stop();
        });
    }
    Ok(())
}

/// Says that guests can come.
fn ready() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush().map_err(Into::into)
}
