//! Pinned staging buffers: for data inside messages, and for guest memory that the driver does not register.
//!
//! Their number is bounded. Whoever finds none waits for the GPU, as CUDA's own calls do when a queue is
//! full. A copy that waits for the guest has a buffer of another kind: nobody waits for those, because the
//! waiting thread also serves the session's other streams, on which the release may depend. They are charged
//! to the session, and beyond their number the copy is out of memory.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_device::{Charge, Resource, TrackedGuard, lock_tracked};

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::gpu::health::Health;

/// Size of a buffer in bytes. Data inside a message is never longer.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Number of buffers of a session for copies that do not wait for the guest, 16 MiB in all.
const BUFFERS_MOST: usize = 64;
/// Number of buffers of a session for copies that do, 240 MiB in all.
const BUFFERS_HELD_MOST: usize = 960;
/// Time between two checks whether the session ends during a wait for a buffer.
const PATIENCE: Duration = Duration::from_millis(50);

/// Error for a copy behind a hold that finds no buffer.
const NO_BUFFER: DriverError =
    DriverError { call: "a buffer behind a stream that is held", code: CUresult::OUT_OF_MEMORY };

/// The buffers of a session.
#[derive(Debug)]
pub(crate) struct Staging {
    health: Arc<Health>,
    shelf: Mutex<BufferShelf>,
    back: Condvar,
}

#[derive(Debug, Default)]
struct BufferShelf {
    idle: Vec<Pinned>,
    /// Buffers for copies behind holds that are not in use, with their charges.
    extra: Vec<(Pinned, Charge)>,
    /// Number of buffers that exist, idle or in use, without those for copies behind holds and, in the next
    /// field, of these.
    made: usize,
    made_extra: usize,
    /// Whether the guest holds a stream.
    held: bool,
}

/// A buffer in use. Dropping it makes its memory available to later copies.
#[derive(Debug)]
pub(crate) struct StagingBuffer {
    home: Arc<Staging>,
    /// The pinned memory, which is `None` only while the buffer is dropped.
    pinned: Option<Pinned>,
    /// Charge for a buffer behind a hold, which is freed when no stream is held.
    extra: Option<Charge>,
}

impl Staging {
    /// Creates the staging state without buffers.
    pub(crate) fn new(health: &Arc<Health>) -> Arc<Self> {
        Arc::new(Self { health: Arc::clone(health), shelf: Mutex::default(), back: Condvar::new() })
    }

    /// Sets whether the guest holds a stream. Extra buffers are freed when none is held any more.
    pub(crate) fn set_held(&self, held: bool) {
        let mut shelf = self.shelf();
        shelf.held = held;
        if !held {
            let extra = std::mem::take(&mut shelf.extra);
            shelf.made_extra -= extra.len();
            drop(shelf);
            drop(extra);
        }
    }

    fn shelf(&self) -> TrackedGuard<'_, BufferShelf> {
        lock_tracked(&self.shelf)
    }

    /// Acquires a buffer for a copy that waits for the guest. Fails if all are in use.
    pub(crate) fn acquire_held(
        self: &Arc<Self>,
        context: &Arc<DriverContext>,
    ) -> Result<StagingBuffer, DriverError> {
        let mut shelf = self.shelf();
        if let Some((pinned, charge)) = shelf.extra.pop() {
            return Ok(self.buffer(pinned, Some(charge)));
        }
        let charge = self.health.host().charges().charge(Resource::HostBytes, BUFFER_BYTES as u64);
        let charge = charge.ok().filter(|_| shelf.made_extra < BUFFERS_HELD_MOST).ok_or(NO_BUFFER)?;
        shelf.made_extra += 1;
        // Buffers are returned meanwhile.
        drop(shelf);
        let pinned = Pinned::allocate(context, BUFFER_BYTES).inspect_err(|_| self.shelf().made_extra -= 1)?;
        Ok(self.buffer(pinned, Some(charge)))
    }

    /// Acquires a buffer, or returns `None` if all are in use.
    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        context: &Arc<DriverContext>,
    ) -> Result<Option<StagingBuffer>, DriverError> {
        let mut shelf = self.shelf();
        if let Some(pinned) = shelf.idle.pop() {
            return Ok(Some(self.buffer(pinned, None)));
        }
        if shelf.made == BUFFERS_MOST {
            return Ok(None);
        }
        shelf.made += 1;
        // Buffers are returned meanwhile.
        drop(shelf);
        let pinned = Pinned::allocate(context, BUFFER_BYTES).inspect_err(|_| self.shelf().made -= 1)?;
        Ok(Some(self.buffer(pinned, None)))
    }

    /// Waits for a buffer that is in use. Fails with `NOT_READY` if the session ends or is lost meanwhile.
    pub(crate) fn wait(self: &Arc<Self>) -> Result<StagingBuffer, DriverError> {
        let mut shelf = self.shelf();
        loop {
            if let Some(pinned) = shelf.idle.pop() {
                return Ok(self.buffer(pinned, None));
            }
            if self.health.dead().is_some() || self.health.host().stopping() {
                return Err(DriverError { call: "wait for a buffer", code: CUresult::NOT_READY });
            }
            shelf = shelf.wait_timeout(&self.back, PATIENCE);
        }
    }

    fn buffer(self: &Arc<Self>, pinned: Pinned, extra: Option<Charge>) -> StagingBuffer {
        StagingBuffer { home: Arc::clone(self), pinned: Some(pinned), extra }
    }

    /// Frees the buffers that are not in use.
    pub(crate) fn clear(&self) {
        let mut shelf = self.shelf();
        let unused = (std::mem::take(&mut shelf.idle), std::mem::take(&mut shelf.extra));
        drop(shelf);
        drop(unused);
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
        let mut shelf = self.home.shelf();
        match self.extra.take() {
            // `cuMemFreeHost` would wait for the held stream, and other calls beside it (driver 580.159.04).
            Some(charge) if shelf.held => shelf.extra.push((pinned, charge)),
            Some(charge) => {
                shelf.made_extra -= 1;
                drop(shelf);
                drop((pinned, charge));
            }
            None => shelf.idle.push(pinned),
        }
        self.home.back.notify_one();
    }
}
