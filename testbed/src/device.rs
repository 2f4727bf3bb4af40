//! `vgpu-testbed device`: devices on a bus, until told to stop.

pub mod host;
mod v1;
mod wrong;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use clap::ValueEnum;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vgpu_device::{
    DeviceConfig, GpuConfig, PciAddress, SimBus, parse_bytes, parse_compute_capability, parse_uuid,
};
use vgpu_testbed::bed::Facts;

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
    /// The bus: `sim:DIR`, a folder that looks like sysfs.
    #[arg(long, value_parser = parse_bus)]
    bus: PathBuf,
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
    // Last: its heading is that of what follows, too.
    #[command(flatten)]
    v1: v1::V1Options,
}

/// `sim:DIR`.
pub fn parse_bus(text: &str) -> Result<PathBuf, String> {
    match text.split_once(':') {
        Some(("sim", folder)) if !folder.is_empty() => Ok(PathBuf::from(folder)),
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

    /// The devices on their bus.
    fn serve(&self) -> Result<SimBus> {
        if self.protocol == Protocol::V1 {
            return self.v1.serve(&self.bus, self.gpus()?, |gpu| {
                Ok(wrong::around(self.host.executor(gpu)?, &self.wrong))
            });
        }
        let mut configs = Vec::new();
        for (address, gpu) in self.gpus()? {
            let executor = wrong::around(self.host.executor(&gpu)?, &self.wrong);
            let mut config = DeviceConfig::new(address, executor);
            config.registers = wrong::registers(&self.wrong);
            config.window_bytes = self.window;
            config.channels = self.channels;
            configs.push(config);
        }
        Ok(SimBus::serve(&self.bus, configs)?)
    }
}

/// Serves, says `ready` on stdout, and waits until it is told to stop.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(arguments.log).init();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watch for signals")?;
    let bus = arguments.serve()?;
    let exit = bus.exit_handle();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            exit.request();
        }
    });
    if arguments.until_stdin_closes {
        let exit = bus.exit_handle();
        thread::spawn(move || {
            // Whatever comes is dropped; an error ends the wait as the end does.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            exit.request();
        });
    }
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    // Without a limit it returns only when it was told to.
    let _asked = bus.wait_for_exit(None);
    Ok(ExitCode::SUCCESS)
}
