//! The command `device`: serves devices on a bus until it is told to stop.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};
use vgpu_device::{DeviceConfig, GpuConfig, PciAddress, SimBus};
use vgpu_device_v1::PciFunction;
use vgpu_vfio_user::SharedRam;

use crate::executor::ExecutorOptions;
use crate::facts::{self, Facts};
use crate::figures::ServedFigures;
use crate::knobs::Knobs;
use crate::lifetime::{Lifetime, Reloaded, Served, Status, log, ready};
use crate::machine::{Announced, Machine};
use crate::origin::Origin;
use crate::reload::Identity;
use crate::takeover::{Past, Shape, Takeover};
use crate::v1::V1Options;
use crate::values::{Bus, Group, Level, Size, WARN};

/// Default memory in bytes of a guest with version 1 devices on a simulated bus.
const V1_RAM: u64 = 1 << 30;
/// Default size of the window.
pub(crate) const WINDOW: Size = Size(256 << 20);
/// Default number of channels of a device, and so of guest processes that can attach at a time.
pub(crate) const CHANNELS: u32 = 64;
/// PCI slot of the first device, where `--device` gives no addresses.
const FIRST_SLOT: u8 = 5;

/// Version of the contract between guest and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Version 1, which older hosts have: registers in BAR0, a data window in BAR1, one call at a time.
    V1,
    /// Version 2: rings of messages in a shared window.
    V2,
}

/// Options of the command `device`.
#[derive(clap::Args)]
pub struct DeviceArguments {
    /// The bus: `sim:DIR`, a directory that looks like sysfs, or `vfio-user:SOCKET`, where a QEMU of 10.1 or
    /// later connects.
    #[arg(long)]
    pub(crate) bus: Bus,
    /// Group, by name or number, whose users may connect to a vfio-user socket, too; without it only this
    /// user may.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<Group>,
    /// Version of the contract that the devices speak.
    #[arg(long, value_enum, default_value_t = Protocol::V2)]
    pub(crate) protocol: Protocol,
    #[command(flatten)]
    pub(crate) host: ExecutorOptions,
    /// Size of the window that guest and host share.
    #[arg(long, default_value_t = WINDOW)]
    pub(crate) window: Size,
    /// Number of guest processes that can be attached to a device at a time.
    #[arg(long, default_value_t = CHANNELS)]
    pub(crate) channels: u32,
    /// Number of devices on the bus.
    #[arg(long, default_value_t = 1, conflicts_with = "device")]
    pub(crate) devices: u8,
    /// One device by its facts, as JSON: address, name, uuid, cc, memory_mib. Can be given several times.
    #[arg(long, value_parser = facts::parse)]
    pub(crate) device: Vec<Facts>,
    /// Memory of the guest on a simulated bus, from which devices are granted pages. With version 1 there is
    /// always some, 1G by default. A virtual machine has memory of its own.
    #[arg(long)]
    pub(crate) ram: Option<Size>,
    /// Least severe level that is logged on stderr: error, warn, info (which includes the output of kernels),
    /// debug.
    #[arg(long, value_name = "LEVEL", default_value_t = WARN)]
    pub(crate) log: Level,
    /// Stop when stdin closes, as well as on SIGTERM, SIGINT, or `exit` on the control socket. A line
    /// `status` is answered on stdout by the state of a device on a vfio-user bus, in one line of JSON,
    /// because that bus has no control socket.
    #[arg(long)]
    pub(crate) until_stdin_closes: bool,
    // Last, because its heading applies to all options that follow.
    #[command(flatten)]
    pub(crate) v1: V1Options,
}

impl DeviceArguments {
    /// Returns the PCI address and GPU of each device.
    pub(crate) fn gpus(&self) -> Result<Vec<(PciAddress, GpuConfig)>> {
        if self.device.is_empty() {
            return (0..self.devices)
                .map(|index| {
                    let mut gpu = self.host.gpu(usize::from(index))?;
                    // A UUID names one device, so only the first gets that of the options.
                    if let (0, Some(uuid)) = (index, self.host.uuid()) {
                        gpu.uuid = uuid;
                    }
                    let first = Self::first_address();
                    Ok((PciAddress { device: first.device + index, ..first }, gpu))
                })
                .collect();
        }
        let gpus = self.device.iter().enumerate();
        gpus.map(|(index, facts)| facts.apply_to(self.host.gpu(index)?)).collect()
    }

    /// Returns the configuration of each version 2 device, with its executor.
    fn configs(&self, knobs: &Knobs) -> Result<Vec<DeviceConfig>> {
        let config = |(address, gpu)| -> Result<DeviceConfig> {
            let mut config = DeviceConfig::new(address, self.host.executor(&gpu, knobs)?);
            self.complete(&mut config)?;
            Ok(config)
        };
        self.gpus()?.into_iter().map(config).collect()
    }

    /// Sets what the options say of a device beside its executor.
    pub(crate) fn complete(&self, config: &mut DeviceConfig) -> Result<()> {
        config.window_bytes = self.window.0;
        config.channels = self.channels;
        if let Some(share) = &self.host.share {
            share.take_turns(&config.gate)?;
            config.share = share.source();
        }
        Ok(())
    }

