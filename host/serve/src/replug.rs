//! The command `replug`: gives a VM that runs its device back after the connection broke.
//!
//! QEMU connects to a vfio-user socket once, when it makes the device. So the device is taken out of the VM
//! and put in again, as a card in a slot would be, by QEMU's monitor. That needs the root port that
//! `serve --print` describes, and a guest whose kernel has PCIe hotplug.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::ask;
use crate::control::{Instance, places};
use crate::monitor::Monitor;
use crate::values::Bus;
use crate::vm::{DEVICE, PORT, device_at_port};

/// Interval at which a change of the VM is looked for. The guest's kernel waits five seconds before it gives
/// a device up.
const LOOK: Duration = Duration::from_millis(100);

/// Options of the command `replug`.
#[derive(Debug, clap::Args)]
pub struct ReplugArguments {
    /// Name of the device, as `status` shows it.
    name: String,
    #[command(flatten)]
    monitor: MonitorArguments,
    /// Control socket of the device, if it is not in one of the usual directories.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Take the device out although the VM is connected: its programs lose the GPU.
    #[arg(long)]
    force: bool,
    /// Seconds that the guest's kernel may take to give the device up.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    limit: u64,
}

/// How QEMU is reached.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct MonitorArguments {
    /// QEMU's monitor, which it offers with `-qmp unix:SOCKET,server=on,wait=off`.
    #[arg(long, value_name = "SOCKET")]
    qmp: Option<PathBuf>,
    /// libvirt's domain, which `virsh` is asked about.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
}

/// Takes the device out of the VM and puts it in again. Returns exit code 0 once the VM is connected.
pub fn replug_device(arguments: &ReplugArguments) -> Result<ExitCode> {
    let name = &arguments.name;
    let found = || places().into_iter().find(|place| place.name == *name).map(|place| place.socket);
    let Some(control) = arguments.control.clone().or_else(found) else {
        bail!("no device of the name {name} is served that this user may ask; vgpu-device status lists them");
    };
    let instance = ask::status(&control)?;
    let Ok(Bus::VfioUser(socket)) = instance.bus.parse() else {
        bail!("{name} is not behind a vfio-user socket, but at {}", instance.bus);
    };
    if instance.connected == Some(true) && !arguments.force {
        bail!("a VM is connected to {name}, and has its GPU; with --force its programs lose it");
    }
    let mut monitor = match &arguments.monitor {
        MonitorArguments { qmp: Some(socket), .. } => Monitor::qmp(socket)?,
        MonitorArguments { domain, .. } => Monitor::libvirt(domain.as_deref().unwrap_or_default()),
    };
    replug(&mut monitor, &socket, Duration::from_secs(arguments.limit))?;
    wait_until_connected(name, || ask::status(&control).map_err(Into::into))?;
    println!("{name}: the VM has its GPU again. Start programs anew that used it");
    Ok(ExitCode::SUCCESS)
}

/// Takes out the device, if it is still there, and puts it in again.
fn replug(monitor: &mut Monitor, socket: &Path, limit: Duration) -> Result<()> {
    if !monitor.has_device(PORT)? {
        bail!(
            "the VM has no port `{PORT}`, from which its device could be taken: it has to be restarted, with \
             the arguments that `vgpu-device serve --print` prints without --vm-slot"
        );
    }
    if monitor.has_device(DEVICE)? {
        monitor.execute("device_del", &json!({ "id": DEVICE }))?;
        let end = Instant::now() + limit;
        while monitor.has_device(DEVICE)? {
            if Instant::now() > end {
                bail!(
                    "the guest does not give the device up within {} s: its kernel has to run, and to have \
                     PCIe hotplug (pciehp)",
                    limit.as_secs()
                );
            }
            thread::sleep(LOOK);
        }
    }
    let device = Value::Object(device_at_port(socket));
    monitor.execute("device_add", &device).context("put the device in again")?;
    Ok(())
}

/// Waits until the VM shares its memory with the device, as its firmware or kernel lets it.
fn wait_until_connected(name: &str, mut status: impl FnMut() -> Result<Instance>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while status()?.connected == Some(false) {
        if Instant::now() > end {
            bail!("QEMU has the device again, but does not share its memory with {name}");
        }
        thread::sleep(LOOK);
    }
    Ok(())
}
