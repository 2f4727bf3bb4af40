//! What the worker, `vgpu-run __worker`, says in its steps. Each type is what one step says when it succeeds;
//! the worker writes it and the links read it. [`StepFailure`] is what any of them says when it fails. How steps
//! become lines, and what `vgpu-probe` says in its own, is in [`vgpu_probe_steps`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vgpu_probe_steps::messages;

use crate::diagnosis::{Finding, Fix, LinkId};
use crate::inject::DeliveryMode;

/// Failure of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct StepFailure {
    /// The link that is broken, if it is one of the chain.
    pub link: Option<LinkId>,
    /// The id of the cause.
    pub cause: String,
    /// What was found at the link.
    pub found: String,
    /// What the operator can do about it.
    pub fix: Option<Fix>,
    /// Error that concerns no link.
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
    /// A failure that concerns no link.
    fn from(error: String) -> Self {
        Self { error, ..Self::default() }
    }
}

messages! {
    /// The worker became the user that it was asked to become. Only its failure is ever said.
    "become" Become {}

    /// A file was opened as the shims open it.
    "access" Access {
        /// Path of the file.
        path: String,
        /// The error number, where it could not be opened.
        errno: Option<i32>,
    }

    /// What the user may do with a file or directory.
    "rights" Rights {
        /// Path of the file.
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
        /// Whether its file system is mounted noexec.
        no_exec: bool,
    }

    /// The device was opened, and its registers read.
    "open" Open {
        /// Version of the protocol that the registers say.
        protocol: u32,
        /// Capability bits of the registers.
        capabilities: u32,
        /// Version of the wire format.
        wire: u32,
        /// Digest of the wire format's tables, in hexadecimal.
        digest: String,
        /// Generation of the device: it changes when the host's end restarts.
        generation: u32,
        /// Size of the window.
        window_mib: u32,
        /// Number of channels of the device.
        channels: u32,
        /// Number of channels that are in use.
        attached: u32,
        /// The number of the virtual machine.
        vm: u32,
        /// Whether waiting processes are woken by a futex.
        futex: bool,
        /// Caching of the window's mapping.
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
        /// The UUID, as CUDA prints it.
        uuid: String,
        /// Device memory in bytes.
        total: u64,
        /// The driver's version, as `cuDriverGetVersion` returns it.
        cuda: u32,
        /// Major number of the compute capability.
        cc_major: u32,
        /// Minor number of the compute capability.
        cc_minor: u32,
        /// Bits of `vgpu_wire::facts::exec`.
        abilities: u32,
        /// Largest number of threads in a block.
        threads: i32,
        /// Threads of a warp.
        warp: i32,
        /// Number of multiprocessors.
        processors: i32,
        /// The first of the device's addresses; 0 if its host announces none.
        address_base: u64,
        /// Size of the address range in bytes.
        address_bytes: u64,
    }

    /// The host takes sessions.
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
        /// Bytes of device memory that are free.
        free: u64,
        /// Bytes of device memory in total.
        total: u64,
    }

    /// Throughput of the window.
    "window" Window {
        /// Whether there was window memory to measure.
        measured: bool,
        /// Version of the protocol if it is 1. Such a device has no window of its own.
        version: Option<u32>,
        /// Bytes of this guest's large pages that a device of version 1 was given.
        pages: Option<u64>,
        /// Bytes of this guest's large pages through which the host answers.
        page_bytes: u64,
        /// Reason for this path of the answers.
        why: String,
        /// Speed of loads of 8 bytes from the window.
        polled_mb_s: Option<f64>,
        /// Speed of loads of 8 bytes from large pages.
        pages_mb_s: Option<f64>,
        /// Whether reads from the window are fast enough to hand window memory to the program.
        reads_well: Option<bool>,
        /// Bytes that were measured with.
        bytes: Option<u64>,
        /// Throughput of writes in MB/s.
        write_mb_s: f64,
        /// Throughput of reads in MB/s.
        read_mb_s: f64,
    }

    /// The session was closed.
    "close" Close {}

    /// Which processes of this guest have channels of the device, and which channels the device has sessions
    /// on.
    "sessions" Sessions {
        /// Number of the channel and process id, for each channel that a process has locked.
        locked: Vec<(u32, u32)>,
        /// Numbers of the channels that are not free on the device.
        attached: Vec<u32>,
    }

    /// A program was started.
    "exec" Exec {
        /// Process id of the program.
        pid: i32,
        /// Path of the program's file.
        program: String,
        /// LD_PRELOAD, as the program got it.
        preload: String,
        /// Libraries that the loader loads before the first of vgpu-run's.
        before: Vec<String>,
        /// Number of vgpu-run's libraries that LD_PRELOAD names.
        named: u64,
        /// Number of these that can be opened.
        reached: u64,
        /// The limit on its address space in bytes, if it has one.
        address_space: Option<u64>,
    }

    /// A program was followed to its end.
    "follow" Follow {}

    /// A server was started, and ended with all that it had started. It failed if the server did not say
    /// what it computes on.
    "serve" Serve {
        /// The lines in which it said so, one for each device.
        lines: Vec<String>,
        /// Exit code if the server exited by itself.
        code: Option<i32>,
        /// The number of the signal that ended it, if one did.
        signal: Option<i32>,
        /// Whether it had been silent for too long.
        silent: bool,
        /// Whether the worker was asked to stop before the server was ready.
        stopped: bool,
        /// Milliseconds until this was known.
        ms: u64,
        /// Ids of its processes that could not be ended.
        left: Vec<u32>,
    }

    /// The libraries and the probe are in place.
    "hold" Hold {
        /// How the libraries are delivered.
        way: Option<DeliveryMode>,
        /// SONAME and path of each library.
        objects: Vec<(String, PathBuf)>,
        /// Private directory that holds files or links.
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
