//! A bus in a temporary directory whose sessions have workers.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;
use vgpu_device::{
    DeviceConfig, DeviceStatus, Executor, GpuConfig, Limits, SessionStatus, SimBus, TestHooks,
};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;
use vgpu_host_testing::bench::{CHANNELS, WINDOW, address, folder, gpu};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_worker::{WorkerConfig, WorkerExecutor};

use crate::probe::Probe;

/// First argument of the program when it runs as a worker or as a device.
pub const WORKER: &str = "worker";
pub const DEVICE: &str = "device";
/// First argument of the program when it runs tests in a system that has no descriptors of processes.
pub const WITHOUT_PIDFD: &str = "without-pidfd";

pub const RAM: u64 = 8 << 20;

/// Makes the executor of a worker.
pub fn executor(what: &Value) -> Result<Arc<dyn Executor>, String> {
    let gpu: GpuConfig = serde_json::from_value(what["gpu"].clone()).map_err(|error| error.to_string())?;
    let error = |error: vgpu_device::GpuError| error.to_string();
    Ok(match what["kind"].as_str() {
        Some("soft") => Arc::new(Soft::new(&gpu).map_err(error)?),
        Some("null") => Arc::new(Null::new(&gpu).map_err(error)?),
        Some("probe") => Arc::new(Probe::new(Null::new(&gpu).map_err(error)?)),
        // The constructor never returns, so no session starts.
        Some("stuck") => loop {
            std::thread::park();
        },
        other => return Err(format!("there is no executor {other:?}")),
    })
}

/// Returns the configuration of an executor whose workers run this program.
pub fn worker_config(kind: &str) -> WorkerConfig {
    worker_config_of(kind, &gpu())
}

/// Returns such a configuration with this GPU.
pub fn worker_config_of(kind: &str, gpu: &GpuConfig) -> WorkerConfig {
    let executor: Box<dyn Executor> = match kind {
        "soft" => Box::new(Soft::new(gpu).expect("a soft executor")),
        _ => Box::new(Null::new(gpu).expect("a null executor")),
    };
    WorkerConfig {
        name: "test",
        facts: executor.facts(),
        memory_unit: executor.memory_unit(),
        context_bytes: 0,
        lock: None,
        watch: None,
        addresses: gpu.addresses.clone(),
        program: "/proc/self/exe".into(),
        arguments: vec![WORKER.into()],
        executor: json!({ "kind": kind, "gpu": gpu }),
        user: None,
        connects: false,
        explains: false,
        compiled: None,
    }
}

pub struct WorkerBench {
    pub bus: SimBus,
    dir: TempDir,
}

impl WorkerBench {
    pub fn new(kind: &str) -> Self {
        Self::with(worker_config(kind), Limits::default())
    }

    pub fn with(config: WorkerConfig, limits: Limits) -> Self {
        let dir = folder();
        let bus = bus(dir.path(), config, limits);
        Self { bus, dir }
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub fn guest(&self, channel: u32) -> Guest {
        Guest::attach(self.folder(), address(), channel)
    }

    pub fn status(&self) -> DeviceStatus {
        self.bus.status().devices.remove(0)
    }

    pub fn session(&self, channel: u32) -> SessionStatus {
        let sessions = self.status().sessions;
        sessions.into_iter().find(|session| session.channel == channel).expect("a session")
    }

    /// Returns the process id of a channel's worker.
    pub fn worker(&self, channel: u32) -> u32 {
        self.session(channel).worker.expect("a worker")
    }

    /// Returns the number of workers that were started, and of those that run.
    pub fn workers(&self) -> (u64, u64) {
        let status = self.status();
        (status.workers_started.expect("counted"), status.workers_running.expect("counted"))
    }

    pub fn until_running(&self, count: u64) {
        until("workers end", || self.workers().1 == count);
    }
}

fn bus(folder: &Path, config: WorkerConfig, limits: Limits) -> SimBus {
    let executor = WorkerExecutor::new(config).expect("an executor of workers");
    let device = DeviceConfig {
        window_bytes: WINDOW,
        channels: CHANNELS,
        limits,
        ..DeviceConfig::new(address(), Arc::new(executor))
    };
    SimBus::serve_hooked(folder, Some(RAM), vec![device], &TestHooks::default()).expect("a bus")
}

/// Serves a device whose worker processes hang on request, until the process is killed.
pub fn serve(folder: &str) -> ExitCode {
    let _bus = bus(Path::new(folder), worker_config("probe"), Limits::default());
    println!("ready");
    loop {
        std::thread::park();
    }
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct LogBuffer;

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Records the log of the devices of this process.
pub fn keep_log() {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(|| LogBuffer)
        .with_max_level(tracing::Level::WARN)
        .init();
}

/// Returns the log lines that contain each of the words.
pub fn log_lines(words: &[&str]) -> Vec<String> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = String::from_utf8_lossy(&log);
    text.lines().filter(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned).collect()
}
