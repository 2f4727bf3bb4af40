//! Ollama as a service: a real process, with a service manager and a journal that scripts imitate.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use vgpu_artifacts::executable;
use vgpu_testbed::bed::PATIENCE;
use vgpu_testbed::programs;

use super::install::script;
use super::process::Process;
use super::{Scene, free_port};
use crate::faults::settings::{MODEL, Model, Service};

/// Name of the service's unit.
pub const UNIT: &str = "ollama.service";

/// Time between two attempts to reach the service.
const TICK: Duration = Duration::from_millis(10);
/// Script that imitates `systemctl`.
const SYSTEMCTL: &str = include_str!("../../../faults/systemctl.sh");
/// Script that imitates `systemd-run`.
const SYSTEMD_RUN: &str = include_str!("../../../faults/systemd-run.sh");

impl Scene {
    /// Installs a service manager that knows one unit, which exists if it is `loaded`.
    pub(super) fn unit(&self, loaded: bool) -> Result<()> {
        let properties = self.path("system/properties");
        fs::write(&properties, "")?;
        script(
            &self.path("path/systemctl"),
            &format!(
                "P={properties}\nL={loaded}\nF={unit}\n{}",
                SYSTEMCTL,
                properties = properties.display(),
                unit = self.path("system/ollama.service").display()
            ),
        )?;
        let standin = programs::standin()?;
        let folder = standin.parent().context("the stand-in has no folder")?;
        let played = format!(
            "#!/bin/bash\nSTANDIN={}\nPROGRAMS={}\n{SYSTEMD_RUN}",
            standin.display(),
            folder.display()
        );
        executable::write(&self.path("path/systemd-run"), played.as_bytes())?;
        script(
            &self.path("path/journalctl"),
            &format!("cat {} 2>/dev/null", self.path("system/log").display()),
        )
    }

    fn write_unit(&self, service: &Service, launcher: &Path) -> Result<()> {
        let ollama = self.path("path/ollama");
        let line = if service.unit_wrapped {
            format!("{} -- {} serve", launcher.display(), ollama.display())
        } else {
            format!("{} serve", ollama.display())
        };
        let program = line.split(' ').next().unwrap_or_default();
        let unit = self.path("system/ollama.service");
        let home = self.path("home");
        let own = format!("OLLAMA_HOST=127.0.0.1:{} HOME={}", self.port, home.display());
        let environment = format!("{own} PATH={}", self.search_path());
        fs::write(&unit, format!("[Service]\nExecStart={line}\nEnvironment={own}\n"))?;
        let pid = self.running.as_ref().map_or(0, Process::pid);
        let (active, sub) = if pid == 0 { ("inactive", "dead") } else { ("active", "running") };
        let mut all: Vec<(&str, String)> = vec![
            ("Id", UNIT.to_owned()),
            ("LoadState", "loaded".to_owned()),
            ("ActiveState", active.to_owned()),
            ("SubState", sub.to_owned()),
            ("MainPID", pid.to_string()),
            ("ExecMainPID", pid.to_string()),
            ("User", String::new()),
            ("Group", String::new()),
            ("SupplementaryGroups", String::new()),
            (
                "ExecStart",
                format!(
                    "{{ path={program} ; argv[]={line} ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid={pid} ; code=(null) ; status=0/0 }}"
                ),
            ),
            ("Environment", environment),
            ("EnvironmentFiles", String::new()),
            ("FragmentPath", unit.display().to_string()),
            ("DropInPaths", String::new()),
            ("NeedDaemonReload", "no".to_owned()),
            ("ProtectKernelTunables", "no".to_owned()),
            ("ProtectSystem", "no".to_owned()),
            ("PrivateDevices", "no".to_owned()),
            ("PrivateTmp", "no".to_owned()),
            ("MemoryDenyWriteExecute", "no".to_owned()),
            ("NoNewPrivileges", "no".to_owned()),
            ("NoExecPaths", String::new()),
            ("ExecPaths", String::new()),
            ("ReadOnlyPaths", String::new()),
            ("ReadWritePaths", String::new()),
            ("InaccessiblePaths", String::new()),
            ("SystemCallFilter", String::new()),
            ("RootDirectory", String::new()),
            ("RootImage", String::new()),
            ("ProtectProc", "default".to_owned()),
            ("ProcSubset", "all".to_owned()),
            ("LimitNOFILE", "524288".to_owned()),
            ("LimitAS", "infinity".to_owned()),
            ("ControlGroup", "/system.slice/ollama.service".to_owned()),
            ("InvocationID", String::new()),
            ("ExecMainStartTimestamp", String::new()),
            ("ActiveEnterTimestamp", String::new()),
        ];
        for (name, value) in &service.properties {
            match all.iter_mut().find(|property| property.0 == *name) {
                Some(property) => property.1.clone_from(value),
                None => all.push((name, value.clone())),
            }
        }
        let lines: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        fs::write(self.path("system/properties"), lines.concat())?;
        Ok(())
    }

