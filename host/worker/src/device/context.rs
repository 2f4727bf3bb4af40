//! State that the sessions of one executor share.

use std::sync::Arc;

use crate::device::memory_pool::MemoryPool;
use crate::device::spawn::WorkerProgram;

/// State that the sessions of one executor share.
#[derive(Debug)]
pub(crate) struct ExecutorContext {
    /// Program of the workers, and how to start it.
    pub(crate) program: WorkerProgram,
    /// Device memory, and the part of it that each session holds.
    pub(crate) pool: Arc<MemoryPool>,
}
