//! An executor whose work can be made to stand still: what is parked looks at nothing, not even whether its
//! session is to end.

use std::sync::{Arc, Condvar, Mutex};

use vgpu_device::{Executor, ExecutorError, Retired, Session, SessionError, SessionHost, Work};
use vgpu_wire::Body;
use vgpu_wire::facts::DeviceFacts;

use crate::driver::PATIENCE;

#[derive(Debug, Default)]
struct State {
    /// Work that stands still.
    parked: usize,
    open: bool,
}

/// Where work stands still.
#[derive(Debug, Default)]
pub struct Parking {
    state: Mutex<State>,
    changed: Condvar,
}

impl Parking {
    /// The executor, every fill of which is parked.
    pub fn around(self: &Arc<Self>, inner: Arc<dyn Executor>) -> Arc<dyn Executor> {
        Arc::new(ParkingExecutor { inner, parking: Arc::clone(self) })
    }

    /// Waits until so much work is parked.
    pub fn wait_for(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let wait = self.changed.wait_timeout_while(state, PATIENCE, |state| state.parked < count).unwrap();
        assert!(!wait.1.timed_out(), "no work is parked");
    }

    /// All goes on, from now on.
    pub fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    fn park(&self) {
        let mut state = self.state.lock().unwrap();
        state.parked += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| !state.open).unwrap();
        state.parked -= 1;
    }
}

struct ParkingExecutor {
    inner: Arc<dyn Executor>,
    parking: Arc<Parking>,
}

struct ParkingSession {
    inner: Box<dyn Session>,
    parking: Arc<Parking>,
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
        Ok(Box::new(ParkingSession { inner, parking: Arc::clone(&self.parking) }))
    }
}

impl Session for ParkingSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if matches!(work.message.body, Body::Fill(_)) {
            self.parking.park();
        }
        self.inner.execute(work)
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        self.inner.join(stream)
    }

    fn retire(&mut self, memory: Retired) {
        self.inner.retire(memory);
    }
}
