//! Messages that a guest process sends to its devices, as the devices count them. The counts are read while
//! the guest is idle, so that they are exact, and divided by the number of decoded tokens.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Number;
use vgpu_device::{BusStatus, DeviceStatus, SessionStatus};

use crate::bed::{self, PATIENCE, TICK};

/// Message kinds that are not counted: the amount of padding depends on the ring's end, and joins are counted
/// separately.
const LEFT_OUT: [&str; 2] = ["Pad", "Join"];

/// Totals of the messages that a process has sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    kinds: BTreeMap<String, u64>,
    joins: u64,
    waits: u64,
    bytes_in: u64,
    bytes_out: u64,
    /// Register accesses of all processes.
    accesses: u64,
}

/// Cost of a token. Values are whole numbers if each token costs the same, and else averages with a fraction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PerToken {
    /// Number of tokens over which the averages were taken.
    pub tokens: u64,
    /// Number of messages by kind, without padding and joins.
    pub messages: BTreeMap<String, Number>,
    /// Number of joins, which are synchronizes that need no wait. Most are a flag of another message.
    pub joins: Number,
    /// Number of messages whose effect the guest must wait for: those with a reply, signals and downloads.
    /// Whether it spins, sleeps or finds the effect already there is not counted, because that depends on
    /// timing.
    pub waits: Number,
    /// Number of bytes uploaded to the device.
    pub bytes_h2d: Number,
    /// Number of bytes downloaded from the device.
    pub bytes_d2h: Number,
    /// Number of accesses by all processes to the device's registers and, with version 1, to BAR1. Each is an
    /// exit of a virtual machine. With version 1 they include polls of a running call; with version 2 they
    /// are doorbells and periodic checks of the device.
    pub accesses: Number,
}

impl PerToken {
    /// Returns whether the numbers of messages, joins, waits and bytes are whole, as they are if each token
    /// costs the same. Accesses are ignored, because they depend on timing.
    pub fn is_steady(&self) -> bool {
        let more = [&self.joins, &self.waits, &self.bytes_h2d, &self.bytes_d2h];
        self.messages.values().chain(more).all(Number::is_u64)
    }

    /// Returns the number of messages of a kind.
    pub fn messages_of(&self, kind: &str) -> u64 {
        self.messages.get(kind).and_then(Number::as_u64).unwrap_or(0)
    }
}

/// Returns `total` divided by `tokens`, as an integer if the result is whole.
#[allow(clippy::cast_precision_loss, reason = "an average")]
fn per(total: u64, tokens: u64) -> Number {
    if tokens != 0 && total.is_multiple_of(tokens) {
        return Number::from(total / tokens);
    }
    // A value that is not finite, such as a count over no tokens, becomes 0.
    Number::from_f64(total as f64 / tokens as f64).unwrap_or_else(|| Number::from(0))
}

impl Traffic {
    /// Returns what the process `pid` has sent to the devices of the bus in `sysfs`. Waits until the devices
    /// have read everything, so the process must not be sending.
    pub fn read(sysfs: &Path, pid: u32) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        loop {
            let status: BusStatus =
                serde_json::from_value(bed::control(sysfs, "status")?).context("understand the status")?;
            // A device of version 1 knows its guests by tokens: all that have a context count as the
            // process's.
            let of_process = |device: &&DeviceStatus, session: &SessionStatus| match device.generation {
                0 => session.state == "attached",
                _ => session.process == pid,
            };
            let devices = status.devices.iter();
            let sessions: Vec<_> = devices
                .flat_map(|device| device.sessions.iter().filter(move |session| of_process(&device, session)))
                .collect();
            if sessions.is_empty() {
                bail!("the process {pid} has no session");
            }
            if sessions.iter().all(|session| session.unread == 0 && session.messages == session.done) {
                let accesses = status.devices.iter().filter_map(|device| device.accesses).map(|accesses| {
                    [accesses.bar0, accesses.bar1].iter().map(|bar| bar.reads + bar.writes).sum::<u64>()
                });
                return Ok(Self { accesses: accesses.sum(), ..Self::sum(&sessions) });
            }
            if Instant::now() > end {
                bail!("the devices did not read all messages of {pid} within {PATIENCE:?}: {sessions:?}");
            }
            std::thread::sleep(TICK);
        }
    }

    fn sum(sessions: &[&SessionStatus]) -> Self {
        let mut all = Self::default();
        for session in sessions {
            for (kind, count) in &session.kinds {
                *all.kinds.entry(kind.clone()).or_default() += count;
            }
            all.joins += session.joins;
            all.waits += session.waits;
            all.bytes_in += session.bytes_in;
            all.bytes_out += session.bytes_out;
        }
        all
    }

    /// Returns the number of messages by kind, including padding and joins.
    pub fn kinds(&self) -> &BTreeMap<String, u64> {
        &self.kinds
    }

    /// Returns the cost of each of `tokens` tokens since `before`.
    pub fn since(&self, before: &Self, tokens: u64) -> PerToken {
        let messages = self
            .kinds
            .iter()
            .filter(|(kind, _)| !LEFT_OUT.contains(&kind.as_str()))
            .map(|(kind, count)| (kind, count - before.kinds.get(kind).unwrap_or(&0)))
            .filter(|&(_, count)| count > 0)
            .map(|(kind, count)| (kind.clone(), per(count, tokens)))
            .collect();
        PerToken {
            tokens,
            messages,
            joins: per(self.joins - before.joins, tokens),
            waits: per(self.waits - before.waits, tokens),
            bytes_h2d: per(self.bytes_in - before.bytes_in, tokens),
            bytes_d2h: per(self.bytes_out - before.bytes_out, tokens),
            accesses: per(self.accesses - before.accesses, tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(launches: u64, pads: u64, waits: u64) -> Traffic {
        let kinds = [("Launch", launches), ("Pad", pads), ("Hello", 1)];
        let kinds = kinds.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
        Traffic { kinds, waits, ..Traffic::default() }
    }

    #[test]
    fn a_steady_run_has_whole_numbers() {
        let per = traffic(400, 3, 12).since(&traffic(100, 2, 2), 10);
        assert!(per.is_steady());
        assert_eq!(per.messages_of("Launch"), 30);
        assert_eq!(per.messages.len(), 1, "padding, and what did not come again, is left out: {per:?}");
        assert_eq!(per.waits, Number::from(1));
    }

    #[test]
    fn an_average_is_no_whole_number() {
        let per = traffic(405, 0, 0).since(&traffic(100, 0, 0), 10);
        assert!(!per.is_steady());
        assert_eq!(per.messages["Launch"].as_f64(), Some(30.5));
        assert_eq!(per.messages_of("Launch"), 0);
    }
}
