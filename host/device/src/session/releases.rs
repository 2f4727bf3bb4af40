//! Releases of held streams, for executors whose session's thread may be in a call that returns only after
//! the release.
//!
//! A release is a message. While a stream waits for one, calls of a GPU's driver that load or unload code,
//! end registrations or free pinned memory wait too, and so do launches of other threads (driver 580.159.04,
//! see `testbed/bench/drivers`). The thread that would carry out the release may be in one of these calls. So
//! the process that reads the guest's ring, which calls no driver, tells the worker's second thread of a
//! release as soon as it reads it.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use crate::sync::lock;

/// Function that resumes a held stream.
type ReleaseAction = Box<dyn Fn() + Send>;

/// Releases of holds whose message has been read and not been carried out.
#[derive(Default)]
pub struct Releases(Mutex<ReleaseTable>);

#[derive(Default)]
struct ReleaseTable {
    /// Holds that were released before the executor had made them.
    told: HashSet<u32>,
    /// Actions of the executor, by hold.
    waiting: HashMap<u32, ReleaseAction>,
}

impl std::fmt::Debug for Releases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Releases")
    }
}

impl Releases {
    /// Registers `act`, which any thread calls as soon as the guest is known to release a hold. It must not
    /// wait.
    pub fn on_release(&self, hold: u32, act: impl Fn() + Send + 'static) {
        let mut state = lock(&self.0);
        if state.told.contains(&hold) {
            act();
        } else {
            state.waiting.insert(hold, Box::new(act));
        }
    }

    /// Notifies that the guest has released a hold. The message itself is carried out later.
    pub fn notify(&self, hold: u32) {
        let mut state = lock(&self.0);
        match state.waiting.remove(&hold) {
            Some(act) => act(),
            None => {
                state.told.insert(hold);
            }
        }
    }

    /// Forgets a hold whose release has been carried out.
    pub fn forget(&self, hold: u32) {
        let mut state = lock(&self.0);
        state.told.remove(&hold);
        state.waiting.remove(&hold);
    }

    /// Forgets all holds. No action runs after this returns.
    pub fn forget_all(&self) {
        *lock(&self.0) = ReleaseTable::default();
    }
}
