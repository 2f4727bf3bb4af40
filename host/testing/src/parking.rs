//! An executor whose work can be stopped at a point. Parked work checks nothing, not even whether its session
//! is to end.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use vgpu_device::{Executor, ExecutorError, RetiredMemory, Session, SessionError, SessionHost, Work};
use vgpu_wire::Body;
use vgpu_wire::facts::DeviceFacts;

use super::guest::PATIENCE;

/// Point at which a session that received a certain message is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkAt {
    /// The session is parked in the message, before it is executed.
    Message,
    /// The session is parked when it ends.
    End,
}

#[derive(Debug, Default)]
struct Parked {
    count: usize,
    is_open: bool,
}

/// Place where sessions are parked until [`Parking::open`].
#[derive(Debug, Default)]
pub struct Parking {
    parked: Mutex<Parked>,
    changed: Condvar,
}

impl Parking {
    /// Returns an executor that parks a session when it receives a message for which `parks` returns true.
    pub fn around(
        self: &Arc<Self>,
        inner: Arc<dyn Executor>,
        at: ParkAt,
        parks: fn(&Body) -> bool,
    ) -> Arc<dyn Executor> {
        Arc::new(ParkingExecutor { inner, parking: Arc::clone(self), at, parks })
    }

    /// Waits until `count` sessions are parked.
    pub fn wait_for(&self, count: usize) {
        let parked = self.parked.lock().unwrap();
        let wait = self.changed.wait_timeout_while(parked, PATIENCE, |parked| parked.count < count).unwrap();
        assert!(!wait.1.timed_out(), "no work is parked");
    }

    /// Lets all parked sessions continue, and parks no more.
    pub fn open(&self) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).is_open = true;
        self.changed.notify_all();
    }

    fn park(&self) {
        let mut parked = self.parked.lock().unwrap();
        parked.count += 1;
        self.changed.notify_all();
        let mut parked = self.changed.wait_while(parked, |parked| !parked.is_open).unwrap();
        parked.count -= 1;
    }
}

struct ParkingExecutor {
    inner: Arc<dyn Executor>,
    parking: Arc<Parking>,
    at: ParkAt,
    parks: fn(&Body) -> bool,
}

struct ParkingSession {
    inner: Box<dyn Session>,
    parking: Arc<Parking>,
    at: ParkAt,
    parks: fn(&Body) -> bool,
    is_marked: bool,
}

impl Executor for ParkingExecutor {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn facts(&self) -> DeviceFacts {
        self.inner.facts()
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        let inner = self.inner.open(host)?;
        let Self { at, parks, .. } = *self;
        Ok(Box::new(ParkingSession {
            inner,
            parking: Arc::clone(&self.parking),
            at,
            parks,
            is_marked: false,
        }))
    }
}

impl Session for ParkingSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if (self.parks)(&work.message.body) {
            self.is_marked = true;
            if self.at == ParkAt::Message {
                self.parking.park();
            }
        }
        self.inner.execute(work)
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        self.inner.join(stream)
    }

    fn retire(&mut self, memory: RetiredMemory) {
        self.inner.retire(memory);
    }
}

impl Drop for ParkingSession {
    fn drop(&mut self) {
        if self.at == ParkAt::End && self.is_marked {
            self.parking.park();
        }
    }
}
