//! `vgpu-device serve` as its systemd unit starts it: the command line, the directories, the environment, the
//! notification and the descriptor store are the unit's. What systemd itself does around the process (users,
//! devices and directories that it may not see) is not done: `tests/booted/systemd/device.rs` starts the unit
//! under a real systemd, without QEMU.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use crate::bed::{StandIn, end_in_order, terminate};
use crate::manager::{Manager, START};
use crate::programs;

/// Text of the systemd template unit.
const UNIT: &str = include_str!("../../host/serve/share/vgpu-device@.service");
/// Path of the program in the unit.
const PROGRAM: &str = "/usr/local/bin/vgpu-device";
const SETTINGS: &str = "/etc/vgpu-device/";
/// Value of `PATH` that systemd gives to services.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin";
/// Number of times that a reload is tried while other programs take the processors from the new program,
/// which judges within a limit.
const TRIES: usize = 6;

/// A running instance of the unit, which is stopped when the value is dropped.
#[derive(Debug)]
pub struct Instance {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Starts the service.
    command: Command,
    /// Hears the notifications, and keeps descriptors.
    manager: Manager,
    has_store: bool,
    folder: TempDir,
    name: String,
    /// Output of the service before the line `ready`.
    printed: String,
    complaints: Complaints,
}

/// Errors of the service's log.
type Complaints = Arc<Mutex<Vec<String>>>;

/// Copies the service's log to this process's own, and collects its errors.
fn listen(log: ChildStderr, complaints: &Complaints) {
    let complaints = Arc::clone(complaints);
    // It ends with the service and its workers.
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            eprintln!("{line}");
            // The level, with or without a colour behind it, and no name such as CUDA_ERROR_NOT_SUPPORTED.
            if [" ERROR ", "ERROR\u{1b}"].iter().any(|level| line.contains(level)) {
                complaints.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        }
    });
}

/// Returns the value of a setting in the unit, with `%i` replaced by the instance.
fn of_unit(setting: &str, instance: &str) -> Result<String> {
    let value = UNIT.lines().find_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
    Ok(value.with_context(|| format!("the unit has no {setting}"))?.replace("%i", instance))
}

/// Creates a directory requested by a setting of the unit, below `base` and with the requested mode.
fn directory(base: &Path, setting: &str, instance: &str) -> Result<PathBuf> {
    let path = base.join(of_unit(setting, instance)?);
    let mode = u32::from_str_radix(&of_unit(&format!("{setting}Mode"), instance)?, 8).context("a mode")?;
    std::fs::create_dir_all(path.parent().context("no parent")?)?;
    DirBuilder::new().mode(mode).create(&path).with_context(|| format!("make {}", path.display()))?;
    Ok(path)
}

/// Returns the variables that the unit sets.
fn variables() -> Result<Vec<(&'static str, &'static str)>> {
    let lines = UNIT.lines().filter_map(|line| line.strip_prefix("Environment="));
    lines.map(|line| line.split_once('=').with_context(|| format!("the unit sets {line}"))).collect()
}

/// Starts a service with what its manager has kept. Its output is read.
fn spawn(
    command: &mut Command,
    manager: &Manager,
    complaints: &Complaints,
) -> Result<(Child, BufReader<ChildStdout>)> {
    let mut child = command.stdin(manager.pass()?).spawn().context("start the service")?;
    // The other end of its standard input is closed with the command's.
    command.stdin(Stdio::null());
    let stdout = child.stdout.take().context("no stdout")?;
    listen(child.stderr.take().context("no stderr")?, complaints);
    Ok((child, BufReader::new(stdout)))
}

impl Instance {
    /// Starts an instance, and waits until it notifies its manager. `settings` is added to the configuration
    /// of a bus and a vfio-user socket in the instance's directory; `environment` imitates a drop-in.
    ///
    /// # Errors
    /// Fails if the instance is not ready in time; the error contains its output.
    pub fn start(name: &str, settings: &str, environment: &[(&str, &Path)]) -> Result<Self> {
        Self::start_program(&programs::device()?, name, settings, environment)
    }

