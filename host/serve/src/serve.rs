//! The command `serve`: gives one virtual machine a GPU. Settings come from the command line and from a file.
//! It prints what the virtual machine has to be started with.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;

use crate::config::ConfigFiles;
use crate::control::ControlPath;
use crate::device::{self, CHANNELS, Protocol, WINDOW};
use crate::executor::{ExecutorKind, ExecutorOptions};
use crate::folder;
use crate::inherited::Inherited;
use crate::knobs::Knobs;
use crate::lifetime::{Served, log, ready};
use crate::mediator::{self, GRACE};
use crate::notify;
use crate::origin::Origin;
use crate::possible;
use crate::reload::{self, Handover, Identity};
use crate::settings::Settings;
use crate::share::VmShare;
use crate::takeover::Takeover;
use crate::v1::V1Options;
use crate::values::{Bus, Size, WARN};
use crate::vm::Vm;

/// Default memory of the virtual machine, in the arguments that are printed.
const VM_MEMORY: Size = Size(4 << 30);

/// Format in which `--print` prints the virtual machine's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Arguments of QEMU, quoted for a shell.
    Qemu,
    /// Elements of a libvirt domain, in XML.
    Libvirt,
    /// The line `args:` of a VM of Proxmox VE.
    Proxmox,
}

/// Options of the command `serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArguments {
    #[command(flatten)]
    config: ConfigFiles,
    #[command(flatten)]
    settings: Settings,
    /// Print the arguments with which the VM must be started, and serve nothing.
    #[arg(long, value_enum, value_name = "FOR")]
    print: Option<Format>,
    /// Stop when stdin closes, as well as on SIGTERM or SIGINT.
    #[arg(long)]
    until_stdin_closes: bool,
    /// Judge whether this program could continue the device whose state is in the file that standard input
    /// names, and serve nothing. A device's process starts this when it is reloaded.
    #[arg(long, hide = true)]
    judge: bool,
}

/// Serves until the process is told to stop. First prints what the virtual machine needs, then `ready`. Takes
/// the place of a process that has died, if its service manager has kept what that needs.
pub fn serve_configured(arguments: &ServeArguments, inherited: Inherited) -> Result<()> {
    let settings = arguments.settings.clone().or(arguments.config.read()?);
    let Some(bus) = settings.bus.clone() else {
        bail!("no bus is given: --bus vfio-user:SOCKET, or `bus` in the configuration file");
    };
    let misplaced = settings.misplaced(&bus);
    if !misplaced.is_empty() {
        bail!("the bus {bus} has no {}", misplaced.join(", "));
    }
    let (executor, unused) = (settings.executor(), settings.unused());
    if !unused.is_empty() {
        bail!("the executor {executor} has no {}", unused.join(", "));
    }
    possible::check(&settings, &bus)
        .map_err(|error| anyhow!("{}: {error}", arguments.config.place(error.name, &arguments.settings)))?;
    if let Some(format) = arguments.print {
        return print(format, &settings, &bus);
    }
    if matches!(bus, Bus::V1(_)) && executor == ExecutorKind::Cuda {
        bail!(
            "the bus {bus} has no executor cuda, which needs devices of version 2: name another one, such as \
             --executor soft"
        );
    }
    log(settings.log.unwrap_or(WARN));
    let knobs = Knobs::default();
    let control = ControlPath::for_bus(&bus, settings.control.as_deref());
    control.check_name()?;
    // A GPU of this host has other VMs. What the other executors announce is this device's own.
    let share = (executor == ExecutorKind::Cuda).then(|| {
        let Settings { memory, reserve, shares, weight, .. } = &settings;
        let weight = weight.unwrap_or(1);
        Arc::new(VmShare::new(control.name.clone(), *memory, *reserve, shares.clone(), weight))
    });
    let mut options = arguments.device(&settings, bus.clone(), share.clone());
    if arguments.judge {
        let kept = settings.kept()?;
        return reload::judge_state(|state| options.judge(state, &kept, &knobs));
    }
    reload::remember_program()?;
    if let Bus::VfioUser(socket) | Bus::V1(socket) = &bus {
        folder::make_for(socket)?;
    }
    let mut origin = origin(&bus, inherited, &options)?;
    options.host.record = origin.record().cloned();
    let (identity, listener) = match &mut origin {
        Origin::Start(_) => (Identity::new(settings.kept()?), None),
        Origin::Handover(handover) => (handover.identity(), Some(handover.take_control()?)),
    };
    let (shown, is_kept, start) = (share, origin.is_kept(), identity.start());
    let announce = |served: Served| {
        // Both end before the device does.
        let pulse = match (&shown, &served.figures) {
            (Some(share), Some(figures)) => Some(share.show(Arc::clone(figures))?),
            _ => None,
        };
        let is_new = listener.is_none();
        let control = control.serve(&bus, served, listener, start)?;
        if is_new {
            greet(&settings, &bus, is_kept)?;
            ready()?;
        }
        notify::ready()?;
        Ok((control, pulse))
    };
    match &bus {
        Bus::V1(path) => mediator::serve(&arguments.mediator(&settings, path), &knobs, announce),
        _ => device::serve(&options, &knobs, origin, identity, announce),
    }
}

