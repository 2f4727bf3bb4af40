//! `vgpu-testbed device`: devices on a bus, until told to stop.

pub mod host;
mod v1;
pub mod wrong;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vgpu_device::{
    DeviceConfig, GpuConfig, PciAddress, SimBus, TestHooks, parse_bytes, parse_compute_capability, parse_uuid,
};
use vgpu_guest::pci::Function;
use vgpu_guest::pci::ram::SharedRam;
use vgpu_guest::pci::socket::FunctionSocket;
use vgpu_guest::pci::stub::V2;
use vgpu_guest::pci::stub1::V1;
use vgpu_testbed::bed::Facts;

/// Memory of a guest with devices of version 1.
const V1_RAM: u64 = 1 << 30;
/// Slot of the first device that is not given by `--device`.
const FIRST_SLOT: u8 = 5;

/// Versions of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// That of hosts that exist: BAR0, BAR1, one call at a time.
    V1,
    /// Rings in a window.
    V2,
}

/// Options.
#[derive(clap::Args)]
pub struct Arguments {
    /// The bus: `sim:DIR`, a folder that looks like sysfs, or `vfio-user:SOCKET`, where a QEMU of 10.1 or later connects.
    #[arg(long, value_parser = parse_bus)]
    bus: Bus,
    /// Version of the contract that the devices speak.
    #[arg(long, value_enum, default_value_t = Protocol::V2)]
    protocol: Protocol,
    #[command(flatten)]
    host: host::HostOptions,
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
    /// Memory of the guest on a simulated bus, of which devices take pages. With version 1 there is always some, 1G unless told
    /// otherwise; a machine has its own.
    #[arg(long, value_parser = bytes)]
    ram: Option<u64>,
    /// What is logged on stderr: error, warn, info (what kernels print, too), debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: tracing::Level,
    /// Something that is wrong with the devices, on purpose: register:OFFSET=VALUE, facts:zero (no-capability, no-driver),
    /// open:refuse, or KIND:drop (fail=CODE, lose, hang, flip, park=FILE) of a kind of messages. Can be
    /// given several times.
    #[arg(long, value_name = "WHAT")]
    wrong: Vec<wrong::Wrong>,
    /// Stop when stdin closes, as well as on SIGTERM, SIGINT, or `exit` on the control socket. A line `status` is answered on stdout
    /// by what a device behind vfio-user knows, in one line of JSON: a machine's bus has no control socket.
    #[arg(long)]
    until_stdin_closes: bool,
    // Last: its heading is that of what follows, too.
    #[command(flatten)]
    v1: v1::V1Options,
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

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "expected a size such as 8G, 512M".to_owned())
}

fn facts(text: &str) -> Result<Facts, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl Arguments {
    /// Address and GPU of each device.
    fn gpus(&self) -> Result<Vec<(PciAddress, GpuConfig)>> {
        if self.device.is_empty() {
            return (0..self.devices)
                .map(|index| {
                    let mut gpu = self.host.gpu()?;
                    // A UUID names one device.
                    if let (0, Some(uuid)) = (index, self.host.uuid()) {
                        gpu.uuid = uuid;
                    }
                    Ok((PciAddress { domain: 0, bus: 0, device: FIRST_SLOT + index, function: 0 }, gpu))
                })
                .collect();
        }
        self.device
            .iter()
            .map(|facts| {
                let mut gpu = self.host.gpu()?;
                gpu.name.clone_from(&facts.name);
                gpu.uuid = parse_uuid(&facts.uuid).context("read a device's uuid")?;
                gpu.compute_capability = parse_compute_capability(&facts.cc).context("read a device's cc")?;
                gpu.memory_bytes = facts.memory_mib << 20;
                Ok((facts.address.parse().context("read a device's address")?, gpu))
            })
            .collect()
    }

    /// Devices of version 2.
    fn configs(&self) -> Result<Vec<DeviceConfig>> {
        let config = |(address, gpu)| -> Result<DeviceConfig> {
            let executor = wrong::around(self.host.executor(&gpu)?, &self.wrong);
            let mut config = DeviceConfig::new(address, executor);
            config.window_bytes = self.window;
            config.channels = self.channels;
            Ok(config)
        };
        self.gpus()?.into_iter().map(config).collect()
    }

    /// What is wrong with the devices themselves.
    fn hooks(&self) -> TestHooks {
        TestHooks { registers: wrong::registers(&self.wrong) }
    }

    /// The devices on a simulated bus.
    fn simulate(&self, folder: &Path) -> Result<SimBus> {
        if self.ram.is_some_and(|ram| ram > isize::MAX as u64) {
            bail!("a guest cannot have so much memory");
        }
        Ok(match (self.protocol, self.ram) {
            (Protocol::V1, ram) => self.v1.serve(folder, ram.unwrap_or(V1_RAM), self.gpus()?, |gpu| {
                Ok(wrong::around(self.host.executor(gpu)?, &self.wrong))
            })?,
            (Protocol::V2, ram) => SimBus::serve_hooked(folder, ram, self.configs()?, &self.hooks())?,
        })
    }
}

