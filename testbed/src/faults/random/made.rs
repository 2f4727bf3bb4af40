//! What was changed, in words, and the choice among several changes.

use std::sync::{Arc, Mutex, PoisonError};

use rand::{Rng, RngExt};

/// Shared descriptions of the changes. Those of files are added while the scene is built, since files are
/// chosen then.
#[derive(Clone, Debug, Default)]
pub struct Made(Arc<Mutex<Vec<String>>>);

impl Made {
    /// Adds the description of a change.
    pub fn record(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what.into());
    }

    /// Returns the descriptions of all changes as one text.
    pub fn words(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join("; ")
    }
}

/// Returns a random element.
pub fn pick<'a, T>(rng: &mut impl Rng, from: &'a [T]) -> &'a T {
    &from[rng.random_range(0..from.len())]
}