    /// Returns the PCI address of the first device, unless the options give others.
    pub(crate) const fn first_address() -> PciAddress {
        PciAddress { domain: 0, bus: 0, device: FIRST_SLOT, function: 0 }
    }

    /// Returns what must stay as it is for a VM to keep its connection.
    pub(crate) fn shape<'a>(&self, path: &'a Path) -> Shape<'a> {
        let group = self.group.map(|group| group.0);
        Shape { path, group, window_bytes: self.window.0, channels: self.channels }
    }

    /// Refuses `--worker` with version 1, whose calls a mediator carries out: its owners are not sessions
    /// with a ring.
    fn refuse_workers(&self) -> Result<()> {
        if self.host.has_workers() {
            bail!("--worker is for devices of version 2");
        }
        Ok(())
    }

    /// Serves the devices on a simulated bus in `folder`.
    fn simulate(&self, folder: &Path, knobs: &Knobs) -> Result<SimBus> {
        let ram = self.ram.map(|ram| ram.0);
        if ram.is_some_and(|ram| ram > isize::MAX as u64) {
            bail!("a guest cannot have so much memory");
        }
        Ok(match self.protocol {
            Protocol::V1 => {
                self.refuse_workers()?;
                let executor = |gpu: &GpuConfig| self.host.executor(gpu, knobs);
                self.v1.serve(folder, ram.unwrap_or(V1_RAM), &knobs.v1, self.gpus()?, executor)?
            }
            Protocol::V2 => SimBus::serve_hooked(folder, ram, self.configs(knobs)?, &knobs.device)?,
        })
    }

    /// Serves one device to virtual machines, at a vfio-user socket.
    fn serve_machine<T: Announced>(
        &self,
        lifetime: &Lifetime,
        path: &Path,
        knobs: &Knobs,
        origin: Origin,
        identity: Identity,
        announce: impl FnOnce(Served) -> Result<T>,
    ) -> Result<()> {
        if self.ram.is_some() {
            bail!("--ram is for a simulated bus: a machine has its own memory");
        }
        if self.protocol == Protocol::V2 {
            return self.serve_stub(lifetime, path, knobs, origin, identity, announce);
        }
        self.refuse_workers()?;
        let ram = SharedRam::default();
        let [(_, gpu)] = &self.gpus()?[..] else { bail!("a vfio-user socket has one device") };
        let executor = || self.host.executor(gpu, knobs);
        let device = self.v1.device(Arc::new(ram.clone()), &knobs.v1, executor)?;
        let counted = Arc::clone(&device);
        let status: Status = Arc::new(move || json!({ "accesses": counted.accesses() }));
        lifetime.watch(self.until_stdin_closes, Arc::clone(&status))?;
        let served = Served::without_sessions(status, lifetime);
        let (shape, function) = (self.shape(path), Arc::new(PciFunction::new(device)));
        let opened = Takeover::default().open(shape, None, function, ram)?;
        Machine { shape, opened, running: None }.serve(lifetime, served, announce, || {})
    }
}

/// Serves until the process is told to stop. Prints `ready` when guests can connect.
pub fn serve_device(arguments: &DeviceArguments, knobs: &Knobs) -> Result<()> {
    log(arguments.log);
    serve(arguments, knobs, Origin::default(), Identity::default(), |_| ready())
}

/// Serves until the process is told to stop. Calls `announce` when guests can connect.
pub(crate) fn serve<T: Announced>(
    arguments: &DeviceArguments,
    knobs: &Knobs,
    origin: Origin,
    identity: Identity,
    announce: impl FnOnce(Served) -> Result<T>,
) -> Result<()> {
    let lifetime = Lifetime::begin()?;
    match &arguments.bus {
        Bus::Sim(folder) => {
            if arguments.group.is_some() {
                bail!("--group is for a vfio-user socket: a simulated bus is one user's");
            }
            let bus = arguments.simulate(folder, knobs)?;
            lifetime.watch(arguments.until_stdin_closes, Arc::new(|| Value::Null))?;
            let (known, ending, counting) = (bus.status_handle(), bus.status_handle(), bus.status_handle());
            let read = move || {
                let device = counting.figures().unwrap_or_default();
                ServedFigures { device, connected: device.sessions > 0 }
            };
            let announced = announce(Served {
                status: Arc::new(move || serde_json::to_value(known.status()).unwrap_or_default()),
                end_session: Arc::new(move |number, by| ending.end_session(number, by)),
                reload: lifetime.reloader(),
                reloaded: Reloaded::default(),
                figures: Some(Arc::new(read)),
                past: Past::None,
            })?;
            let ended = thread::scope(|scope| {
                let (stop, bus) = (lifetime.stopper(), &bus);
                scope.spawn(move || {
                    // Without a time limit this returns only when the bus was told to exit.
                    let _asked = bus.wait_for_exit(None);
                    stop();
                });
                let ended = lifetime.wait();
                bus.exit_handle().request();
                ended
            });
            drop(announced);
            ended
        }
        Bus::VfioUser(path) => arguments.serve_machine(&lifetime, path, knobs, origin, identity, announce),
        Bus::V1(_) => {
            bail!("the command `mediator` or `serve` serves version 1's devices of other processes")
        }
    }
}
