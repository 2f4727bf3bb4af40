//! Who is told of each worker process, so that it can be found if the device's process dies.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

/// What is kept for as long as a worker has not been reaped.
pub type Watched = Box<dyn Any + Send>;

/// Is told of each worker by its process id, before the worker is told anything.
#[derive(Clone)]
pub struct ProcessWatch(Arc<dyn Fn(u32) -> io::Result<Watched> + Send + Sync>);

impl ProcessWatch {
    /// Calls `started` for each worker. What it returns is dropped once the worker has been reaped.
    pub fn new(started: impl Fn(u32) -> io::Result<Watched> + Send + Sync + 'static) -> Self {
        Self(Arc::new(started))
    }

    pub(crate) fn started(&self, process: u32) -> io::Result<Watched> {
        (self.0)(process)
    }
}

impl fmt::Debug for ProcessWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessWatch")
    }
}
