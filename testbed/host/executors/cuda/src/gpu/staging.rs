//! Pinned buffers of the executor's own: for data that comes inside messages, and for guest memory that the
//! driver does not register. There is a bounded number of them; whoever finds none waits for the GPU, as
//! CUDA's own calls do when its queue is full.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use vgpu_abi::CUresult;

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::gpu::health::Health;

/// Bytes of a buffer. Data inside a message is never longer.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Buffers of a session: 16 MiB.
const BUFFERS_MOST: usize = 64;
/// How long a wait for a buffer lasts before it looks whether the session ends.
const PATIENCE: Duration = Duration::from_millis(50);

/// The buffers of a session.
#[derive(Debug)]
pub(crate) struct Staging {
    health: Arc<Health>,
    shelf: Mutex<Shelf>,
    back: Condvar,
}

#[derive(Debug, Default)]
struct Shelf {
    idle: Vec<Pinned>,
    made: usize,
}

/// A buffer that is in use. It comes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    home: Arc<Staging>,
    /// Taken when it is dropped.
    pinned: Option<Pinned>,
}

impl Staging {
    /// No buffers yet.
    pub(crate) fn new(health: &Arc<Health>) -> Arc<Self> {
        Arc::new(Self { health: Arc::clone(health), shelf: Mutex::default(), back: Condvar::new() })
    }

    /// A buffer. Waits for one if all are in use, until the session ends or is lost; then the error is that
    /// it is not ready.
    pub(crate) fn take(self: &Arc<Self>, context: &Arc<Context>) -> Result<Buffer, DriverError> {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(pinned) = shelf.idle.pop() {
                return Ok(Buffer { home: Arc::clone(self), pinned: Some(pinned) });
            }
            if shelf.made < BUFFERS_MOST {
                let pinned = Pinned::allocate(context, BUFFER_BYTES)?;
                shelf.made += 1;
                return Ok(Buffer { home: Arc::clone(self), pinned: Some(pinned) });
            }
            if self.health.dead().is_some() || self.health.host().stopping() {
                return Err(DriverError { call: "wait for a buffer", code: CUresult::NOT_READY });
            }
            shelf = self.back.wait_timeout(shelf, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Frees the buffers that are not in use.
    pub(crate) fn clear(&self) {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner).idle.clear();
    }
}

impl Buffer {
    /// The memory.
    pub(crate) fn pinned(&self) -> &Pinned {
        self.pinned.as_ref().expect("a buffer has its memory until it is dropped")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            self.home.shelf.lock().unwrap_or_else(PoisonError::into_inner).idle.push(pinned);
            self.home.back.notify_one();
        }
    }
}
