//! Mutexes that record for each thread which locks it holds. Code that makes calls which may block can check
//! that no other thread waits for a lock meanwhile.

use std::any::type_name;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::sync::lock;

thread_local! {
    /// Number of locks that the thread holds, and the name of the newest.
    static HELD: Cell<(u32, &'static str)> = const { Cell::new((0, "")) };
}

/// Returns the type of the data whose lock this thread holds, or `None` if it holds no lock of
/// [`lock_tracked`]. Of several it is the newest, if they are released in reverse order.
#[inline]
pub fn held_lock() -> Option<&'static str> {
    let (count, newest) = HELD.get();
    (count > 0).then_some(newest)
}

/// Locks a mutex like [`lock`], so that [`held_lock`] knows of it.
#[inline]
pub fn lock_tracked<T>(mutex: &Mutex<T>) -> TrackedGuard<'_, T> {
    let guard = lock(mutex);
    let (count, outer) = HELD.replace((0, ""));
    HELD.set((count + 1, type_name::<T>()));
    TrackedGuard { guard, held: Held { outer } }
}

/// Counts one lock of this thread until it is dropped.
#[derive(Debug)]
struct Held {
    /// Name of the newest lock when this one was taken.
    outer: &'static str,
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        let (count, _) = HELD.get();
        HELD.set((count - 1, self.outer));
    }
}

/// A lock that is held. Dropping it releases the lock.
#[derive(Debug)]
pub struct TrackedGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    held: Held,
}

impl<T> TrackedGuard<'_, T> {
    /// Waits for a notification, without the lock meanwhile.
    #[must_use]
    pub fn wait(self, news: &Condvar) -> Self {
        let Self { guard, held } = self;
        Self { guard: news.wait(guard).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Waits for a notification for at most `limit`, without the lock meanwhile.
    #[must_use]
    pub fn wait_timeout(self, news: &Condvar, limit: Duration) -> Self {
        let Self { guard, held } = self;
        Self { guard: news.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0, held }
    }
}

impl<T> Deref for TrackedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for TrackedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_knows_which_locks_it_holds() {
        let (outer, inner) = (Mutex::new(0_u8), Mutex::new(0_u16));
        assert_eq!(held_lock(), None);
        let mut first = lock_tracked(&outer);
        *first += 1;
        assert_eq!(held_lock(), Some("u8"));
        let second = lock_tracked(&inner);
        assert_eq!(held_lock(), Some("u16"));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(held_lock(), None, "another thread holds none"));
        });
        drop(second);
        assert_eq!(held_lock(), Some("u8"));
        let first = first.wait_timeout(&Condvar::new(), Duration::from_millis(1));
        assert_eq!((held_lock(), *first), (Some("u8"), 1));
        drop(first);
        assert_eq!(held_lock(), None);
    }

    /// The number of held locks is right, whatever the order in which they are released.
    #[test]
    fn locks_are_released_in_any_order() {
        let (outer, inner) = (Mutex::new(0_u8), Mutex::new(0_u16));
        let first = lock_tracked(&outer);
        let second = lock_tracked(&inner);
        drop(first);
        assert!(held_lock().is_some());
        drop(second);
        assert_eq!(held_lock(), None);
    }
}