/// Serves, says `ready` on stdout, and waits until it is told to stop.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(arguments.log).init();
    match &arguments.bus {
        Bus::Sim(folder) => {
            let bus = arguments.simulate(folder)?;
            let exit = bus.exit_handle();
            when_asked(arguments, move || exit.request(), || Value::Null)?;
            ready()?;
            // Without a limit it returns only when it was told to.
            let _asked = bus.wait_for_exit(None);
        }
        Bus::VfioUser(path) => serve_machine(arguments, path)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves one function to machines until told to stop.
fn serve_machine(arguments: &Arguments, path: &Path) -> Result<()> {
    let ram = SharedRam::default();
    if arguments.ram.is_some() {
        bail!("--ram is for a simulated bus: a machine has its own memory");
    }
    let function: Arc<dyn Function>;
    let status: Box<dyn Fn() -> Value + Send>;
    let end: Box<dyn FnOnce()>;
    match arguments.protocol {
        Protocol::V1 => {
            let [(_, gpu)] = &arguments.gpus()?[..] else { bail!("a vfio-user socket has one device") };
            let executor = || Ok(wrong::around(arguments.host.executor(gpu)?, &arguments.wrong));
            let device = arguments.v1.device(Arc::new(ram.clone()), executor)?;
            let counted = Arc::clone(&device);
            status = Box::new(move || json!({ "accesses": counted.accesses() }));
            function = Arc::new(V1::new(device));
            end = Box::new(|| {});
        }
        Protocol::V2 => {
            let [config] = &arguments.configs()?[..] else { bail!("a vfio-user socket has one device") };
            let config = DeviceConfig { memory: Some(Arc::new(ram.clone())), ..config.clone() };
            let stub = V2::with_hooks(&config, &arguments.hooks())?;
            let (device, known) = (Arc::clone(stub.device()), Arc::clone(stub.device()));
            status = Box::new(move || serde_json::to_value(known.status()).unwrap_or_default());
            function = Arc::new(stub);
            end = Box::new(move || device.shutdown());
        }
    }
    let mut socket = FunctionSocket::bind(path, function, ram)?;
    let (told, stop) = mpsc::channel();
    when_asked(
        arguments,
        {
            let told = told.clone();
            // The other end goes when this process does.
            move || drop(told.send(Ok(())))
        },
        status,
    )?;
    thread::spawn(move || told.send(socket.serve()));
    ready()?;
    let ended = stop.recv().context("wait for the end")?;
    end();
    // The thread above is still in the socket, which it would have removed.
    std::fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
    Ok(ended?)
}

/// Has `stop` called when a signal says so, or the end of stdin; asked for it by a line there, prints the `status`.
fn when_asked(
    arguments: &Arguments,
    stop: impl Fn() + Clone + Send + 'static,
    status: impl Fn() -> Value + Send + 'static,
) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watch for signals")?;
    let on_signal = stop.clone();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            on_signal();
        }
    });
    if arguments.until_stdin_closes {
        thread::spawn(move || {
            // An error ends the wait as the end does; any other line is nothing.
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if line == "status" {
                    println!("{}", status());
                }
            }
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
