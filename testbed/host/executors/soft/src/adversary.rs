//! Which of the work that may be done is done next: the oldest, or, to find programs that rely on more than CUDA promises,
//! anything else.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::order::{Id, Order};

/// Work that may wait before some of it is done although nobody asks for it.
const BACKLOG: usize = 512;

/// How an adversary chooses for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// What was given last.
    Newest,
    /// Anything.
    Random,
    /// Only what somebody waits for; of that, anything.
    Needed,
    /// Only what somebody waits for; of that, what was given last.
    NewestNeeded,
}

/// Delays what it can, and does the rest in an order that nobody expects.
#[derive(Debug)]
pub(crate) struct Adversary {
    random: SmallRng,
    mood: Mood,
    /// Choices until the mood changes.
    left: u32,
}

impl Adversary {
    /// One that is the same for the same seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), mood: Mood::Needed, left: 0 }
    }

    /// What to do next. `patience`: whether to wait for more work when nobody asks for any that there is.
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
                // What is needed may wait for the guest: then the rest goes on.
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
