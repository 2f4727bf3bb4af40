//! Pinned buffers of the executor's own: for data that comes inside messages, and for guest memory that the
//! driver does not register. There is a bounded number of them; whoever finds none waits for the GPU, as
//! CUDA's own calls do when its queue is full. While the guest holds a stream nobody waits: what ends the
//! hold is a later message, which the thread that waits would have to read. Then there are more buffers,
//! charged to the session, and behind those the copy is out of memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_device::{Charge, Resource};

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::gpu::health::Health;

/// Bytes of a buffer. Data inside a message is never longer.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Buffers of a session: 16 MiB.
const BUFFERS_MOST: usize = 64;
/// Buffers of a session while the guest holds a stream: 256 MiB.
const BUFFERS_HELD_MOST: usize = 1024;
/// How long a wait for a buffer lasts before it looks whether the session ends.
const PATIENCE: Duration = Duration::from_millis(50);

/// More work waits behind a stream that the guest holds than there are buffers for.
const NO_BUFFER: DriverError =
    DriverError { call: "a buffer behind a stream that is held", code: CUresult::OUT_OF_MEMORY };

/// The buffers of a session.
#[derive(Debug)]
pub(crate) struct Staging {
    health: Arc<Health>,
    shelf: Mutex<Shelf>,
    back: Condvar,
    /// Whether the guest holds a stream.
    held: AtomicBool,
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
    /// Of a buffer that is freed when it comes back.
    extra: Option<Charge>,
}

impl Staging {
    /// No buffers yet.
    pub(crate) fn new(health: &Arc<Health>) -> Arc<Self> {
        Arc::new(Self {
            health: Arc::clone(health),
            shelf: Mutex::default(),
            back: Condvar::new(),
            held: AtomicBool::new(false),
        })
    }

    /// Says whether the guest holds a stream.
    pub(crate) fn set_held(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }

    /// A buffer. Waits for one if all are in use, until the session ends or is lost; then the error is that
    /// it is not ready. Does not wait while the guest holds a stream.
    pub(crate) fn take(self: &Arc<Self>, context: &Arc<Context>) -> Result<Buffer, DriverError> {
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
            if self.held.load(Ordering::Relaxed) {
                let charges = self.health.host().charges();
                let charge = charges.take(Resource::HostBytes, BUFFER_BYTES as u64);
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

    fn buffer(self: &Arc<Self>, pinned: Pinned, extra: Option<Charge>) -> Buffer {
        Buffer { home: Arc::clone(self), pinned: Some(pinned), extra }
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
        let Some(pinned) = self.pinned.take() else { return };
        let extra = self.extra.is_some();
        let mut shelf = self.home.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        if extra {
            shelf.made -= 1;
            drop(shelf);
            drop(pinned);
        } else {
            shelf.idle.push(pinned);
        }
        self.home.back.notify_one();
    }
}
