//! Builds a scene as planned, and runs `vgpu-run check` in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_testbed::bed::Bed;
use vgpu_testbed::programs;

use super::service::UNIT;
use super::{Scene, free_port};
use crate::faults::plan::{ScenePlan, When};
use crate::faults::rights::may_change_the_system;

/// Limit of the whole check in seconds, above those of its steps that a fault delays.
const CHECK_SECONDS: u32 = 60;
impl Scene {
    /// Builds the scene that the plan describes.
    pub fn build(plan: &mut ScenePlan) -> Result<Self> {
        let folder = TempDir::with_prefix("vgpu-faults-").context("make a folder")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let port = free_port()?;
        let mut scene = Self {
            folder,
            bed: None,
            others: Vec::new(),
            empty_bus: None,
            era: plan.era,
            port,
            processes: Vec::new(),
            running: None,
            connections: Vec::new(),
            undo: Vec::new(),
        };
        for name in ["path", "system", "home"] {
            fs::create_dir(scene.folder.path().join(name))?;
        }
        // The home directory must be accessible whoever the scene's user is.
        fs::set_permissions(scene.path("home"), fs::Permissions::from_mode(0o777))?;
        if plan.installed {
            scene.install(&plan.backends)?;
        }
        let mut steps = std::mem::take(&mut plan.steps);
        let mut perform = |scene: &mut Self, when: When| -> Result<()> {
            let mut rest = Vec::new();
            for (at, step) in steps.drain(..) {
                if at == when {
                    step(scene)?;
                } else {
                    rest.push((at, step));
                }
            }
            steps = rest;
            Ok(())
        };
        perform(&mut scene, When::Installed)?;
        if plan.devices.is_empty() {
            let bus = TempDir::with_prefix_in("vgpu-bed-", "/dev/shm").context("make a bus")?;
            fs::create_dir_all(bus.path().join("bus/pci/devices"))?;
            scene.empty_bus = Some(bus);
        } else {
            let options: Vec<&str> = plan.device_options.iter().map(String::as_str).collect();
            scene.bed = Some(Bed::start_with(plan.executor, &plan.devices, &options)?);
        }
        fs::set_permissions(scene.bus(), fs::Permissions::from_mode(0o755))?;
        perform(&mut scene, When::Served)?;
        scene.unit(plan.service.is_some())?;
        if let Some(service) = plan.service.clone() {
            let launcher = scene.launcher(plan)?;
            scene.serve(&service, &launcher)?;
        }
        perform(&mut scene, When::Running)?;
        Ok(scene)
    }

    fn launcher(&self, plan: &ScenePlan) -> Result<PathBuf> {
        if plan.own_launcher { Ok(self.path("system/vgpu-run")) } else { programs::launcher() }
    }

    /// Returns the command of the launcher in the planned system: its mounts, limits, user, sandbox and
    /// environment.
    pub fn command(&self, plan: &ScenePlan) -> Result<Command> {
        let launcher = self.launcher(plan)?;
        let mut lines = plan.mounts.clone();
        lines.extend(plan.limits.iter().cloned());
        lines.push("exec \"$@\"".to_owned());
        let mut command = Command::new("unshare");
        if !plan.mounts.is_empty() {
            command.arg("--mount");
        }
        // Without an Ollama in the scene the check searches other namespaces, where other scenes have theirs.
        if plan.pid_namespace || !plan.installed && may_change_the_system() {
            command.args(["--pid", "--fork", "--mount-proc"]);
        }
        command.args(["--", "sh", "-c", &lines.join("\n"), "sh"]);
        if plan.nobody {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        }
        if !plan.sandbox.is_empty() {
            command.arg(programs::standin()?).arg("sandbox").args(&plan.sandbox).arg("--");
        }
        // After this point, PATH and libraries must be valid for mounting and changing the user.
        command.arg("/usr/bin/env");
        for (name, value) in &plan.environment {
            let value = value.replace("$SCENE", &self.folder.path().display().to_string());
            let value = value.replace("$PORT", &self.port.to_string());
            command.arg(format!("{name}={value}"));
        }
        command.arg(launcher);
        command.env_clear().env("PATH", self.search_path()).env("HOME", self.path("home")).current_dir("/");
        command.env("SCENE", self.folder.path()).env("BUS", self.bus()).env("LANG", "C.UTF-8");
        // The launcher and the stand-ins must stay executable wherever the checkout lies.
        command.env("PROGRAMS", programs::standin()?.parent().context("the stand-in has no folder")?);
        if plan.names_bus {
            command.env("VGPU_SYSFS", self.bus());
        }
        command.env("OLLAMA_HOST", self.address());
        Ok(command)
    }

    /// Runs the check and returns its JSON report and its output.
    pub fn check(&self, plan: &ScenePlan) -> Result<(Value, Output)> {
        let mut command = self.command(plan)?;
        command.args(["check", "--json", "--timeout", &CHECK_SECONDS.to_string()]);
        if plan.service.is_some() && plan.names_service {
            command.args(["--service", UNIT]);
        }
        if let Some(model) = plan.model {
            command.args(["--model", model]);
        }
        if let Some(program) = plan.program {
            command.arg(self.path(program));
        }
        let output = command.stdin(Stdio::null()).output().context("run the check")?;
        let value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!(
                "understand the check ({}): {:?} {}",
                output.status,
                String::from_utf8_lossy(&output.stdout).chars().take(300).collect::<String>(),
                String::from_utf8_lossy(&output.stderr).trim()
            )
        })?;
        Ok((value, output))
    }
}
