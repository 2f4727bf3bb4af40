//! Chooses the next task such that programs fail that rely on an order that CUDA does not promise.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::order::{Id, Order};

/// Number of ready tasks from which on the adversary no longer waits for more, although nothing demands any
/// of them.
const BACKLOG: usize = 512;

/// Strategy that the adversary follows for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// The newest task is chosen.
    Newest,
    /// A random task is chosen.
    Random,
    /// A random task that a demanded task depends on is chosen.
    Needed,
    /// The newest task that a demanded task depends on is chosen.
    NewestNeeded,
}

/// Delays tasks as long as possible, and carries out independent ones in an unexpected order.
#[derive(Debug)]
pub(crate) struct Adversary {
    random: SmallRng,
    mood: Mood,
    /// Number of choices until the next mood is drawn.
    left: u32,
}

impl Adversary {
    /// Makes an adversary. The same seed gives the same choices.
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), mood: Mood::Needed, left: 0 }
    }

    /// Chooses the next task. With `patience`, returns `None` while no task is demanded and fewer than
    /// [`BACKLOG`] are ready, so that more work can come first.
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
                // If all demanded tasks wait for the guest, the others continue.
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
