//! What rounds report, and what a siege reports of a bus.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A good program, as `vgpu-standin siege round` reports it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Good {
    /// Uploads that were computed, downloaded and compared beside hostile programs.
    pub units_beside: u64,
    /// How long it waited for a processor beside them, microseconds.
    pub queued_beside_us: u64,
    /// Number of bytes compared.
    pub bytes: u64,
    /// Of these, wrong ones.
    pub wrong: u64,
    /// From the first call to the first allocation, microseconds.
    pub attach_us: u64,
    /// Why it did not end well.
    pub failed: Option<String>,
}

/// A hostile program, as `vgpu-standin siege round` reports it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Attack {
    /// Class of the hostile program.
    pub class: String,
    /// It came to its attack.
    pub begun: bool,
    /// How often it was started.
    pub starts: u64,
    /// How often calls had which status, at least, by `CALL STATUS`.
    pub outcomes: BTreeMap<String, u64>,
    /// The last line that it wrote to stderr.
    pub last_words: String,
}

/// A round, as `vgpu-standin siege round` reports it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Round {
    /// How long all ran side by side.
    pub seconds: f64,
    /// Good programs beside hostile ones.
    pub good: Vec<Good>,
    /// The hostile programs of the round.
    pub hostile: Vec<Attack>,
    /// Good programs after these were killed.
    pub after: Vec<Good>,
}

/// Units a second of a good program in a round.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// By the clock.
    pub wall: f64,
    /// By the time in which it did not wait for a processor.
    pub unqueued: f64,
}

impl Round {
    /// What each good program did beside hostile ones.
    #[allow(clippy::cast_precision_loss, reason = "microseconds of minutes")]
    pub fn rates(&self) -> impl Iterator<Item = Rates> {
        self.good.iter().map(|good| {
            let units = good.units_beside as f64;
            let queued = good.queued_beside_us as f64 / 1e6;
            Rates { wall: units / self.seconds, unqueued: units / (self.seconds - queued).max(0.001) }
        })
    }
}

/// What a class of hostile programs came to on a bus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Class {
    /// In how many rounds it was.
    pub rounds: u64,
    /// In how many of these it came to its attack.
    pub begun: u64,
    /// How often its program was started: one whose session is lost ends.
    pub starts: u64,
    /// How often calls had which status, at least, by `CALL STATUS`: a `CUresult`; of sockets, -1 for hung up
    /// and -2 for no answer within a second.
    pub outcomes: BTreeMap<String, u64>,
    /// The last line that its program wrote to stderr.
    pub last_words: String,
}

/// A bus under siege.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Bus {
    /// Name of the bus.
    #[serde(rename = "bus")]
    pub name: &'static str,
    /// How many rounds there were.
    pub rounds: u64,
    /// Number of bytes that good programs compared.
    pub compared_bytes: u64,
    /// Number of those bytes that were wrong.
    pub wrong_bytes: u64,
    /// Bytes that were still charged to sessions after each round.
    pub charged_after: Vec<u64>,
    /// Memory of the device's process after each round, KiB.
    pub rss_kib: Vec<u64>,
    /// Of this, images that are kept for later sessions.
    pub kept_image_kib: Vec<u64>,
    /// Units a second of a good program alone; null where speed is not judged.
    pub good_alone: Option<f64>,
    /// Of each good program in each round: its part of that, beside hostile programs.
    pub good_share: Vec<f64>,
    /// The same of the device alone, on a bus whose programs have a kernel of their own: of the time in which
    /// that kernel did not have the good program wait for a processor. Empty elsewhere.
    pub device_share: Vec<f64>,
    /// What each of these has to be at least: of `device_share` where there is one, else of `good_share`.
    pub good_bound: Option<f64>,
    /// The longest attach as good programs saw it, start of the library included, microseconds.
    pub good_attach_us: u64,
    /// The longest attach of any session, as the device counts it, microseconds.
    pub longest_attach_us: Option<u64>,
    /// The longest access to a register, as the device counts it, microseconds.
    pub longest_access_us: Option<u64>,
    /// From SIGTERM to the end of the device's process, endless work under way, microseconds.
    pub sigterm_us: Option<u64>,
    /// What hostile programs came to.
    pub classes: BTreeMap<String, Class>,
    /// What did not hold.
    pub failures: Vec<String>,
}

impl Bus {
    /// Returns the shares that have to reach the bound.
    pub fn judged_shares(&self) -> &[f64] {
        if self.device_share.is_empty() { &self.good_share } else { &self.device_share }
    }

    /// Takes a round in, but for speed.
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

    /// Takes a hostile program in.
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
