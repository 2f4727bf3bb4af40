//! The status report as data, computed from two readings of the devices. `--json` prints it unchanged; keys
//! may be added in later versions and are never removed.

use std::time::Duration;

use serde::Serialize;
use vgpu_wire::share::{SHARE_WHOLE, VmShare};

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
    /// This guest's share of the GPU's time. `None` if the host shares the GPU with no other guest, or does
    /// not report it.
    pub share: Option<ShareFigures>,
    /// Processes of this guest that have a session.
    pub processes: Vec<ProcessFigures>,
}

/// A guest's share of the time of a GPU that it shares with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShareFigures {
    /// Part of the GPU's time that the guest gets while all guests have work, from 0 to 1.
    pub part: f64,
    /// Whether the host divides the GPU's time by shares now. Otherwise the driver divides it among programs.
    pub enforced: bool,
    /// GPU time that the guest was charged while others had work too, in seconds, since the device started.
    pub charged_seconds: f64,
    /// Time for which the guest had work while another guest had the GPU, in seconds, since the device
    /// started.
    pub waited_seconds: f64,
    /// Part of the time since the previous reading for which the guest waited, from 0 to 1. `None` if the
    /// device is another one than before.
    pub waiting: Option<f64>,
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
        share: now.share.map(|share| of_guest(before.share, share, passed)),
        processes,
    }
}

fn of_guest(before: Option<VmShare>, now: VmShare, passed: Duration) -> ShareFigures {
    let [charged, waited] = [now.charged_us, now.waited_us].map(Duration::from_micros);
    let earlier = before.map(|before| Duration::from_micros(before.waited_us));
    ShareFigures {
        part: f64::from(now.ppm) / f64::from(SHARE_WHOLE),
        enforced: now.enforced,
        charged_seconds: charged.as_secs_f64(),
        waited_seconds: waited.as_secs_f64(),
        waiting: earlier.and_then(|earlier| share(earlier, waited, passed)),
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

/// Returns the share of the time `passed` by which a time has grown, limited to 1 because work counts when it
/// ends. Returns `None` if it has decreased, because it is that of another session or device now.
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
            share: None,
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

    /// Returns the share of a guest that has a quarter of the GPU, and has waited for this many milliseconds.
    pub fn share_of_guest(enforced: bool, waited: u64) -> VmShare {
        VmShare { enforced, ppm: 250_000, charged_us: 2_000_000, waited_us: 1000 * waited }
    }

    #[test]
    fn a_guest_sees_its_share_and_its_waits() {
        let of = |earlier, later| {
            let (before, now) = readings(vec![], vec![]);
            let (before, now) = (Reading { share: earlier, ..before }, Reading { share: later, ..now });
            Figures::new(&[before], &[now]).devices[0].share.clone()
        };
        let figures = of(Some(share_of_guest(true, 500)), Some(share_of_guest(true, 1100))).unwrap();
        let expected = ShareFigures {
            part: 0.25,
            enforced: true,
            charged_seconds: 2.0,
            waited_seconds: 1.1,
            waiting: Some(0.6),
        };
        assert_eq!(figures, expected);
        let restarted = of(Some(share_of_guest(true, 500)), Some(share_of_guest(false, 100))).unwrap();
        assert_eq!((restarted.waiting, restarted.enforced), (None, false));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn what_an_older_host_does_not_tell_is_not_made_up() {
        let untold = Session { memory: None, busy: None, process: None, command: None, ..session(0, 7, 0) };
        let (before, now) = readings(vec![untold.clone()], vec![untold]);
        let figures = Figures::new(&[before], &[now]);
        let json = serde_json::to_value(&figures).unwrap();
        let device = &json["devices"][0];
        assert!(device["share"].is_null(), "{device}");
        assert!(device["utilization"].is_null() && device["memory_used"] == 2_u64 << 30, "{device}");
        for key in ["pid", "command", "memory", "gpu_seconds", "utilization"] {
            assert!(device["processes"][0][key].is_null(), "{key}: {device}");
        }
        let (before, now) = readings(vec![], vec![]);
        assert_eq!(Figures::new(&[before], &[now]).devices[0].utilization, Some(0.0), "nobody works");
    }
}
