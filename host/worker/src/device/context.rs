//! What the sessions of one executor share.

use std::sync::Arc;

use crate::device::memory_pool::MemoryPool;
use crate::device::spawn::WorkerProgram;

/// What the sessions of one executor share.
#[derive(Debug)]
pub(crate) struct ExecutorContext {
    /// How to start a worker.
    pub(crate) program: WorkerProgram,
    /// The device's memory, and how much of it each session holds.
    pub(crate) pool: Arc<MemoryPool>,
}
