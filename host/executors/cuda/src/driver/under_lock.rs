//! Notices calls of the driver that a thread makes while it holds a lock of this crate. Many calls wait for the
//! driver's own locks, and some for the GPU or for work that waits for the guest. Whoever waits for our lock
//! then waits as long.

use std::sync::OnceLock;

use vgpu_device::held_lock;

/// Function that is told of a call under a lock: the call's name, and the type of the data that the lock
/// protects.
pub type LockObserver = fn(call: &'static str, lock: &'static str);

static OBSERVER: OnceLock<LockObserver> = OnceLock::new();

/// Tells `observer` of each call that a thread of this process makes under a lock, in that thread and after the
/// call. Tests use it. The first observer stays.
pub fn observe_calls_under_locks(observer: LockObserver) {
    let _ = OBSERVER.set(observer);
}

/// Notes that this thread has made a call.
#[inline]
pub(super) fn note(call: &'static str) {
    if let Some(lock) = held_lock() {
        tell(call, lock);
    }
}

#[cold]
fn tell(call: &'static str, lock: &'static str) {
    if let Some(observer) = OBSERVER.get() {
        observer(call, lock);
    }
}
