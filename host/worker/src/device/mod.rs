//! The half of the device's process: the executor that starts workers, its sessions, and the thread that
//! supervises each worker.

pub(crate) mod context;
pub(crate) mod executor;
pub(crate) mod memory_pool;
pub(crate) mod process;
pub(crate) mod process_watch;
pub(crate) mod ring_writer;
pub(crate) mod saved;
pub(crate) mod session;
pub(crate) mod spawn;
pub(crate) mod supervisor;
pub(crate) mod worker_lock;
