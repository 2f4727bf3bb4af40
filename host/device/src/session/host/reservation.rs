//! Device memory that no message requests: what a product, a module's variables or a driver need beside the
//! guest's allocations.

use super::SessionHost;

impl SessionHost {
    /// Calls `take`, which charges the session at most `bytes` of device memory, if the device has so many. A
    /// worker process asks the device's process first, because other sessions have parts of the memory; in
    /// the device's own process the charge decides. Returns `None` if the device has too little.
    pub fn with_reserved<T>(&self, bytes: u64, take: impl FnOnce() -> T) -> Option<T> {
        let (mut take, mut taken) = (Some(take), None);
        let reserved = self.0.published.reserve(bytes, &mut || taken = take.take().map(|take| take()));
        taken.filter(|_| reserved)
    }
}
