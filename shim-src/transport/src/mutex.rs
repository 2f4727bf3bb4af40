//! Locks mutexes inside other programs' processes, where a panic must not poison them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. No code panics while it holds one, and the data is valid after every step, so poisoning is
/// ignored.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
