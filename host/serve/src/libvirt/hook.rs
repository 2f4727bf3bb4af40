//! The command `libvirt-hook`, which libvirt calls before it starts a domain, after it has ended one, and
//! where one arrives that migrates: `DOMAIN OPERATION SUB-OPERATION EXTRA`, with the domain's XML on stdin.
//!
//! libvirt waits for the hook with the domain locked, so nothing here may ask libvirt. It fails a start or a
//! migration whose hook fails, and shows what the hook wrote to stderr. Whatever it writes to stdout would be
//! taken for another XML.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};
use vgpu_host_check::{Root, qemu_group};

use super::domain::Domain;
use super::instance::{Instance, InstanceError};
use super::request::NAMESPACE;
use crate::check::Host;
use crate::config::ConfigFiles;
use crate::settings::Settings;
use crate::values::Bus;

/// Limit of the XML in bytes of a domain that asks for a device. Domains have some KiB.
const MOST: u64 = 4 << 20;

/// Options of the command `libvirt-hook`.
#[derive(Debug, clap::Args)]
pub struct HookArguments {
    /// Directory that is used in place of /, for tests.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    /// What libvirt says: the domain's name, the operation, and its part.
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Starts or stops the instance of a domain, and refuses its migration. Operations that do not concern a
/// device succeed at once.
pub fn run_hook(arguments: &HookArguments) -> Result<ExitCode> {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    let [name, operation @ ("prepare" | "release" | "migrate"), "begin" | "end", ..] = words[..] else {
        return Ok(ExitCode::SUCCESS);
    };
    let Some(domain) = read(io::stdin())? else { return Ok(ExitCode::SUCCESS) };
    let instance = domain.request.instance(name)?;
    let instance = Instance::new(&arguments.root, &instance);
    match operation {
        "prepare" => start(&domain, &instance, &arguments.root)
            .with_context(|| format!("the domain {name} does not get its GPU"))?,
        "release" => instance.stop(&domain.uuid)?,
        // QEMU would migrate it without the state of its device. It runs on where it is.
        _ => bail!(
            "the domain {name} cannot migrate, because what it has on its GPU stays on its host: shut it down, \
             and start it on the other host"
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the domain of an XML, if it asks for a device. Most domains of a host do not, and are not looked at
/// further, whatever their XML is.
fn read(mut from: impl io::Read) -> Result<Option<Domain>> {
    let mut xml = Vec::new();
    let mut more =
        |xml: &mut Vec<u8>, most| from.by_ref().take(most).read_to_end(xml).context("read the domain's XML");
    let asks = |xml: &[u8]| xml.windows(NAMESPACE.len()).any(|part| part == NAMESPACE.as_bytes());
    let too_long = more(&mut xml, MOST + 1)? as u64 > MOST;
    let mut found = asks(&xml);
    while too_long && !found {
        // The name may lie across two parts.
        xml.drain(..xml.len() - NAMESPACE.len());
        if more(&mut xml, MOST)? == 0 {
            break;
        }
        found = asks(&xml);
    }
    if !found {
        return Ok(None);
    }
    if too_long {
        bail!("the domain's XML has more than {MOST} bytes");
    }
    let xml = String::from_utf8(xml).context("the domain's XML is not UTF-8")?;
    Ok(Domain::read(&xml)?)
}

fn start(domain: &Domain, instance: &Instance, root: &Path) -> Result<()> {
    let (mut text, requested) = domain.request.settings()?;
    let own = ConfigFiles::optional(&instance.configuration).read_if_any()?;
    let mut settings = requested.clone().or(own);
    // What neither the domain nor the operator says: the socket, and who connects to it.
    let mut add = |name: &str, value: String| {
        text.push_str(&[name, " = ", &toml::Value::String(value).to_string(), "\n"].concat());
    };
    if settings.bus.is_none() {
        let bus = Bus::VfioUser(instance.socket());
        add("bus", bus.to_string());
        settings.bus = Some(bus);
    }
    let group = || qemu_group(&Root::new(root)).map(|group| group.to_string());
    if settings.group.is_none()
        && let Some(group) = domain.group.clone().or_else(group)
    {
        settings.group = Some(group.parse().map_err(anyhow::Error::msg)?);
        add("group", group);
    }
    connects(domain, &settings)?;
    match instance.start(&domain.uuid, &text, &requested.given()) {
        Ok(()) => Ok(()),
        Err(error @ InstanceError::Start { since, .. }) => {
            let why = why(domain, instance, &settings, since);
            instance.give_up(&domain.uuid)?;
            match why {
                Some(why) => bail!("{} is not ready. {why}", instance.unit),
                None => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a domain that has no device at the socket: it would start, and have no GPU.
fn connects(domain: &Domain, settings: &Settings) -> Result<()> {
    let Some(Bus::VfioUser(socket)) = &settings.bus else {
        bail!("its instance is not behind a vfio-user socket: `bus` has to be vfio-user:SOCKET");
    };
    if !domain.sockets.iter().any(|path| socket.to_str() == Some(path)) {
        bail!(
            "it has no device at {}: vgpu-device attach-domain adds it to a domain that is shut off",
            socket.display()
        );
    }
    Ok(())
}

/// Returns why an instance is not ready: what `check` finds, or else what its program has said since its
/// start.
fn why(domain: &Domain, instance: &Instance, settings: &Settings, since: SystemTime) -> Option<String> {
    let report = Host::with_qemu(domain.emulator.clone()).report(settings);
    match report {
        Ok(report) if report.is_broken() => Some(report.headline()),
        _ => instance.last_error(since),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_domain_that_asks_for_a_device_has_to_be_understood() {
        let long = vec![b' '; 2 * usize::try_from(MOST).unwrap()];
        for other in [&b"<domain>\xff</domain>"[..], b"no XML", b"", &long] {
            assert!(read(other).unwrap().is_none());
        }
        let name = NAMESPACE.as_bytes();
        let latin = [name, b"\xff"].concat();
        let error = read(&latin[..]).unwrap_err().to_string();
        assert!(error.contains("not UTF-8"), "{error}");
        // Across the first two parts that are read, and at the end.
        let across = long.len() / 2 - 4;
        for (before, after) in [(0, long.len()), (across, across), (long.len(), 0)] {
            let xml = [&long[..before], name, &long[..after]].concat();
            let error = read(&xml[..]).unwrap_err().to_string();
            assert!(error.contains("more than"), "{before}: {error}");
        }
    }
}
