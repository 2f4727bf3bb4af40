//! Fences: points in a stream's work. Each is an event that is not recorded again while the fence lives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vgpu_device::lock_tracked;

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::event::DriverEvent;
use crate::driver::stream::DriverStream;

/// Number of idle events of each kind that are kept.
const IDLE_MOST: usize = 256;

/// The pool of events of a session.
#[derive(Debug)]
pub(crate) struct Fences {
    context: Arc<DriverContext>,
    /// Idle events: first those without timing, then those with timing.
    idle: [Mutex<Vec<DriverEvent>>; 2],
}

/// A point in a stream's work.
#[derive(Debug)]
pub(crate) struct Fence {
    /// The event, which is `None` only while the fence is dropped.
    event: Option<DriverEvent>,
    home: Arc<Fences>,
    complete: AtomicBool,
    /// Amount of the stream's work that the fence follows, as [`Busy`](super::busy::Busy) counts it.
    pub(crate) behind: u64,
    /// Number of the newest hold that the work before the fence waits for, or 0.
    pub(crate) hold: u32,
}

impl Fences {
    /// Creates an empty pool.
    pub(crate) fn new(context: &Arc<DriverContext>) -> Arc<Self> {
        Arc::new(Self { context: Arc::clone(context), idle: Default::default() })
    }

    /// Records a fence after all work of the stream, the amount of which is `behind`, and which waits for
    /// `hold`. A `timed` fence stores the time at which it was reached.
    pub(crate) fn record(
        self: &Arc<Self>,
        stream: &DriverStream,
        timed: bool,
        behind: u64,
        hold: u32,
    ) -> Result<Arc<Fence>, DriverError> {
        let idle = lock_tracked(&self.idle[usize::from(timed)]).pop();
        let event = match idle {
            Some(event) => event,
            None => DriverEvent::create(&self.context, timed)?,
        };
        stream.record(&event)?;
        let complete = AtomicBool::new(false);
        Ok(Arc::new(Fence { event: Some(event), home: Arc::clone(self), complete, behind, hold }))
    }
}

impl Fence {
    fn event(&self) -> &DriverEvent {
        self.event.as_ref().expect("a fence has its event until it is dropped")
    }

    /// Returns whether an earlier query found the fence reached. Makes no call.
    pub(crate) fn is_known_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Returns whether the fence is reached. An error is one of the session's work.
    pub(crate) fn is_complete(&self) -> Result<bool, DriverError> {
        if self.is_known_complete() {
            return Ok(true);
        }
        let complete = self.event().is_complete()?;
        if complete {
            self.complete.store(true, Ordering::Release);
        }
        Ok(complete)
    }

    /// Waits until the fence is reached.
    pub(crate) fn wait(&self) -> Result<(), DriverError> {
        self.event().wait()?;
        self.complete.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes later work of a stream wait for the fence.
    pub(crate) fn make_wait(&self, stream: &DriverStream) -> Result<(), DriverError> {
        if self.is_known_complete() { Ok(()) } else { stream.wait(self.event()) }
    }

    /// Returns the milliseconds from this fence to a later one. Both must be timed and reached.
    pub(crate) fn milliseconds_to(&self, later: &Self) -> Result<f32, DriverError> {
        self.event().milliseconds_to(later.event())
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let Some(event) = self.event.take() else { return };
        let mut idle = lock_tracked(&self.home.idle[usize::from(event.is_timed())]);
        if idle.len() < IDLE_MOST {
            idle.push(event);
        }
    }
}
