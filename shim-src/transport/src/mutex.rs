//! Locking a mutex inside other people's processes, where a panic must not poison it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Nothing panics while it holds one, and the data is whole after every step, so poisoning is
/// ignored.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
