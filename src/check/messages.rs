//! Reports of the worker, `vgpu-run __worker`. Each type is the report of one step that succeeded; the worker
//! writes it and the links read it. [`StepFailure`] is the report of any step that failed.
//! [`vgpu_probe_steps`] defines how steps are encoded as lines, and the reports of `vgpu-probe`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vgpu_probe_steps::messages;

use crate::diagnosis::{Finding, Fix, LinkId};
use crate::inject::DeliveryMode;

/// Failure of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct StepFailure {
    /// Broken link, if the failure concerns a link of the chain.
    pub link: Option<LinkId>,
    /// Id of the cause in the catalogue.
    pub cause: String,
    /// Sentence that describes the problem.
    pub found: String,
    /// Advice on what the operator can do about the failure.
    pub fix: Option<Fix>,
    /// Error message of a failure that concerns no link.
    pub error: String,
}

impl From<Finding> for StepFailure {
    fn from(finding: Finding) -> Self {
        let cause = finding.cause.map(|cause| cause.id().to_owned()).unwrap_or_default();
        let Finding { link, found, fix, .. } = finding;
        Self { link: Some(link), cause, found, fix, error: String::new() }
    }
}

impl From<String> for StepFailure {
    /// Creates a failure that concerns no link.
    fn from(error: String) -> Self {
        Self { error, ..Self::default() }
    }
}

/// What is wrong with a value that the server would start with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueTrouble {
    /// The host name in OLLAMA_HOST does not resolve.
    AddressUnknown,
    /// The host in OLLAMA_HOST is no address of this machine, or the system refuses to bind it.
    AddressUnusable,
    /// The user may not bind the port, because it is privileged.
    AddressPrivileged,
    /// Something else listens at the address.
    AddressTaken,
    /// HOME is not set.
    HomeUnset,
    /// The server's key can be neither found nor created.
    KeyRefused,
    /// The file of the server's settings is one that blocks whoever opens it.
    SettingsBlock,
    /// The models can be neither read nor created, or not pruned.
    ModelsRefused,
    /// The models can be read, and none can be added.
    ModelsReadOnly,
    /// Temporary files cannot be created.
    TemporaryRefused,
    /// The file system has no room for what the server creates at its start.
    NoRoom,
}

/// A value with which the server would end or do less.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RefusedValue {
    /// What is wrong.
    pub trouble: ValueTrouble,
    /// Name of the variable that sets the value, whether or not it is set.
    pub variable: String,
    /// The address or path that was tried.
    pub value: String,
    /// Path that prevents the use, if the value is a path.
    pub at: PathBuf,
    /// Error number, if a call failed.
    pub errno: Option<i32>,
    /// Whether the server gets the value all the same, because it can create nothing with it and says best
    /// what is wrong.
    pub left: bool,
}

/// A system call that a filter refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RefusedCall {
    /// Name of the call.
    pub name: String,
    pub answer: CallAnswer,
    /// Whether a server may start without the call, and load no model.
    pub load: bool,
}

/// What is known of the calls that a filter refuses to a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RefusedCalls {
    pub calls: Vec<RefusedCall>,
    /// Whether all calls were tried. Further ones may be refused where they were not.
    pub complete: bool,
}

/// What a filter does with a call that it refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallAnswer {
    /// It ends the process.
    #[default]
    Kills,
    /// The call does not return, because nobody answers what the filter asks.
    Hangs,
    /// It answers with this error number.
    Error(i32),
}

