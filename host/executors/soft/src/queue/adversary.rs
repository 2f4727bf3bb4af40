//! Chooses the next piece of work so that programs fail that rely on more than CUDA promises.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::order::{Id, Order};

/// Number of pieces of work that may wait before some are done although nobody waits for them.
const BACKLOG: usize = 512;

/// What an adversary chooses, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// The work that was given last.
    Newest,
    /// Any work, drawn at random.
    Random,
    /// Any work that somebody waits for.
    Needed,
    /// The work that was given last, of that for which somebody waits.
    NewestNeeded,
}

/// Delays what it can, and does the rest in an order that nobody expects.
#[derive(Debug)]
pub(crate) struct Adversary {
    random: SmallRng,
    mood: Mood,
    /// Number of choices until the mood changes.
    left: u32,
}

impl Adversary {
    /// An adversary. The same seed gives the same choices.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), mood: Mood::Needed, left: 0 }
    }

    /// Chooses what to do next. `patience`: wait for more work when nobody waits for what there is.
    pub(crate) fn choose<J>(&mut self, order: &Order<J>, patience: bool) -> Option<Id> {
        let ready = order.ready();
        if patience && order.demanded().is_empty() && ready.len() < BACKLOG {
            return None;
        }
        if self.left == 0 {
            self.left = self.random.random_range(1..64);
            self.mood = [Mood::Newest, Mood::Random, Mood::Needed, Mood::NewestNeeded]
                [self.random.random_range(0..4)];
        }
        self.left -= 1;
        let any: Vec<Id> = match self.mood {
            Mood::Newest | Mood::Random => ready.iter().copied().collect(),
            Mood::Needed | Mood::NewestNeeded => {
                let needed = order.needed();
                // If what is needed waits for the guest, the rest goes on.
                if needed.is_empty() { ready.iter().copied().collect() } else { needed }
            }
        };
        match self.mood {
            _ if any.is_empty() => None,
            Mood::Newest | Mood::NewestNeeded => any.last().copied(),
            Mood::Random | Mood::Needed => Some(any[self.random.random_range(0..any.len())]),
        }
    }
}
