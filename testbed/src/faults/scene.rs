//! A system as planned, made for real: an installed Ollama, a device, a service, and `vgpu-run check` in the midst of them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::bed::{Bed, PATIENCE};
use vgpu_testbed::programs;

use super::plan::{Era, Plan, Service, When};

/// What the whole check may take, in seconds.
const CHECK_SECONDS: u32 = 25;
/// Between two looks.
const TICK: Duration = Duration::from_millis(10);
/// Name of the service.
const UNIT: &str = "ollama.service";

/// A process of the scene, with all that it started.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Closed at the end: for those that wait for that.
    _stdin: Option<std::process::ChildStdin>,
}

impl Process {
    /// Starts it in a group of its own.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child =
            command.process_group(0).spawn().with_context(|| format!("start {:?}", command.get_program()))?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin })
    }

    /// Its id, and its group's.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to all of it.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The system.
pub struct Scene {
    /// Others than the device; they end before the folders go.
    pub processes: Vec<Process>,
    /// The device, or its bus.
    bed: Option<Bed>,
    empty_bus: Option<TempDir>,
    folder: TempDir,
    era: Era,
    port: u16,
    running: Option<Process>,
    /// Lines of shell that undo what would keep folders from being removed.
    pub undo: Vec<String>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for line in std::mem::take(&mut self.undo) {
            // What cannot be undone is left to the next start of the machine.
            let _ = Command::new("sh").arg("-c").arg(line).status();
        }
    }
}

/// Another name for a file, or a copy where that cannot be.
pub fn link(from: &Path, to: &Path) -> Result<()> {
    let source = from.canonicalize().with_context(|| format!("find {}", from.display()))?;
    if fs::hard_link(&source, to).is_err() {
        fs::copy(&source, to).with_context(|| format!("copy to {}", to.display()))?;
    }
    Ok(())
}

/// Replaces a file, which may have other names, by one of its own.
pub fn own_copy(path: &Path) -> Result<()> {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).with_context(|| format!("copy {}", path.display()))?;
    fs::rename(&copy, path).with_context(|| format!("replace {}", path.display()))
}

/// Writes a script that can be executed.
pub fn script(path: &Path, text: &str) -> Result<()> {
    // Beside it first: a file that is open for writing cannot be executed.
    let new = path.with_extension("new");
    fs::write(&new, format!("#!/bin/sh\n{text}\n")).with_context(|| format!("write {}", new.display()))?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    fs::rename(&new, path).with_context(|| format!("write {}", path.display()))
}

/// The folder of the built programs.
fn built(name: &str) -> Result<PathBuf> {
    let standin = programs::standin()?;
    Ok(standin.with_file_name(name))
}

impl Scene {
    /// Makes it.
    pub fn make(plan: &mut Plan) -> Result<Self> {
        let folder = TempDir::with_prefix("vgpu-faults-").context("make a folder")?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let listener = TcpListener::bind("127.0.0.1:0").context("find a port")?;
        let port = listener.local_addr()?.port();
        drop(listener);
        let mut scene = Self {
            folder,
            bed: None,
            empty_bus: None,
            era: plan.era,
            port,
            processes: Vec::new(),
            running: None,
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
        scene.unit(plan)?;
        if let Some(service) = plan.service.clone() {
            scene.serve(&service, plan)?;
        }
        take(&mut scene, When::Running)?;
        Ok(scene)
    }

    /// A path in the scene's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ollama's program.
    pub fn ollama(&self) -> PathBuf {
        self.path("usr/bin/ollama")
    }

    /// A path in Ollama's library folder.
    pub fn library(&self, name: &str) -> PathBuf {
        self.path("usr/lib/ollama").join(name)
    }

    /// The folder that looks like sysfs.
    pub fn bus(&self) -> &Path {
        match (&self.bed, &self.empty_bus) {
            (Some(bed), _) => bed.sysfs(),
            (None, Some(bus)) => bus.path(),
            (None, None) => self.folder.path(),
        }
    }

    /// A file of the first function.
    pub fn function(&self, name: &str) -> PathBuf {
        self.bus().join("bus/pci/devices/0000:00:05.0").join(name)
    }

    /// The device.
    pub fn bed(&mut self) -> Result<&mut Bed> {
        self.bed.as_mut().context("there is no device")
    }

    /// Files of the cache that the function `wanted` takes, into a folder.
    fn fill(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
        for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            if wanted(&name.to_string_lossy()) {
                link(&entry.path(), &to.join(&name))?;
            }
        }
        Ok(())
    }