messages! {
    /// The worker became the requested user. Only a failure of this step is reported.
    "become" Become {}

    /// A file was opened as the shims open it.
    "access" Access {
        /// Path of the file.
        path: String,
        /// Error number if the file could not be opened.
        errno: Option<i32>,
    }

    /// Permissions of the user for a file or directory.
    "rights" Rights {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error number if the file cannot be opened or the directory not listed.
        read: Option<i32>,
        /// Error number if the file may not be executed or the directory not searched.
        execute: Option<i32>,
        /// Error number if the file may not be written, or nothing created in the directory.
        write: Option<i32>,
        /// Path that prevents reading or execution: a parent directory or the file itself. Empty if nothing
        /// does.
        at: PathBuf,
        /// Whether the file system is mounted noexec.
        no_exec: bool,
    }

    /// The device was opened, and its registers read.
    "open" Open {
        /// Protocol version in the registers.
        protocol: u32,
        /// Capability bits in the registers.
        capabilities: u32,
        /// Version of the wire format.
        wire: u32,
        /// Digest of the wire format's tables, in hexadecimal.
        digest: String,
        /// Generation of the device, which changes when the host's end restarts.
        generation: u32,
        /// Size of the window in MiB.
        window_mib: u32,
        /// Number of channels of the device.
        channels: u32,
        /// Number of channels that are in use.
        attached: u32,
        /// Number of the virtual machine on the host.
        vm: u32,
        /// Whether waiting processes are woken by a futex.
        futex: bool,
        /// Caching mode of the window's mapping.
        kind: String,
    }

    /// The device answered a register access.
    "answer" Answer {
        /// Time of the register access in microseconds.
        us: f64,
    }

    /// Guest and host are of the same build.
    "speech" Speech {}

    /// Facts that the device announces about its GPU.
    "facts" Facts {
        /// Name of the GPU.
        name: String,
        /// Version of the host's driver.
        driver: String,
        /// UUID of the GPU, as CUDA prints it.
        uuid: String,
        /// Device memory in bytes.
        total: u64,
        /// Driver version, as `cuDriverGetVersion` returns it.
        cuda: u32,
        /// Major number of the compute capability.
        cc_major: u32,
        /// Minor number of the compute capability.
        cc_minor: u32,
        /// Bits of `vgpu_wire::facts::exec`, which describe the host's abilities.
        abilities: u32,
        /// Maximum number of threads in a block.
        threads: i32,
        /// Number of threads in a warp.
        warp: i32,
        /// Number of multiprocessors.
        processors: i32,
        /// First address of the device's memory; 0 if the host announces no address range.
        address_base: u64,
        /// Size of the address range in bytes.
        address_bytes: u64,
    }

    /// The host accepts sessions.
    "ready" Ready {}

    /// A session was attached.
    "attach" Attach {
        /// Time of the attach in microseconds.
        us: f64,
        /// Number of the session.
        number: u32,
        /// Number of the session's channel.
        channel: u32,
    }

    /// The host answered echoes.
    "echo" Echoes {
        /// Number of echoes that were measured.
        count: usize,
        /// Median of the round trips, in microseconds.
        median_us: f64,
        /// The 99th percentile of the round trips, in microseconds.
        p99_us: f64,
    }

    /// The host's answer about device memory.
    "memory" Memory {
        /// Free device memory in bytes.
        free: u64,
        /// Total device memory in bytes.
        total: u64,
    }

    /// Measured throughput of the window.
    "window" Window {
        /// Whether there was window memory that could be measured.
        measured: bool,
        /// Protocol version, if it is 1. Such a device has no window of its own.
        version: Option<u32>,
        /// Bytes of this guest's large pages that a version 1 device was given.
        pages: Option<u64>,
        /// Bytes of this guest's large pages through which the host returns its answers.
        page_bytes: u64,
        /// Reason why the answers take this path.
        why: String,
        /// Speed of 8-byte loads from the window, in MB/s.
        polled_mb_s: Option<f64>,
        /// Speed of 8-byte loads from large pages, in MB/s.
        pages_mb_s: Option<f64>,
        /// Whether reads from the window are fast enough to hand window memory to the program.
        reads_well: Option<bool>,
        /// Number of bytes of the measurement.
        bytes: Option<u64>,
        /// Throughput of writes to the window in MB/s.
        write_mb_s: f64,
        /// Throughput of reads from the window in MB/s.
        read_mb_s: f64,
    }

    /// The session was closed.
    "close" Close {}

    /// Processes of this guest that hold channels of the device, and channels that have sessions.
    "sessions" Sessions {
        /// Channel number and process id, for each channel that a process has locked.
        locked: Vec<(u32, u32)>,
        /// Numbers of the channels that have a session on the device.
        attached: Vec<u32>,
    }

    /// A program was started.
    "exec" Exec {
        /// Process id of the program.
        pid: i32,
        /// Path of the program's file.
        program: String,
        /// Value of LD_PRELOAD in the program's environment.
        preload: String,
        /// Libraries that the loader loads before the first of vgpu-run's.
        before: Vec<String>,
        /// Number of vgpu-run's libraries that LD_PRELOAD names.
        named: u64,
        /// Number of the named libraries that can be opened.
        reached: u64,
        /// Limit on the program's address space in bytes, if there is one.
        address_space: Option<u64>,
    }

    /// A program and its descendants were followed to their end.
    "follow" Follow {
        /// Exit code of the program, if it exited.
        code: Option<i32>,
        /// Number of the signal that ended it, if one did.
        signal: Option<i32>,
    }

    /// A server was started and ended, with all processes that it had started. The step fails if the server
    /// did not report its compute devices.
    "serve" Serve {
        /// Log lines about the compute devices, one for each device.
        lines: Vec<String>,
        /// Exit code if the server exited by itself.
        code: Option<i32>,
        /// Number of the signal that ended the server, if one did.
        signal: Option<i32>,
        /// Whether the server was ended because it had been silent for too long.
        silent: bool,
        /// Whether the worker was asked to stop before the server was ready.
        stopped: bool,
        /// Milliseconds until the result was known.
        ms: u64,
        /// Ids of the server's processes that could not be ended.
        left: Vec<u32>,
        /// Values of the environment with which the server would end or do less.
        refused: Vec<RefusedValue>,
        /// Addresses at which the server's processes listened, if that was examined.
        listened: Vec<std::net::SocketAddr>,
        /// Address that the server was given in place of its own.
        address: Option<std::net::SocketAddr>,
        /// Where the server's output went, if it came from elsewhere or did not come.
        output: Option<PathBuf>,
        /// Address at which the API of a server answered that had said nothing.
        answered: Option<std::net::SocketAddr>,
        /// Whether the server had reported its compute devices and then ended in place of an answer.
        unanswered: bool,
        /// Whether a process of the server was seen with the CUDA backend and vgpu-run's libraries.
        with_shims: bool,
        /// Whether a process of the server was seen with the CUDA backend and without them.
        without_shims: bool,
        /// Whether a server that says nothing has mapped vgpu-run's libraries itself.
        inherits: bool,
        /// Whether a process of the server was seen with a session on a device.
        session: bool,
        /// Calls that a filter refuses where the server was started.
        calls: RefusedCalls,
        /// Process that holds a lock for which the server waits.
        waits_for: Option<u32>,
    }

    /// The libraries and the probe are delivered and available.
    "hold" Hold {
        /// Delivery mode of the libraries.
        way: Option<DeliveryMode>,
        /// SONAME and path of each library.
        objects: Vec<(String, PathBuf)>,
        /// Path of the private directory with the files or links, if there is one.
        folder: Option<PathBuf>,
        /// Path of the probe.
        probe: PathBuf,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vgpu_probe_steps::{Line, Message};

    use super::*;

    #[test]
    fn lines_are_as_they_have_been() {
        let line = Line::end(Answer::STEP, true, Answer { us: 1.5 });
        assert_eq!(serde_json::to_value(&line).unwrap(), json!({"step": "answer", "ok": true, "us": 1.5}));
        let line = Line::begin(Close::STEP);
        assert_eq!(serde_json::to_value(&line).unwrap(), json!({"step": "close", "begin": true}));
        let failure = StepFailure { link: Some(LinkId::DataPath), ..StepFailure::default() };
        assert_eq!(serde_json::to_value(&failure).unwrap()["link"], "data-path");
    }
}
