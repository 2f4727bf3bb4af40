//! Makes a scene as planned, and runs `vgpu-run check` in the midst of it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;
use tempfile::TempDir;
use vgpu_testbed::bed::Bed;
use vgpu_testbed::programs;

use super::Scene;
use super::service::UNIT;
use crate::faults::plan::{Plan, When};
use crate::faults::rights::may_change_the_system;

/// What the whole check may take, in seconds: more than the limits of those of its steps that a fault makes
/// wait.
const CHECK_SECONDS: u32 = 60;
impl Scene {
    /// Makes the scene that the plan describes.
    pub fn make(plan: &mut Plan) -> Result<Self> {
        let folder = TempDir::with_prefix("vgpu-faults-").context("make a folder")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let listener = TcpListener::bind("127.0.0.1:0").context("find a port")?;
        let port = listener.local_addr()?.port();
        drop(listener);
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
        if plan.installed {
            scene.install(&plan.backends)?;
        }
        let mut steps = std::mem::take(&mut plan.steps);
        let mut take = |scene: &mut Self, when: When| -> Result<()> {
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
        take(&mut scene, When::Installed)?;
        if plan.devices.is_empty() {
            let bus = TempDir::with_prefix_in("vgpu-bed-", "/dev/shm").context("make a bus")?;
            fs::create_dir_all(bus.path().join("bus/pci/devices"))?;
            scene.empty_bus = Some(bus);
        } else {
            let options: Vec<&str> = plan.device_options.iter().map(String::as_str).collect();
            scene.bed = Some(Bed::start_with(plan.executor, &plan.devices, &options)?);
        }
        fs::set_permissions(scene.bus(), fs::Permissions::from_mode(0o755))?;
        take(&mut scene, When::Served)?;
        scene.unit(plan.service.is_some())?;
        if let Some(service) = plan.service.clone() {
            let launcher = scene.launcher(plan)?;
            scene.serve(&service, &launcher)?;
        }
        take(&mut scene, When::Running)?;
        Ok(scene)
    }

    fn launcher(&self, plan: &Plan) -> Result<PathBuf> {
        if plan.own_launcher { Ok(self.path("system/vgpu-run")) } else { programs::launcher() }
    }

    /// Runs the check; what it printed, as JSON.
    pub fn check(&self, plan: &Plan) -> Result<(Value, Output)> {
        let launcher = self.launcher(plan)?;
        let mut lines = plan.mounts.clone();
        lines.extend(plan.limits.iter().cloned());
        lines.push("exec \"$@\"".to_owned());
        let mut command = Command::new("unshare");
        if !plan.mounts.is_empty() {
            command.arg("--mount");
        }
        // Without an Ollama of the scene the check looks for one in other namespaces, where other scenes have
        // theirs.
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
        command.arg(launcher).args(["check", "--json", "--timeout", &CHECK_SECONDS.to_string()]);
        if plan.service.is_some() {
            command.args(["--service", UNIT]);
        }
        if let Some(program) = plan.program {
            command.arg(self.path(program));
        }
        command.env_clear().env("PATH", self.search_path()).env("HOME", self.path("home")).current_dir("/");
        command.env("SCENE", self.folder.path()).env("BUS", self.bus()).env("LANG", "C.UTF-8");
        // The launcher and the stand-ins must stay executable wherever the checkout lies.
        command.env("PROGRAMS", programs::standin()?.parent().context("the stand-in has no folder")?);
        if plan.names_bus {
            command.env("VGPU_SYSFS", self.bus());
        }
        command.env("OLLAMA_HOST", format!("127.0.0.1:{}", self.port));
        for (name, value) in &plan.environment {
            command.env(name, value.replace("$SCENE", &self.folder.path().display().to_string()));
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