    /// Starts an instance of another program as [`Instance::start`] does.
    ///
    /// # Errors
    /// Fails if the instance is not ready in time; the error contains its output.
    pub fn start_program(
        program: &Path,
        name: &str,
        settings: &str,
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let folder = TempDir::with_prefix("vgpu-unit-").context("make a folder")?;
        let runtime = directory(&folder.path().join("run"), "RuntimeDirectory", name)?;
        let cache = directory(&folder.path().join("var/cache"), "CacheDirectory", name)?;
        let config = folder.path().join("etc");
        std::fs::create_dir(&config).context("make a folder")?;
        let bus = format!("vfio-user:{}", runtime.join("device").display());
        let text = format!("bus = {bus:?}\n{settings}");
        std::fs::write(config.join(format!("{name}.toml")), text).context("write the configuration file")?;
        let socket = folder.path().join("notify");
        let most = of_unit("FileDescriptorStoreMax", name)?.parse().context("a number of descriptors")?;
        let manager = Manager::start(&socket, most)?;

        let line = of_unit("ExecStart", name)?.replace(SETTINGS, &format!("{}/", config.display()));
        let mut words = line.split(' ');
        if words.next() != Some(PROGRAM) {
            bail!("the unit starts another program: {line}");
        }
        // The unit's UMask=, then the descriptors, then the program, all in the same process.
        let script = format!("umask {} && exec \"$0\" \"$@\"", of_unit("UMask", name)?);
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).args([programs::testbed()?.as_os_str(), OsStr::new(START)]);
        command.arg(program).args(words);
        command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8").env("NOTIFY_SOCKET", &socket);
        command.envs(variables()?);
        command.env("RUNTIME_DIRECTORY", &runtime).env("CACHE_DIRECTORY", &cache);
        command.envs(environment.iter().copied()).current_dir("/");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let complaints = Complaints::default();
        let (child, stdout) = spawn(&mut command, &manager, &complaints)?;
        let (name, printed) = (name.to_owned(), String::new());
        let mut instance =
            Self { child, stdout, command, manager, has_store: true, folder, name, printed, complaints };
        instance.until_ready(0)?;
        Ok(instance)
    }

    /// Starts an instance with the executor for real GPUs, as [`Instance::start_program`] does, with a
    /// stand-in as its GPU.
    ///
    /// # Errors
    /// Fails if the instance is not ready in time; the error contains its output.
    pub fn start_on_gpu(program: &Path, name: &str, gpu: &StandIn, settings: &str) -> Result<Self> {
        let mut text = format!("worker-connects = true\n{settings}");
        for (name, value) in &gpu.settings {
            let quote = if *name == "address-range" { "" } else { "\"" };
            writeln!(text, "{name} = {quote}{value}{quote}")?;
        }
        Self::start_program(program, name, &text, &[("VGPU_SYSFS", gpu.bed.sysfs())])
    }

    /// Asks the service to be reloaded, as an operator does.
    ///
    /// # Errors
    /// Fails if the command cannot be started.
    pub fn reload(&self) -> Result<Output> {
        self.reload_command()?.output().context("run vgpu-device reload")
    }

    /// Returns the command by which an operator reloads the service.
    ///
    /// # Errors
    /// Fails if there is no such program.
    pub fn reload_command(&self) -> Result<Command> {
        let mut command = Command::new(programs::device()?);
        command.args(["reload", &self.name, "--control"]).arg(self.control()?);
        Ok(command)
    }

    /// Reloads the service, and returns the time for which it answered no access of its VM, in milliseconds.
    ///
    /// # Errors
    /// Fails if the service is not reloaded.
    pub fn reload_well(&self) -> Result<f64> {
        let mut output = self.reload()?;
        for _ in 1..TRIES {
            if !String::from_utf8_lossy(&output.stderr).contains("within") {
                break;
            }
            output = self.reload()?;
        }
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("not reloaded: {said}{}", String::from_utf8_lossy(&output.stderr));
        }
        let pause = said.trim().rsplit_once("paused for ").and_then(|(_, pause)| pause.strip_suffix(" ms"));
        pause.with_context(|| format!("the reload said {said:?}"))?.parse().context("a pause")
    }

    /// Waits until the service has ended, which something has told it to do. It must end successfully.
    ///
    /// # Errors
    /// Fails if the service does not end, or ends in another way.
    pub fn wait_for_end(&mut self) -> Result<()> {
        end_in_order(&mut self.child, Instant::now()).map(drop)
    }

    /// Returns the errors of the service's log so far.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the service manager keep no descriptors any more.
    pub fn lose_store(&mut self) {
        self.command.env("FDSTORE", "0");
        self.has_store = false;
    }

    /// Kills the service, and starts it again as systemd does.
    ///
    /// # Errors
    /// Fails if the service is not ready in time.
    pub fn crash(&mut self) -> Result<()> {
        self.kill()?;
        self.restart()
    }

    /// Kills the service, and waits until its manager has heard all that it has said.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill the service")?;
        self.child.wait().context("wait for the service")?;
        self.manager.catch_up()?;
        if !self.has_store {
            self.manager.forget();
        }
        Ok(())
    }

    /// Starts the service after [`Instance::kill`].
    ///
    /// # Errors
    /// Fails if the service is not ready in time.
    pub fn restart(&mut self) -> Result<()> {
        let before = self.manager.readies();
        (self.child, self.stdout) = spawn(&mut self.command, &self.manager, &self.complaints)?;
        self.printed.clear();
        self.until_ready(before)
    }

    /// Replaces the settings, beside the bus, for the next process of the service.
    ///
    /// # Errors
    /// Fails if they cannot be written.
    pub fn change_settings(&self, settings: &str) -> Result<()> {
        let bus = format!("vfio-user:{}", self.socket()?.display());
        let text = format!("bus = {bus:?}\n{settings}");
        std::fs::write(self.config(), text).context("write the configuration file")
    }

    /// Returns the settings beside the bus.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub fn settings(&self) -> Result<String> {
        let text = std::fs::read_to_string(self.config()).context("read the configuration file")?;
        Ok(text.lines().skip(1).fold(String::new(), |all, line| all + line + "\n"))
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("etc").join(format!("{}.toml", self.name))
    }

    /// Returns the process ID of the service.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the manager of the service.
    #[must_use]
    pub const fn manager(&self) -> &Manager {
        &self.manager
    }

    /// Returns the path of the vfio-user socket.
    ///
    /// # Errors
    /// Fails if the unit names no directory for it.
    pub fn socket(&self) -> Result<PathBuf> {
        Ok(self.control()?.with_file_name("device"))
    }

    /// Reads what the service prints until it is ready, for the time after `before` others have been.
    fn until_ready(&mut self, before: u64) -> Result<()> {
        let child = &mut self.child;
        self.manager.wait_ready(before, || match child.try_wait()? {
            Some(status) => bail!("the service ended before it was ready: {status}"),
            None => Ok(()),
        })?;
        let mut line = String::new();
        while self.stdout.read_line(&mut line)? > 0 && line != "ready\n" {
            self.printed.push_str(&line);
            line.clear();
        }
        Ok(())
    }

    /// Returns the QEMU arguments that the instance printed, split into words by a shell as an operator's
    /// would.
    ///
    /// # Errors
    /// Fails if the instance printed anything else.
    pub fn qemu_arguments(&self) -> Result<Vec<String>> {
        let block = self.printed.split("\n\n").nth(1).context("it printed no arguments")?;
        let output = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("printf '%s\\n' {block}"))
            .output()
            .context("run a shell")?;
        let words: Vec<String> = String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect();
        if !words.iter().any(|word| word.contains("vfio-user-pci")) {
            bail!("it printed {:?}", self.printed);
        }
        Ok(words)
    }

    /// Returns the output of `vgpu-device status` for the instance.
    ///
    /// # Errors
    /// Fails if the instance cannot be queried.
    pub fn status(&self) -> Result<Value> {
        let mut command = Command::new(programs::device()?);
        command.args(["status", "--json", "--control"]).arg(self.control()?);
        let output = command.output().context("run vgpu-device status")?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("ask the service: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Returns the control socket of the instance.
    ///
    /// # Errors
    /// Fails if the unit names no directory for it.
    pub fn control(&self) -> Result<PathBuf> {
        let folder = self.folder.path().join("run").join(of_unit("RuntimeDirectory", &self.name)?);
        Ok(folder.join("control"))
    }

    /// Stops the instance with SIGTERM, as systemd does, and returns how long that took.
    ///
    /// # Errors
    /// Fails if the instance does not end successfully.
    pub fn stop(&mut self) -> Result<Duration> {
        terminate(&mut self.child)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