    /// The tree of a release: lib/ollama with a folder for each CUDA, NVIDIA's own libraries in it.
    fn install(&self, backends: &[Backend]) -> Result<()> {
        let libraries = self.path("usr/lib/ollama");
        fs::create_dir_all(self.path("usr/bin"))?;
        fs::create_dir_all(&libraries)?;
        fs::copy(built(self.era.program())?, self.ollama()).context("install ollama")?;
        symlink("../usr/bin/ollama", self.path("path/ollama"))?;
        let common = Backend::Cuda13.folder()?;
        Self::fill(&common, &libraries, |name| {
            name.starts_with("libggml-base") || name.starts_with("libggml-cpu")
        })?;
        for entry in fs::read_dir(&common)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("libggml.") {
                link(&entry.path(), &libraries.join("libggml.so"))?;
            }
            if name.starts_with("libllama.") && self.era == Era::C {
                link(&entry.path(), &libraries.join("libllama.so"))?;
            }
        }
        if self.era == Era::C {
            fs::copy(built("ollama-llama-server")?, libraries.join("llama-server"))?;
        }
        for backend in backends {
            let (name, major) = match backend {
                Backend::Cuda12 => ("cuda_v12", "12.8.90"),
                Backend::Cuda13 => ("cuda_v13", "13.0.88"),
            };
            let folder = libraries.join(name);
            fs::create_dir(&folder)?;
            link(&backend.folder()?.join("libggml-cuda.so"), &folder.join("libggml-cuda.so"))?;
            for entry in fs::read_dir(backend.nvidia()?)? {
                let entry = entry?;
                let soname = entry.file_name().to_string_lossy().into_owned();
                let Some((stem, _)) = soname.rsplit_once(".so.") else { continue };
                // As in a release: the whole version is the file, the SONAME a link to it.
                let full = format!("{stem}.so.{major}");
                link(&entry.path(), &folder.join(&full))?;
                symlink(&full, folder.join(&soname))?;
            }
        }
        Ok(())
    }

    /// A service manager that knows one unit.
    fn unit(&self, plan: &Plan) -> Result<()> {
        let service = plan.service.clone();
        let properties = self.path("system/properties");
        let loaded = service.is_some();
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
        let environment = format!("OLLAMA_HOST=127.0.0.1:{} PATH={}", self.port, self.search_path());
        fs::write(
            &unit,
            format!("[Service]\nExecStart={line}\nEnvironment=\"OLLAMA_HOST=127.0.0.1:{}\"\n", self.port),
        )?;
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

    fn search_path(&self) -> String {
        format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            self.path("path").display()
        )
    }

    /// Starts the service, as its manager would have.
    fn serve(&mut self, service: &Service, plan: &Plan) -> Result<()> {
        let launcher = self.launcher(plan)?;
        if service.running {
            let log = File::create(self.path("system/log"))?;
            let mut command = if service.wrapped {
                let mut command = Command::new(&launcher);
                command.arg("--").arg(self.path("path/ollama"));
                command
            } else {
                Command::new(self.path("path/ollama"))
            };
            command.arg("serve").env_clear().env("PATH", self.search_path()).env("HOME", self.path("home"));
            command.env("OLLAMA_HOST", format!("127.0.0.1:{}", self.port)).env("VGPU_SYSFS", self.bus());
            command.envs(service.environment.iter().map(|(name, value)| (name, value)));
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            self.running = Some(Process::start(&mut command)?);
            if service.environment.is_empty() {
                self.wait_for_service()?;
            }
        }
        self.write_unit(service, &launcher)?;
        if let Some(layers) = service.model {
            self.load_model(layers)?;
        }
        Ok(())
    }

    fn wait_for_service(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.request("GET", "/api/version", "").is_err() {
            if Instant::now() > end {
                let log = fs::read_to_string(self.path("system/log")).unwrap_or_default();
                bail!("the service does not answer; its log: {log}");
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// A request to the service.
    fn request(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
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

    /// Has the service load a model, with so many layers on the device.
    pub fn load_model(&self, layers: Option<i64>) -> Result<()> {
        let options = layers.map_or_else(|| json!({}), |layers| json!({ "num_gpu": layers }));
        let body = json!({ "model": "bench", "prompt": "", "options": options }).to_string();
        self.request("POST", "/api/generate", &body).context("load a model").map(drop)
    }

    /// The service's process.
    pub fn running(&self) -> Result<&Process> {
        self.running.as_ref().context("no service runs")
    }

    /// Answers everything at the service's address with `text`.
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
                // Whoever asks may go before the answer.
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
                    text.len()
                );
            }
        });
        Ok(())
    }

    /// Another guest process, which holds a session: it says `ready` when it does.
    pub fn hold_session(&mut self, state: &str) -> Result<()> {
        let mut command = Command::new(programs::launcher()?);
        command.arg("--").arg(programs::standin()?).args(["state", state]).env("VGPU_SYSFS", self.bus());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let out = process.child.stdout.take().context("no stdout")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        self.processes.push(process);
        if !line.starts_with("ready") {
            bail!("the other process did not get its session: {line:?}");
        }
        Ok(())
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
        if plan.pid_namespace {
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
        command.env_clear().env("PATH", self.search_path()).env("HOME", self.path("home")).current_dir("/");
        command.env("SCENE", self.folder.path()).env("BUS", self.bus()).env("LANG", "C.UTF-8");
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

/// Plays `systemctl`.
const SYSTEMCTL: &str = include_str!("../../faults/systemctl.sh");
