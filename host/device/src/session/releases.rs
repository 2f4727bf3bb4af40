//! Streams that the guest lets go, for executors whose session's thread may be in a call that returns only
//! then.
//!
//! A release is a message. While a stream waits for one, calls of a GPU's driver that load or unload code,
//! end registrations or free pinned memory wait too, and with them launches of other threads (driver
//! 580.159.04, see `testbed/bench/drivers`): the thread that would carry the release out may be in one of
//! them. So the process that reads the guest's ring, which calls no driver, tells the worker's second thread
//! of a release as soon as it reads it.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use crate::sync::lock;

/// Lets a stream go.
type Act = Box<dyn Fn() + Send>;

/// Releases of holds whose message has been read and not been carried out.
#[derive(Default)]
pub struct Releases(Mutex<State>);

#[derive(Default)]
struct State {
    /// Holds that were released before the executor had made them.
    told: HashSet<u32>,
    /// What the executor does when a hold is released.
    waiting: HashMap<u32, Act>,
}

impl std::fmt::Debug for Releases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Releases")
    }
}

impl Releases {
    /// Has `act` done, in any thread, as soon as it is known that the guest releases a hold. It must not
    /// wait.
    pub fn when_told(&self, hold: u32, act: impl Fn() + Send + 'static) {
        let mut state = lock(&self.0);
        if state.told.contains(&hold) {
            act();
        } else {
            state.waiting.insert(hold, Box::new(act));
        }
    }

    /// The guest has released a hold; its message is carried out later.
    pub fn tell(&self, hold: u32) {
        let mut state = lock(&self.0);
        match state.waiting.remove(&hold) {
            Some(act) => act(),
            None => {
                state.told.insert(hold);
            }
        }
    }

    /// The message that releases a hold has been carried out.
    pub fn forget(&self, hold: u32) {
        let mut state = lock(&self.0);
        state.told.remove(&hold);
        state.waiting.remove(&hold);
    }

    /// Nothing is done for any hold any more, nor is anything under way.
    pub fn forget_all(&self) {
        *lock(&self.0) = State::default();
    }
}