/// Returns what the device comes from.
fn origin(bus: &Bus, inherited: Inherited, options: &device::DeviceArguments) -> Result<Origin> {
    let Bus::VfioUser(path) = bus else { return Ok(Origin::default()) };
    let shape = options.shape(path);
    let Inherited { kept, handed_over, priority } = inherited;
    Ok(match Handover::take(handed_over, priority)? {
        Some(handover) => Origin::Handover(Box::new(handover)),
        None => Origin::Start(Box::new(Takeover::begin(kept, shape)?)),
    })
}

impl ServeArguments {
    /// Returns the options of the command `device` that are equivalent to these settings.
    fn device(&self, settings: &Settings, bus: Bus, share: Option<Arc<VmShare>>) -> device::DeviceArguments {
        device::DeviceArguments {
            bus,
            group: settings.group,
            protocol: Protocol::V2,
            host: host(settings, share),
            window: settings.window.unwrap_or(WINDOW),
            channels: settings.channels.unwrap_or(CHANNELS),
            devices: 1,
            device: Vec::new(),
            ram: None,
            log: settings.log.unwrap_or(WARN),
            until_stdin_closes: self.until_stdin_closes,
            v1: V1Options::default(),
        }
    }

    /// Returns the options of the command `mediator` that are equivalent to these settings.
    fn mediator(&self, settings: &Settings, socket: &Path) -> mediator::MediatorArguments {
        mediator::MediatorArguments {
            socket: vec![socket.to_owned()],
            host: host(settings, None),
            rate: settings.rate,
            quarantine: Vec::new(),
            group: settings.group,
            grace: settings.grace.unwrap_or(GRACE),
            log: settings.log.unwrap_or(WARN),
            until_stdin_closes: self.until_stdin_closes,
        }
    }
}

/// Returns the options of the executor that are equivalent to these settings.
fn host(settings: &Settings, share: Option<Arc<VmShare>>) -> ExecutorOptions {
    let usual = ExecutorOptions::default();
    let executor = settings.executor();
    ExecutorOptions {
        executor,
        // An illegal access loses the CUDA context of its whole process, so each session on a GPU has a
        // process of its own.
        worker: executor == ExecutorKind::Cuda,
        worker_user: settings.worker_user.clone(),
        worker_connects: settings.worker_connects.unwrap_or(false),
        explain_refusals: settings.explain_refusals.unwrap_or(false),
        compiled: settings.compiled.clone(),
        cc: settings.cc.unwrap_or(usual.cc),
        memory: settings.memory.unwrap_or(usual.memory),
        libcuda: settings.libcuda.clone(),
        libcublas: settings.libcublas.clone(),
        host_gpu: settings.gpu,
        gpu_memory: settings.memory,
        share,
        uuid: settings.gpu,
        address_range: settings.address_range,
        address_part: settings.address_part,
        threads: settings.threads,
        kernel_timeout: settings.kernel_timeout,
        engine: settings.engine,
        ..usual
    }
}

/// Returns the virtual machine that the settings describe, with the device at `socket`.
pub(crate) fn vm(settings: &Settings, socket: &Path) -> Result<Vm> {
    let memory = settings.vm_memory.unwrap_or(VM_MEMORY).0;
    let socket = std::path::absolute(socket).context("find the socket's directory")?;
    let window_bytes = settings.window.unwrap_or(WINDOW).0;
    Ok(Vm { socket, memory_mib: memory >> 20, slot: settings.vm_slot, window_bytes })
}

/// Prints the virtual machine's part in the format that `--print` names.
fn print(format: Format, settings: &Settings, bus: &Bus) -> Result<()> {
    let Bus::VfioUser(socket) = bus else { bail!("the bus {bus} is not one that QEMU connects to") };
    let vm = vm(settings, socket)?;
    let text = match format {
        Format::Qemu => vm.shell() + "\n",
        Format::Libvirt => vm.libvirt(),
        Format::Proxmox => vm.proxmox() + "\n",
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Into::into)
}

/// Prints how guests connect to the device. `is_kept` is whether a VM keeps it when this process crashes.
fn greet(settings: &Settings, bus: &Bus, is_kept: bool) -> Result<()> {
    let text = match bus {
        Bus::VfioUser(socket) => {
            let vm = vm(settings, socket)?;
            format!(
                "Start the VM with QEMU 10.1 or later and these arguments:\n\n{}\n\n\
                 or with libvirt and these elements in its domain:\n\n{}\n\
                 Start the VM after this line. {}{}\n",
                vm.shell(),
                vm.libvirt(),
                if is_kept { "It keeps its GPU when vgpu-device crashes.\n" } else { "" },
                match vm.slot {
                    Some(_) => "Start it anew whenever vgpu-device was stopped and started.",
                    None =>
                        "When vgpu-device was stopped and started, `vgpu-device replug` gives a VM that runs its GPU back,\n\
                         by libvirt or by QEMU's monitor (-qmp unix:SOCKET,server=on,wait=off).",
                }
            )
        }
        Bus::Sim(folder) => {
            let folder = std::path::absolute(folder).context("find the bus's directory")?;
            format!("Programs of this machine find the device by VGPU_SYSFS={}\n", folder.display())
        }
        Bus::V1(socket) => {
            let socket = std::path::absolute(socket).context("find the socket's directory")?;
            format!("Hypervisors with a device of version 1 connect to {}\n", socket.display())
        }
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Into::into)
}
