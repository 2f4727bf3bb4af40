//! The status report as data, computed from two readings of the devices. `--json` prints it unchanged; keys
//! may be added in later versions and are never removed.

use std::time::Duration;

use serde::Serialize;

use super::reading::{Reading, Session};
use crate::device::facts::{cuda_version, text, uuid};

/// Schema name in the object that `--json` prints.
const SCHEMA: &str = "vgpu-run.status/1";

/// Figures of all devices of this guest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Name and version of the format: always [`SCHEMA`].
    pub schema: &'static str,
    /// Devices in the order of their PCI addresses, which is CUDA's order.
    pub devices: Vec<DeviceFigures>,
}

/// Figures of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceFigures {
    /// PCI address of the function.
    pub address: String,
    /// Name of the GPU.
    pub name: String,
    /// UUID of the GPU, as CUDA prints it.
    pub uuid: String,
    /// Version of the driver, as NVML reports it.
    pub driver: String,
    /// Newest CUDA version that the device supports, such as `13.0`.
    pub cuda: String,
    /// Device memory in bytes.
    pub memory_total: u64,
    /// Device memory in use in bytes, including that of other guests.
    pub memory_used: u64,
    /// Share of time that the device has worked for this guest's processes, from 0 to 1. `None` if the host
    /// does not report it.
    pub utilization: Option<f64>,
    /// Processes of this guest that have a session.
    pub processes: Vec<ProcessFigures>,
}

/// Figures of a process's session on a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessFigures {
    /// Process id. `None` if it is unknown.
    pub pid: Option<u32>,
    /// Command line of the process. `None` if it is unknown.
    pub command: Option<String>,
    /// Index of the session's channel.
    pub channel: u32,
    /// Device memory of the session in bytes. `None` if the host does not report it.
    pub memory: Option<u64>,
    /// GPU time of the session so far, in seconds. `None` if the host does not report it.
    pub gpu_seconds: Option<f64>,
    /// Share of time that the device has worked for the session since the previous reading, from 0 to 1.
    /// `None` if the host does not report it or the session is new.
    pub utilization: Option<f64>,
}

impl Figures {
    /// Computes the figures of `now`, with shares of the time since `before`. Both are readings of the same
    /// devices.
    pub fn new(before: &[Reading], now: &[Reading]) -> Self {
        let devices = now.iter().zip(before).map(|(now, before)| device(before, now)).collect();
        Self { schema: SCHEMA, devices }
    }
}

fn device(before: &Reading, now: &Reading) -> DeviceFigures {
    let facts = &now.facts;
    let passed = now.at.saturating_duration_since(before.at);
    let processes: Vec<ProcessFigures> =
        now.sessions.iter().map(|session| process(before, session, passed)).collect();
    // Without sessions the host has no figures to report.
    let shares =
        processes.iter().map(|process| process.gpu_seconds.map(|_| process.utilization.unwrap_or(0.0)));
    DeviceFigures {
        address: now.address.clone(),
        name: text(&facts.name),
        uuid: uuid(&facts.uuid),
        driver: text(&facts.driver_text),
        cuda: cuda_version(facts.driver_version),
        memory_total: facts.total_bytes,
        memory_used: facts.total_bytes.saturating_sub(now.free),
        // The sum of no shares is -0.
        utilization: shares.sum::<Option<f64>>().map(|sum| (sum + 0.0).min(1.0)),
        processes,
    }
}

fn process(before: &Reading, session: &Session, passed: Duration) -> ProcessFigures {
    let earlier = before
        .sessions
        .iter()
        .find(|earlier| earlier.channel == session.channel && earlier.process == session.process);
    let utilization = earlier.and_then(|earlier| share(earlier.busy?, session.busy?, passed));
    ProcessFigures {
        pid: session.process,
        command: session.command.clone(),
        channel: session.channel,
        memory: session.memory,
        gpu_seconds: session.busy.map(|busy| busy.as_secs_f64()),
        utilization,
    }
}

/// Returns the share of the time `passed` during which the device worked, limited to 1 because work counts
/// when it ends. Returns `None` if the channel belongs to another session now.
fn share(before: Duration, now: Duration, passed: Duration) -> Option<f64> {
    let worked = now.checked_sub(before)?;
    (!passed.is_zero()).then(|| (worked.as_secs_f64() / passed.as_secs_f64()).min(1.0))
}

#[cfg(test)]
pub mod tests {
    use std::time::Instant;

    use vgpu_wire::facts::DeviceFacts;
    use zerocopy::FromZeros;

    use super::*;

    /// Returns two readings a second apart of a device with 8 GiB, of which 6 are free, with the sessions of
    /// each reading.
    pub fn readings(before: Vec<Session>, now: Vec<Session>) -> (Reading, Reading) {
        let mut facts = Box::new(DeviceFacts::new_zeroed());
        facts.name[..14].copy_from_slice(b"VGPU-STUB soft");
        facts.driver_text[..9].copy_from_slice(b"580.65.06");
        facts.driver_version = 13_000;
        facts.total_bytes = 8 << 30;
        let at = Instant::now();
        let reading = |at, sessions| Reading {
            at,
            address: "0000:00:05.0".into(),
            facts: facts.clone(),
            free: 6 << 30,
            sessions,
        };
        (reading(at, before), reading(at + Duration::from_secs(1), now))
    }

    /// Creates a session for which the host reports this many milliseconds of work.
    pub fn session(channel: u32, process: u32, busy: u64) -> Session {
        Session {
            channel,
            process: Some(process),
            command: Some("ollama runner --port 5".into()),
            memory: Some(1 << 30),
            busy: Some(Duration::from_millis(busy)),
        }
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let (before, now) = readings(
            vec![session(0, 7, 1000), session(1, 8, 500), session(2, 9, 900)],
            // The third channel's session has ended, and another began.
            vec![session(0, 7, 1250), session(1, 8, 9000), session(2, 9, 100), session(3, 10, 50)],
        );
        let figures = Figures::new(&[before], &[now]);
        let device = &figures.devices[0];
        assert_eq!((device.memory_total, device.memory_used), (8 << 30, 2 << 30));
        assert_eq!((device.name.as_str(), device.cuda.as_str()), ("VGPU-STUB soft", "13.0"));
        let shares: Vec<_> = device.processes.iter().map(|process| process.utilization).collect();
        assert_eq!(shares, [Some(0.25), Some(1.0), None, None]);
        assert_eq!(device.utilization, Some(1.0));
        assert_eq!(device.processes[0].gpu_seconds, Some(1.25));
    }

    #[test]
    fn what_an_older_host_does_not_tell_is_not_made_up() {
        let untold = Session { memory: None, busy: None, process: None, command: None, ..session(0, 7, 0) };
        let (before, now) = readings(vec![untold.clone()], vec![untold]);
        let figures = Figures::new(&[before], &[now]);
        let json = serde_json::to_value(&figures).unwrap();
        let device = &json["devices"][0];
        assert!(device["utilization"].is_null() && device["memory_used"] == 2_u64 << 30, "{device}");
        for key in ["pid", "command", "memory", "gpu_seconds", "utilization"] {
            assert!(device["processes"][0][key].is_null(), "{key}: {device}");
        }
        let (before, now) = readings(vec![], vec![]);
        assert_eq!(Figures::new(&[before], &[now]).devices[0].utilization, Some(0.0), "nobody works");
    }
}
