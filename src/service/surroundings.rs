//! Examines the surroundings of a service: installations of Ollama without a systemd unit, and software that
//! would claim the device.

use std::path::Path;

use vgpu_transport::{PciFunction, scan, sysfs_root};

use super::command::CommandError;
use super::root::SystemRoot;
use crate::device::survey;
use crate::error::{Failure, LauncherError as _};
use crate::ollama::installer;

/// Name of the unit that Ollama's own installer writes.
pub const OLLAMA: &str = "ollama.service";
/// Command in the unit of Ollama's installer, which installs to the first of three directories on PATH.
pub const OLLAMA_COMMAND: &str = "/usr/local/bin/ollama serve";

const SNAP: &str = "A snap is confined, and vgpu-run cannot hand libraries into it. Remove it (snap remove ollama), and install \
                    Ollama with its own installer.";
const CONTAINER: &str = "A container needs vgpu-run inside, before Ollama, and the device's files: docker run --privileged \
                         -v /usr/local/bin/vgpu-run:/usr/bin/vgpu-run:ro --entrypoint /usr/bin/vgpu-run ollama/ollama \
                         /bin/ollama serve";
const INIT: &str = "Have its script start Ollama as root by vgpu-run, which gives the device to Ollama's user and drops to it: \
                    vgpu-run --user ollama ollama serve";

/// Returns advice for an Ollama that is installed without a systemd unit, or `None` if no such installation
/// is found.
pub fn other_ways(root: &SystemRoot) -> Option<&'static str> {
    let snap = ["/snap/bin/ollama", "/var/snap/ollama", "/etc/systemd/system/snap.ollama.listener.service"];
    let container = ["/.dockerenv", "/run/.containerenv", "/etc/containers/systemd/ollama.container"];
    let init = [
        "/etc/init.d/ollama",
        "/etc/sv/ollama/run",
        "/etc/s6/sv/ollama/run",
        "/etc/s6-overlay/s6-rc.d/ollama/run",
    ];
    let any = |paths: &[&str]| paths.iter().any(|path| root.has(path));
    if any(&snap) {
        return Some(SNAP);
    }
    if any(&container) || docker_has_ollama(root) {
        return Some(CONTAINER);
    }
    any(&init).then_some(INIT)
}

/// Returns whether Docker has a container of Ollama's image.
fn docker_has_ollama(root: &SystemRoot) -> bool {
    let containers = Path::new("/var/lib/docker/containers");
    let folders = root.entries(containers).into_iter();
    folders
        .filter_map(|folder| root.read(&containers.join(folder).join("config.v2.json")).ok())
        .any(|text| String::from_utf8_lossy(&text).contains("\"Image\":\"ollama/ollama"))
}

/// Returns advice for a system on which systemd does not run.
pub fn without_systemd(root: &SystemRoot) -> String {
    other_ways(root).unwrap_or(INIT).to_owned()
}

/// Returns advice for a unit whose command vgpu-run cannot start.
pub fn hint(root: &SystemRoot, error: &CommandError) -> String {
    match error {
        CommandError::Missing(_) => {
            let other = other_ways(root).unwrap_or("Name the unit that starts Ollama: --unit NAME.");
            other.to_owned()
        }
        CommandError::Container { .. } => CONTAINER.into(),
        CommandError::Snap { .. } => SNAP.into(),
        CommandError::Already { path, .. } => {
            format!("Take vgpu-run out of {} first: this would put it there twice.", path.display())
        }
        CommandError::Masked(path) => {
            format!("systemctl unmask {}", path.file_name().unwrap_or_default().display())
        }
        CommandError::Several { .. } | CommandError::Named { .. } => {
            "Write a drop-in by hand, with vgpu-run before the command that is Ollama: systemctl edit UNIT."
                .into()
        }
        CommandError::Nothing(_) | CommandError::Unreadable { .. } => {
            "Mend the file: systemd-analyze verify says more.".into()
        }
    }
}

/// Finds the VGPU-STUB functions of this machine. The list is empty if they cannot be determined.
pub fn functions() -> Vec<PciFunction> {
    scan(&sysfs_root()).unwrap_or_default()
}

/// Returns remarks on drivers and installers that would claim the device as a GPU of their own.
pub fn rivals(functions: &[PciFunction]) -> Vec<String> {
    let mut remarks = Vec::new();
    for function in functions {
        if let Err(error) = survey::examine(function) {
            let hint = error.hint().unwrap_or_default();
            remarks.push(format!(
                "{}. {hint} The udev rule keeps drivers away from the next start on.",
                Failure::from(error).sentence()
            ));
        }
    }
    for function in functions.iter().filter(|function| survey::version(function) == 1) {
        remarks.push(format!(
            "{} speaks version 1 of the protocol: who may open it can have its host read and write any memory of this guest. Put \
             nobody into the group vgpu whom you would not make root.",
            function.address
        ));
    }
    if installer::adds_driver(functions) {
        remarks.push(
            "Ollama's own installer, when it installs or upgrades, would take the device for a GPU without a driver and install \
             NVIDIA's, which is of no use here. It does not where it finds an nvidia-smi: before, \
             ln -s /bin/true /usr/local/bin/nvidia-smi; after, rm /usr/local/bin/nvidia-smi"
                .into(),
        );
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn other_ways_of_installing_ollama() {
        for (path, text, expected) in [
            ("/snap/bin/ollama", "", SNAP),
            ("/.dockerenv", "", CONTAINER),
            ("/etc/containers/systemd/ollama.container", "", CONTAINER),
            (
                "/var/lib/docker/containers/1/config.v2.json",
                r#"{"Config":{"Image":"ollama/ollama:latest"}}"#,
                CONTAINER,
            ),
            ("/etc/init.d/ollama", "", INIT),
            ("/etc/sv/ollama/run", "", INIT),
        ] {
            let scratch = Scratch::new();
            let root = SystemRoot::open(scratch.path()).unwrap();
            assert_eq!(other_ways(&root), None);
            root.make_folders(Path::new(path)).unwrap();
            root.write(Path::new(path), text).unwrap();
            assert_eq!(other_ways(&root), Some(expected), "{path}");
        }
        let scratch = Scratch::new();
        let root = SystemRoot::open(scratch.path()).unwrap();
        let path = Path::new("/var/lib/docker/containers/1/config.v2.json");
        root.make_folders(path).unwrap();
        root.write(path, r#"{"Config":{"Image":"postgres"}}"#).unwrap();
        assert_eq!(other_ways(&root), None);
    }
}
