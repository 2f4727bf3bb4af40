//! Pinned staging buffers: for data inside messages, and for guest memory that the driver does not register.
//!
//! Their number is bounded. Whoever finds none waits for the GPU, as CUDA's own calls do when a queue is
//! full. While the guest holds a stream, nobody waits, because the waiting thread also serves the session's
//! other streams, on which the release may depend. Then there are more buffers, charged to the session, and
//! beyond those the copy is out of memory.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_device::{Charge, Resource};

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::gpu::health::Health;

/// Size of a buffer in bytes. Data inside a message is never longer.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Number of buffers of a session, 16 MiB in all.
const BUFFERS_MOST: usize = 64;
/// Number of buffers of a session while the guest holds a stream, 256 MiB in all.
const BUFFERS_HELD_MOST: usize = 1024;
/// Time between two checks whether the session ends during a wait for a buffer.
const PATIENCE: Duration = Duration::from_millis(50);

/// Error for a copy that finds no free buffer while the guest holds a stream that it would wait for.
const NO_BUFFER: DriverError =
    DriverError { call: "a buffer behind a stream that is held", code: CUresult::OUT_OF_MEMORY };

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
    /// Buffers beyond the usual number that are not in use, with their charges.
    extra: Vec<(Pinned, Charge)>,
    made: usize,
    /// Whether the guest holds a stream.
    held: bool,
}

/// A buffer in use. Dropping it returns the buffer.
#[derive(Debug)]
pub(crate) struct StagingBuffer {
    home: Arc<Staging>,
    /// The pinned memory, which is `None` only while the buffer is dropped.
    pinned: Option<Pinned>,
    /// Charge for a buffer beyond the usual number, which is freed when no stream is held.
    extra: Option<Charge>,
}

impl Staging {
    /// Creates the staging state without buffers.
    pub(crate) fn new(health: &Arc<Health>) -> Arc<Self> {
        Arc::new(Self { health: Arc::clone(health), shelf: Mutex::default(), back: Condvar::new() })
    }

    /// Sets whether the guest holds a stream. Extra buffers are freed when none is held any more.
    pub(crate) fn set_held(&self, held: bool) {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.held = held;
        if !held {
            let extra = std::mem::take(&mut shelf.extra);
            shelf.made -= extra.len();
            drop(shelf);
            drop(extra);
        }
    }

    /// Acquires a buffer. Waits for one if all are in use, and fails as not ready if the session ends or is
    /// lost meanwhile. Does not wait while the guest holds a stream.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        context: &Arc<DriverContext>,
    ) -> Result<StagingBuffer, DriverError> {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(pinned) = shelf.idle.pop() {
                return Ok(self.buffer(pinned, None));
            }
            if shelf.made < BUFFERS_MOST {
                let pinned = Pinned::allocate(context, BUFFER_BYTES)?;
                shelf.made += 1;
                return Ok(self.buffer(pinned, None));
            }
            if let Some((pinned, charge)) = shelf.extra.pop() {
                return Ok(self.buffer(pinned, Some(charge)));
            }
            if shelf.held {
                let charges = self.health.host().charges();
                let charge = charges.charge(Resource::HostBytes, BUFFER_BYTES as u64);
                let charge = charge.ok().filter(|_| shelf.made < BUFFERS_HELD_MOST).ok_or(NO_BUFFER)?;
                let pinned = Pinned::allocate(context, BUFFER_BYTES)?;
                shelf.made += 1;
                return Ok(self.buffer(pinned, Some(charge)));
            }
            if self.health.dead().is_some() || self.health.host().stopping() {
                return Err(DriverError { call: "wait for a buffer", code: CUresult::NOT_READY });
            }
            shelf = self.back.wait_timeout(shelf, PATIENCE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn buffer(self: &Arc<Self>, pinned: Pinned, extra: Option<Charge>) -> StagingBuffer {
        StagingBuffer { home: Arc::clone(self), pinned: Some(pinned), extra }
    }

    /// Frees the buffers that are not in use.
    pub(crate) fn clear(&self) {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.idle.clear();
        shelf.extra.clear();
    }
}

impl StagingBuffer {
    /// Returns the memory of the buffer.
    pub(crate) fn pinned(&self) -> &Pinned {
        self.pinned.as_ref().expect("a buffer has its memory until it is dropped")
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        let Some(pinned) = self.pinned.take() else { return };
        let mut shelf = self.home.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        match self.extra.take() {
            // `cuMemFreeHost` would wait for the held stream, and other calls beside it (driver 580.159.04).
            Some(charge) if shelf.held => shelf.extra.push((pinned, charge)),
            Some(charge) => {
                shelf.made -= 1;
                drop(shelf);
                drop((pinned, charge));
            }
            None => shelf.idle.push(pinned),
        }
        self.home.back.notify_one();
    }
}
