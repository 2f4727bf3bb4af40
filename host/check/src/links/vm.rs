//! Links of QEMU, and of the VM that it runs.

use std::io;
use std::path::Path;

use tokio::process::Command;
use vgpu_findings::child;

use crate::catalogue::{Finding, LinkId, cause};
use crate::options::CommandLine;
use crate::subject::{HostFacts, PROGRAM_LIMIT, Subject};

/// First version of QEMU with vfio-user-pci, as major and minor.
const OLDEST: (u32, u32) = (10, 1);

/// Examines QEMU: its version, and whether it has the device.
pub async fn qemu(subject: &Subject, known: &mut HostFacts) -> Finding {
    if !subject.has_qemu {
        return Finding::skip(LinkId::Qemu, "QEMU does not connect to this bus");
    }
    let name = subject.qemu.display();
    let outcome = match run_qemu(&subject.qemu, &["--version"]).await {
        Ok(outcome) => outcome,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::fail(cause::qemu::QEMU_MISSING, format!("there is no {name}"));
        }
        Err(error) => return Finding::unknown(LinkId::Qemu, format!("start {name}: {error}")),
    };
    let Some((text, version)) = version(&outcome.stdout).filter(|_| outcome.trouble().is_none()) else {
        let how = outcome.trouble().unwrap_or_else(|| "said no version".to_owned());
        return Finding::unknown(LinkId::Qemu, format!("{name} --version {how}"))
            .details(outcome.stdout.lines().chain(outcome.stderr.lines()).take(5));
    };
    known.qemu = Some(text.clone());
    if version < OLDEST {
        return Finding::fail(cause::qemu::TOO_OLD, format!("{name} is {text}")).expected("10.1 or later");
    }
    match run_qemu(&subject.qemu, &["-machine", "none", "-device", "vfio-user-pci,help"]).await {
        Ok(outcome) if outcome.trouble().is_none() => {
            Finding::pass(LinkId::Qemu, format!("{text}, with vfio-user-pci"))
        }
        Ok(outcome) => {
            Finding::fail(cause::qemu::NO_VFIO_USER, format!("{name} {text} has no device vfio-user-pci"))
                .details(outcome.stderr.lines().take(5))
        }
        Err(error) => Finding::unknown(LinkId::Qemu, format!("start {name}: {error}")),
    }
}

async fn run_qemu(program: &Path, arguments: &[&str]) -> io::Result<child::ChildOutcome> {
    let mut command = Command::new(program);
    command.args(arguments);
    child::run_bounded(command, PROGRAM_LIMIT).await
}

/// Reads a version such as `QEMU emulator version 10.1.2 (Debian ...)`. Returns it as text, with its first
/// two numbers.
fn version(text: &str) -> Option<(String, (u32, u32))> {
    let word = text.split_once("version ")?.1.split_whitespace().next()?;
    let mut numbers = word.split('.');
    let version = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    Some((word.to_owned(), version))
}

/// Examines the VM that runs with the device, if one does.
pub fn vm(subject: &Subject, _known: &mut HostFacts) -> Finding {
    let Some(socket) = &subject.socket else {
        return Finding::skip(LinkId::Vm, "no vfio-user socket is given");
    };
    let socket = socket.to_string_lossy();
    let processes = subject
        .root
        .processes()
        .into_iter()
        .map(|process| (process.pid, CommandLine::read(&process.arguments)));
    let Some((pid, line)) = processes.into_iter().find(|(_, line)| line.connects_to(&socket)) else {
        return Finding::skip(LinkId::Vm, format!("no VM has a device at {socket}"));
    };
    if let Some(why) = line.private_memory() {
        return Finding::fail(cause::vm::RAM_PRIVATE, format!("process {pid}: {why}"));
    }
    for (driver, cause, name) in [
        ("virtio-balloon", cause::vm::BALLOON, "balloon"),
        ("virtio-mem", cause::vm::VIRTIO_MEM, "virtio-mem device"),
    ] {
        if let Some(device) = line.device(driver) {
            return Finding::fail(cause, format!("process {pid} has a {name}: {device}"));
        }
    }
    let found = format!("process {pid} shares its memory, which keeps its size");
    Finding::pass(
        LinkId::Vm,
        match &subject.restart {
            Some(restart) => format!("{found}; its device was {restart}"),
            None => found,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_qemu_are_read() {
        let text = "QEMU emulator version 10.1.2 (Debian 1:10.1.2+ds-1)\nCopyright (c) 2003-2025";
        assert_eq!(version(text), Some(("10.1.2".to_owned(), (10, 1))));
        assert_eq!(version("QEMU emulator version 7.2.22").map(|found| found.1 < OLDEST), Some(true));
        assert_eq!(version("no such thing"), None);
    }
}
