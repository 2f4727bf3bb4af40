//! The command `replug`: gives a VM that runs its device back after the connection broke.
//!
//! QEMU connects to a vfio-user socket once, when it makes the device. So the device is taken out of the VM
//! and put in again, as a card in a slot would be, by QEMU's monitor. That needs the root port that
//! `serve --print` describes, and a guest whose kernel has PCIe hotplug.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::ask;
use crate::control::socket_of;
use crate::monitor::Monitor;
use crate::values::Bus;
use crate::vm::{DEVICE, PORT, device_at_port};

/// Interval at which a change of the VM is looked for. The guest's kernel waits five seconds before it gives
/// a device up.
const LOOK: Duration = Duration::from_millis(100);
/// Time in which QEMU closes or opens its connection.
const CONNECTS_MOST: Duration = Duration::from_secs(10);

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
    let control = socket_of(name, arguments.control.as_deref())?;
    let instance = ask::status(&control)?;
    if instance.name != *name {
        bail!("the device at {} is {}, not {name}", control.display(), instance.name);
    }
    let Ok(Bus::VfioUser(socket)) = instance.bus.parse() else {
        bail!("{name} is not behind a vfio-user socket, but at {}", instance.bus);
    };
    let Some(path) = socket.to_str().filter(|_| socket.is_absolute()) else {
        bail!("{name} was started with the path {}, which QEMU would not find", socket.display());
    };
    if instance.connected == Some(true) && !arguments.force {
        bail!("a VM is connected to {name}, and has its GPU; with --force its programs lose it");
    }
    let mut monitor = match &arguments.monitor {
        MonitorArguments { qmp: Some(socket), .. } => Monitor::qmp(socket)?,
        MonitorArguments { domain, .. } => Monitor::libvirt(domain.as_deref().unwrap_or_default()),
    };
    if !arguments.force && !monitor.was_started_with(path)? {
        bail!(
            "this VM was not started with the socket of {name}, {path}: it is another one (--force takes its device)"
        );
    }
    let limit = Duration::from_secs(arguments.limit);
    take_out(&mut monitor, limit)?;
    // QEMU closes the old connection a moment after the device is gone, and would wait for itself.
    let status = || Ok(ask::status(&control)?.connected);
    if !wait_for(false, status)? {
        bail!("{name} is still connected to a VM, which may be another one");
    }
    let device = Value::Object(device_at_port(&socket));
    monitor.execute("device_add", &device).context("put the device in again")?;
    if !wait_for(true, status)? {
        bail!("QEMU has the device again, but does not share its memory with {name}");
    }
    println!("{name}: the VM has its GPU again. Start programs anew that used it");
    Ok(ExitCode::SUCCESS)
}

/// Takes out the device, if it is still there.
fn take_out(monitor: &mut Monitor, limit: Duration) -> Result<()> {
    if !monitor.has_device(PORT)? {
        bail!(
            "the VM has no port `{PORT}`, from which its device could be taken: it has to be restarted, with \
             the arguments that `vgpu-device serve --print` prints without --vm-slot"
        );
    }
    if !monitor.has_device(DEVICE)? {
        return Ok(());
    }
    monitor.execute("device_del", &json!({ "id": DEVICE }))?;
    if !until(limit, || Ok(!monitor.has_device(DEVICE)?))? {
        bail!(
            "the guest does not give the device up within {} s: its kernel has to run, and to have PCIe hotplug \
             (pciehp)",
            limit.as_secs()
        );
    }
    Ok(())
}

/// Waits until a VM is connected, or none is. Returns false if that does not come to be. A device that does not
/// know counts as what is waited for.
fn wait_for(connected: bool, status: impl Fn() -> Result<Option<bool>>) -> Result<bool> {
    until(CONNECTS_MOST, || Ok(status()? != Some(!connected)))
}

/// Looks again and again until `done`, but not beyond the limit. Returns whether it is.
fn until(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    let end = Instant::now() + limit;
    while !done()? {
        if Instant::now() > end {
            return Ok(false);
        }
        thread::sleep(LOOK);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::tests::played;

    const READY: [&str; 2] = [r#"{"QMP":{}}"#, r#"{"return":{}}"#];
    const PORT_ONLY: &str = r#"{"return":[{"name":"vgpu-port"}]}"#;
    const BOTH: &str = r#"{"return":[{"name":"vgpu-port"},{"name":"vgpu"}]}"#;
    const DONE: &str = r#"{"return":{}}"#;

    /// Returns the commands after the first, and the error.
    fn taken_out(answers: &'static [&'static str], limit: Duration) -> (Vec<String>, Option<String>) {
        let mut error = None;
        let mut commands = played(answers, |monitor| {
            error = take_out(&mut monitor.unwrap(), limit).err().map(|error| error.to_string());
        });
        commands.remove(0);
        (commands, error)
    }

    #[test]
    fn a_device_is_taken_out_until_it_is_gone() {
        const ANSWERS: &[&str] = &[READY[0], READY[1], BOTH, BOTH, DONE, BOTH, PORT_ONLY];
        let (commands, error) = taken_out(ANSWERS, Duration::from_mins(1));
        assert_eq!((commands[2].as_str(), commands.len(), error), ("device_del", 5, None));
    }

    #[test]
    fn one_that_is_gone_already_is_not_taken_out() {
        const ANSWERS: &[&str] = &[READY[0], READY[1], PORT_ONLY, PORT_ONLY];
        let (commands, error) = taken_out(ANSWERS, Duration::ZERO);
        assert!(error.is_none() && !commands.contains(&"device_del".to_owned()), "{commands:?}");
    }

    #[test]
    fn a_vm_without_a_port_and_a_guest_without_hotplug_are_told() {
        const STAYS: &[&str] = &[READY[0], READY[1], BOTH, BOTH, DONE, BOTH];
        const NO_PORT: &[&str] = &[READY[0], READY[1], r#"{"return":[{"name":"type"}]}"#];
        let (_, error) = taken_out(NO_PORT, Duration::ZERO);
        assert!(error.unwrap().contains("has no port `vgpu-port`"));
        let (_, error) = taken_out(STAYS, Duration::ZERO);
        assert!(error.unwrap().contains("does not give the device up within 0 s"));
    }

    #[test]
    fn a_connection_is_waited_for() {
        assert!(wait_for(true, || Ok(Some(true))).unwrap() && wait_for(false, || Ok(None)).unwrap());
        assert!(wait_for(true, || bail!("it has ended")).is_err());
    }
}
