//! The host: a GPU, a device for each VM as its systemd unit serves it, and the node process.

use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{StandIn, random_facts};
use vgpu_testbed::programs;
use vgpu_testbed::unit::Instance;

use super::options::ReloadArgs;
use crate::server::Server;

/// Memory in MiB that a VM is promised for each of its programs, which have a context, and beside them.
const PROGRAM_MIB: u64 = 768;
const OTHERS_MIB: u64 = 1024;

/// The host.
pub(super) struct TrialHost {
    // Drop order: first what uses the GPU.
    node: Option<Server>,
    pub(super) devices: Vec<Instance>,
    /// Number of complaints of each device before it was reloaded.
    before: Vec<usize>,
    _gpu: StandIn,
    _shares: TempDir,
}

impl TrialHost {
    /// Starts the GPU and the devices.
    pub(super) fn start(arguments: &ReloadArgs) -> Result<Self> {
        let sessions = u64::from(arguments.sessions) + u64::from(arguments.endless);
        let memory = OTHERS_MIB + PROGRAM_MIB * sessions + 2 * arguments.copy_mib;
        // Two thirds are for the program that allocates them again and again.
        let memory = 3 * memory;
        // With graphs, of which one makes a token.
        let facts = Facts { memory_mib: (memory + OTHERS_MIB) * arguments.vms, ..random_facts(&["7.0"]) };
        let gpu = StandIn::start(&facts, &[], false)?;
        let shares =
            TempDir::with_prefix_in("vgpu-gpus-", "/dev/shm").context("make a folder in /dev/shm")?;
        let settings =
            format!("memory = \"{memory}M\"\nshares = \"{}\"\nvm-memory = \"1G\"\n", shares.path().display());
        let program = programs::device()?;
        let serve = |number| Instance::start_on_gpu(&program, &format!("vm{number}"), &gpu, &settings);
        let devices: Vec<Instance> = (1..=arguments.vms).map(serve).collect::<Result<_>>()?;
        let node = if arguments.node {
            let mut command = Command::new(&program);
            command.args(["node", "--until-stdin-closes", "--metrics", "off"]);
            command.arg("--shares").arg(shares.path());
            Some(Server::start(&mut command)?)
        } else {
            None
        };
        let before = devices.iter().map(|device| device.complaints().len()).collect();
        Ok(Self { node, devices, before, _gpu: gpu, _shares: shares })
    }

    /// Returns what the host complains of.
    pub(super) fn errors(&self) -> Result<Vec<String>> {
        let mut errors = Vec::new();
        for (device, before) in self.devices.iter().zip(&self.before) {
            errors.extend(device.complaints().into_iter().skip(*before));
        }
        if let Some(node) = &self.node
            && !node.is_running()?
        {
            errors.push("the node process has ended".to_owned());
        }
        Ok(errors)
    }
}
