//! The command `attach-domain`: adds to a domain of libvirt what its device needs.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use similar::TextDiff;

use super::domain::{child, parse, request, requested};
use super::edit::attached;
use super::instance::Instance;
use super::request::{INSTANCE, Request};
use crate::config::ConfigFiles;
use crate::possible;
use crate::programs;
use crate::serve;
use crate::settings::Settings;
use crate::values::Bus;

/// Maximum time that virsh may take. libvirt asks a QEMU that it does not know yet what it can do, before it
/// defines a domain: 14 s with QEMU 11.1.3 on a machine of two processors, and minutes where these have much
/// else to do.
const VIRSH_MOST: Duration = Duration::from_mins(5);

/// Options of the command `attach-domain`.
#[derive(Debug, clap::Args)]
pub struct AttachArguments {
    /// The domain: its name, its number or its UUID, as virsh takes it.
    domain: String,
    /// Print what would change in the domain's XML, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Leave nothing of the device in the domain's metadata: libvirt does not start the instance, but the
    /// operator.
    #[arg(long, conflicts_with_all = ["gpu", "memory", "weight", "window", "channels", "group"])]
    by_hand: bool,
    /// Instance of vgpu-device@.service that is the domain's [default: the domain's name].
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// UUID of the GPU, as `nvidia-smi -L` prints it.
    #[arg(long, value_name = "UUID")]
    gpu: Option<String>,
    /// Device memory that the VM is promised, such as 8G.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Share of the GPU's time relative to that of its other VMs, 1 to 1000.
    #[arg(long, value_name = "NUMBER")]
    weight: Option<String>,
    /// Size of the window that guest and host share, a power of two.
    #[arg(long, value_name = "SIZE")]
    window: Option<String>,
    /// Number of guest processes that can use the device at a time.
    #[arg(long, value_name = "NUMBER")]
    channels: Option<String>,
    /// Group whose users may connect to the socket; by default that of the domain's QEMU.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Directory that is used in place of /, for tests.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Adds the device to the domain, from its next start on, or shows what would change.
pub fn attach_domain(arguments: &AttachArguments) -> Result<ExitCode> {
    let before = dump(&arguments.domain)?;
    let (name, asked) = read(&before)?;
    // What is about to be removed from the metadata no longer counts.
    let asked = if arguments.by_hand { Request::default() } else { asked };
    let asked = arguments.given().into_iter().fold(asked, |mut asked, (name, value)| {
        asked.0.insert(name.to_owned(), value);
        asked
    });
    let instance = Instance::new(&arguments.root, &asked.instance(&name)?);
    let requested = asked.settings()?.1;
    let settings = requested.or(ConfigFiles::optional(&instance.configuration).read_if_any()?);
    let bus = settings.bus.clone().unwrap_or_else(|| Bus::VfioUser(instance.socket()));
    let Bus::VfioUser(socket) = &bus else {
        bail!("{} says {bus}, which is not one that QEMU connects to", instance.configuration.display());
    };
    possible::check(&settings, &bus).map_err(|error| anyhow!("{name}: {error}"))?;
    let vm = serve::vm(&settings, socket)?;
    let after = attached(&before, &vm, (!arguments.by_hand).then_some(&asked))?;
    let mut out = io::stdout().lock();
    if after == before {
        writeln!(out, "{name} has the device at {} already", socket.display())?;
    } else if arguments.dry_run {
        let diff = TextDiff::from_lines(&before, &after);
        write!(out, "{}", diff.unified_diff().header(&name, "with the device"))?;
    } else {
        define(&arguments.domain, &before, &after)?;
        writeln!(out, "{name} has a device at {}, from its next start on", socket.display())?;
        writeln!(out, "{}", next(arguments, &settings, &instance))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl AttachArguments {
    /// Returns the attributes that are given, by name.
    fn given(&self) -> Vec<(&'static str, String)> {
        let all = [
            (INSTANCE, &self.instance),
            ("gpu", &self.gpu),
            ("memory", &self.memory),
            ("weight", &self.weight),
            ("window", &self.window),
            ("channels", &self.channels),
            ("group", &self.group),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }
}

/// Says what an operator does next.
fn next(arguments: &AttachArguments, settings: &Settings, instance: &Instance) -> String {
    if arguments.by_hand {
        let unit = &instance.unit;
        return format!("Start its instance before it: systemctl enable --now {unit}");
    }
    let memory = settings.memory.map_or_else(
        || "all that the GPU has not promised (--memory 8G promises it less)".to_owned(),
        |memory| format!("{memory} of the GPU's memory"),
    );
    format!(
        "Its instance starts and stops with it, and is promised {memory}: virsh start {}",
        arguments.domain
    )
}

/// Returns the domain's XML as it is kept, with passwords, which would be lost otherwise.
fn dump(domain: &str) -> Result<String> {
    let dump = ["dumpxml", "--inactive", "--security-info", "--domain", domain];
    Ok(programs::run("virsh", &dump, VIRSH_MOST)?)
}

/// Returns the domain's name, and what it asks for already.
fn read(xml: &str) -> Result<(String, Request)> {
    let document = parse(xml)?;
    let domain = document.root_element();
    let name = child(domain, "name").and_then(|name| name.text()).context("the domain has no name")?;
    Ok((name.to_owned(), requested(domain).map(request).unwrap_or_default()))
}

/// Hands the XML over to libvirt, unless somebody has changed the domain meanwhile.
fn define(domain: &str, before: &str, after: &str) -> Result<()> {
    if dump(domain)? != before {
        bail!("somebody has changed the domain {domain} meanwhile: nothing was done, try again");
    }
    // It may have passwords, so it lies in no directory.
    let file = memfd_create("domain.xml", MemfdFlags::CLOEXEC).context("make a file for the XML")?;
    let mut file = File::from(file);
    file.write_all(after.as_bytes()).context("write the XML")?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    programs::run("virsh", &["define", &path], VIRSH_MOST)?;
    Ok(())
}
