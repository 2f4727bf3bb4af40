//! Fences: points in a stream's work, each an event that nothing else is recorded in while somebody holds it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::event::Event;
use crate::driver::stream::Stream;

/// Events that are kept for later fences, of each kind.
const IDLE_MOST: usize = 256;

/// The events of a session.
#[derive(Debug)]
pub(crate) struct Fences {
    context: Arc<Context>,
    /// Events without timing, and with it.
    idle: [Mutex<Vec<Event>>; 2],
}

/// A point in a stream's work.
#[derive(Debug)]
pub(crate) struct Fence {
    /// Taken when the fence is dropped.
    event: Option<Event>,
    home: Arc<Fences>,
    complete: AtomicBool,
    /// How much of the work of its lane it is behind, as [`Busy`](super::busy::Busy) counts it.
    pub(crate) behind: u64,
}

impl Fences {
    /// No events yet.
    pub(crate) fn new(context: &Arc<Context>) -> Arc<Self> {
        Arc::new(Self { context: Arc::clone(context), idle: Default::default() })
    }

    /// A fence behind all that the stream has been given, which is so much. `timed`: it will know when it was
    /// reached.
    pub(crate) fn record(
        self: &Arc<Self>,
        stream: &Stream,
        timed: bool,
        behind: u64,
    ) -> Result<Arc<Fence>, DriverError> {
        let idle = self.idle[usize::from(timed)].lock().unwrap_or_else(PoisonError::into_inner).pop();
        let event = match idle {
            Some(event) => event,
            None => Event::create(&self.context, timed)?,
        };
        stream.record(&event)?;
        let complete = AtomicBool::new(false);
        Ok(Arc::new(Fence { event: Some(event), home: Arc::clone(self), complete, behind }))
    }
}

impl Fence {
    fn event(&self) -> &Event {
        self.event.as_ref().expect("a fence has its event until it is dropped")
    }

    /// Whether it was found reached before. Costs no call.
    pub(crate) fn is_known_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Whether it is reached. An error is one that the work of the session ran into.
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

    /// Waits until it is reached.
    pub(crate) fn wait(&self) -> Result<(), DriverError> {
        self.event().wait()?;
        self.complete.store(true, Ordering::Release);
        Ok(())
    }

    /// Lets later work of a stream wait for it.
    pub(crate) fn hold_up(&self, stream: &Stream) -> Result<(), DriverError> {
        if self.is_known_complete() { Ok(()) } else { stream.wait(self.event()) }
    }

    /// Milliseconds from this fence to a later one. Both are timed, and reached.
    pub(crate) fn milliseconds_to(&self, later: &Self) -> Result<f32, DriverError> {
        self.event().milliseconds_to(later.event())
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        let Some(event) = self.event.take() else { return };
        let mut idle =
            self.home.idle[usize::from(event.is_timed())].lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MOST {
            idle.push(event);
        }
    }
}
