//! Reports of rounds, and the report of a siege on a bus.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Results of a good program, as `vgpu-standin siege round` reports them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Good {
    /// Number of uploads that were computed on, downloaded and compared while hostile programs ran.
    pub units_beside: u64,
    /// Microseconds for which it waited for a processor while hostile programs ran.
    pub queued_beside_us: u64,
    /// Number of downloaded bytes that were compared.
    pub bytes: u64,
    /// Number of compared bytes that were wrong.
    pub wrong: u64,
    /// Microseconds from the first call to the first allocation.
    pub attach_us: u64,
    /// Reason of a failure, if it failed.
    pub failed: Option<String>,
}

/// Results of a hostile program, as `vgpu-standin siege round` reports them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Attack {
    /// Name of the hostile program's class.
    pub class: String,
    /// Whether it reached its attack.
    pub begun: bool,
    /// Number of its starts.
    pub starts: u64,
    /// Minimum numbers of calls by `CALL STATUS`.
    pub outcomes: BTreeMap<String, u64>,
    /// Last line that the program wrote to stderr.
    pub last_words: String,
}

/// Results of a round, as `vgpu-standin siege round` reports them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Round {
    /// Seconds for which all programs ran concurrently.
    pub seconds: f64,
    /// Results of the good programs while hostile ones ran.
    pub good: Vec<Good>,
    /// Results of the round's hostile programs.
    pub hostile: Vec<Attack>,
    /// Results of the good programs after the hostile ones were killed.
    pub after: Vec<Good>,
}

/// Units per second of a good program in a round.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Units per second of elapsed time.
    pub wall: f64,
    /// Units per second of the time in which it did not wait for a processor.
    pub unqueued: f64,
}

impl Round {
    /// Returns the rates of each good program while hostile ones ran.
    #[allow(clippy::cast_precision_loss, reason = "microseconds of minutes")]
    pub fn rates(&self) -> impl Iterator<Item = Rates> {
        self.good.iter().map(|good| {
            let units = good.units_beside as f64;
            let queued = good.queued_beside_us as f64 / 1e6;
            Rates { wall: units / self.seconds, unqueued: units / (self.seconds - queued).max(0.001) }
        })
    }
}

/// Totals of a class of hostile programs on a bus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Class {
    /// Number of rounds with this class.
    pub rounds: u64,
    /// Number of these rounds in which it reached its attack.
    pub begun: u64,
    /// Number of starts of its program, which exits when its session is lost.
    pub starts: u64,
    /// Minimum numbers of calls by `CALL STATUS`. The status is a `CUresult`; for sockets, -1 means that the
    /// connection was closed and -2 that no answer came within a second.
    pub outcomes: BTreeMap<String, u64>,
    /// Last line that a program of the class wrote to stderr.
    pub last_words: String,
}

/// Totals of a besieged bus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bus {
    /// Name of the bus.
    #[serde(rename = "bus")]
    pub name: &'static str,
    /// Number of rounds.
    pub rounds: u64,
    /// Number of bytes that good programs compared.
    pub compared_bytes: u64,
    /// Number of those bytes that were wrong.
    pub wrong_bytes: u64,
    /// Bytes that were still charged to sessions after each round.
    pub charged_after: Vec<u64>,
    /// Resident memory of the device process after each round, in KiB.
    pub rss_kib: Vec<u64>,
    /// Part of the resident memory after each round that holds images for later sessions, in KiB.
    pub kept_image_kib: Vec<u64>,
    /// Units per second of a good program that runs alone; null if speed is not judged.
    pub good_alone: Option<f64>,
    /// Rate of each good program in each round beside hostile programs, as a fraction of `good_alone`.
    pub good_share: Vec<f64>,
    /// Rate of each good program as in `good_share`, but without the time in which its own kernel had it wait
    /// for a processor; only for buses whose programs run under a kernel of their own, else empty.
    pub device_share: Vec<f64>,
    /// Lower bound of `device_share`, or of `good_share` if that is empty.
    pub good_bound: Option<f64>,
    /// Longest attach of a good program in microseconds, including the start of the library.
    pub good_attach_us: u64,
    /// Longest attach of any session in microseconds, as the device counts it.
    pub longest_attach_us: Option<u64>,
    /// Longest register access in microseconds, as the device counts it.
    pub longest_access_us: Option<u64>,
    /// Microseconds from SIGTERM to the end of the device process while endless work was running.
    pub sigterm_us: Option<u64>,
    /// Results of hostile programs by class.
    pub classes: BTreeMap<String, Class>,
    /// Descriptions of violated requirements.
    pub failures: Vec<String>,
}

impl Bus {
    /// Returns the shares that must reach the bound.
    pub fn judged_shares(&self) -> &[f64] {
        if self.device_share.is_empty() { &self.good_share } else { &self.device_share }
    }

    /// Adds the results of a round, except for speed.
    pub fn add(&mut self, round: &Round) {
        self.rounds += 1;
        let number = self.rounds;
        for (when, good) in round
            .good
            .iter()
            .map(|good| ("beside", good))
            .chain(round.after.iter().map(|good| ("after", good)))
        {
            self.compared_bytes += good.bytes;
            self.wrong_bytes += good.wrong;
            self.good_attach_us = self.good_attach_us.max(good.attach_us);
            if let Some(why) = &good.failed {
                self.failures.push(format!("round {number}: a good program {when} hostile ones: {why}"));
            } else if good.bytes == 0 {
                self.failures
                    .push(format!("round {number}: a good program {when} hostile ones compared nothing"));
            }
        }
        for attack in &round.hostile {
            self.attacked(attack);
        }
    }

    /// Adds the results of a hostile program.
    pub fn attacked(&mut self, attack: &Attack) {
        let class = self.classes.entry(attack.class.clone()).or_default();
        class.rounds += 1;
        class.begun += u64::from(attack.begun);
        class.starts += attack.starts;
        if !attack.last_words.is_empty() {
            class.last_words.clone_from(&attack.last_words);
        }
        for (outcome, count) in &attack.outcomes {
            *class.outcomes.entry(outcome.clone()).or_default() += count;
        }
    }
}