    pub(super) fn search_path(&self) -> String {
        format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            self.path("path").display()
        )
    }

    /// Starts the service as its manager would.
    pub(super) fn serve(&mut self, service: &Service, launcher: &Path) -> Result<()> {
        if service.running {
            let log = File::create(self.path("system/log"))?;
            let mut command = if service.wrapped {
                let mut command = Command::new(launcher);
                command.arg("--").arg(self.path("path/ollama"));
                command
            } else {
                Command::new(self.path("path/ollama"))
            };
            command.arg("serve").env_clear().env("PATH", self.search_path()).env("HOME", self.path("home"));
            command.env("OLLAMA_HOST", self.address()).env("VGPU_SYSFS", self.bus());
            let bus = self.bus().display().to_string();
            command.envs(service.environment.iter().map(|(name, value)| (name, value.replace("$BUS", &bus))));
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            self.running = Some(Process::start(&mut command)?);
            if service.environment.iter().all(|(name, _)| *name != "STANDIN_LISTEN") {
                self.wait_for_service()?;
            }
        }
        self.write_unit(service, launcher)?;
        self.load_model(service.model)
    }

    /// Returns the service's address in the format of OLLAMA_HOST.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts another Ollama without the launcher, as a user would in a shell.
    pub fn serve_beside(&mut self, address: &str) -> Result<()> {
        let mut command = Command::new(self.path("path/ollama"));
        command.arg("serve").env_clear().env("PATH", self.search_path()).env("HOME", self.path("home"));
        command.env("OLLAMA_HOST", address).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(self.path("system/log-beside"))?);
        self.processes.push(Process::start(&mut command)?);
        Ok(())
    }

    /// Waits until a server answers at the service's address.
    pub fn wait_for_service(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.request("GET", "/api/version", "", PATIENCE).is_err() {
            if Instant::now() > end {
                let log = fs::read_to_string(self.path("system/log")).unwrap_or_default();
                bail!("the service does not answer; its log: {log}");
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Sends a request to the server at the scene's address and returns the answer. Each read waits for at
    /// most `limit`.
    pub fn request(&self, method: &str, path: &str, body: &str, limit: Duration) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(limit))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        if !answer.starts_with("HTTP/1.1 200") && !answer.starts_with("HTTP/1.0 200") {
            bail!("{path}: {answer}");
        }
        Ok(answer)
    }

    /// Has the service load the model.
    pub fn load_model(&self, model: Model) -> Result<()> {
        let options = match model {
            Model::None => return Ok(()),
            Model::Usual => json!({}),
            Model::OffDevice => json!({ "num_gpu": 0 }),
        };
        let body = json!({ "model": MODEL, "prompt": "", "options": options }).to_string();
        self.request("POST", "/api/generate", &body, PATIENCE).context("load a model").map(drop)
    }

    /// Starts another server at another address. If `wrapped`, it runs under the launcher and loads a model.
    pub fn serve_besides(&mut self, wrapped: bool) -> Result<()> {
        let port = free_port()?;
        let (own, launcher) = (std::mem::replace(&mut self.port, port), programs::launcher()?);
        let model = if wrapped { Model::Usual } else { Model::None };
        let service = Service { wrapped, model, ..Service::default() };
        let served = self.serve(&service, &launcher);
        self.port = own;
        served
    }

    /// Returns the service's process, or an error if none runs.
    pub fn running(&self) -> Result<&Process> {
        self.running.as_ref().context("no service runs")
    }

    /// Answers every request at the service's address with `text`.
    pub fn answer_with(&self, text: &'static str) -> Result<()> {
        let listener =
            TcpListener::bind(("127.0.0.1", self.port)).context("listen at the service's address")?;
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(bytes @ 1..) => request.extend_from_slice(&piece[..bytes]),
                        _ => break,
                    }
                }
                // The client may close the connection before the answer.
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                    text.len()
                );
            }
        });
        Ok(())
    }
}
