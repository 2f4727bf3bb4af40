//! The lock that each worker keeps until it has ended.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Makes the locks of workers. Each is an open file of its own, so that a worker that drops its lock drops no
/// other worker's.
#[derive(Clone)]
pub struct WorkerLock(Arc<dyn Fn() -> io::Result<OwnedFd> + Send + Sync>);

impl WorkerLock {
    /// Makes locks by `open`. What it returns must be open for reading only, because workers are not trusted.
    pub fn new(open: impl Fn() -> io::Result<OwnedFd> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// Makes the lock of one worker.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        (self.0)()
    }
}

impl fmt::Debug for WorkerLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerLock")
    }
}
