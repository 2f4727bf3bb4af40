//! Events.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUevent, EVENT_DISABLE_TIMING};

use super::context::Context;
use super::error::{DriverError, check, tell};

/// An event. What it stands for is its newest record.
#[derive(Debug)]
pub(crate) struct Event {
    context: Arc<Context>,
    handle: CUevent,
    timed: bool,
}

impl Event {
    /// An event that was never recorded. `timed`: it knows when its record was complete.
    pub(crate) fn create(context: &Arc<Context>, timed: bool) -> Result<Self, DriverError> {
        let flags = if timed { 0 } else { EVENT_DISABLE_TIMING };
        let mut handle = CUevent::NULL;
        // SAFETY: a live place for the answer.
        check("cuEventCreate", unsafe { (context.table().cuEventCreate)(&raw mut handle, flags) })?;
        Ok(Self { context: Arc::clone(context), handle, timed })
    }

    pub(super) const fn handle(&self) -> CUevent {
        self.handle
    }

    /// Whether it has the time of its records.
    pub(crate) const fn is_timed(&self) -> bool {
        self.timed
    }

    /// Whether the newest record is complete. Any error but that of a wrong call is one that the work ran
    /// into.
    pub(crate) fn is_complete(&self) -> Result<bool, DriverError> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { (self.context.table().cuEventQuery)(self.handle) } {
            CUresult::NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits for the newest record: only where nothing is in its way.
    pub(crate) fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the event lives as long as `self`.
        check("cuEventSynchronize", unsafe { (self.context.table().cuEventSynchronize)(self.handle) })
    }

    /// Milliseconds from this event's record to another's, both complete and timed.
    pub(crate) fn milliseconds_to(&self, end: &Self) -> Result<f32, DriverError> {
        let mut milliseconds = 0.0;
        let elapsed = self.context.table().cuEventElapsedTime;
        // SAFETY: both events live, and there is a place for the answer.
        check("cuEventElapsedTime", unsafe { elapsed(&raw mut milliseconds, self.handle, end.handle) })?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the last use of the handle. The driver keeps what streams still wait for.
        tell(check("cuEventDestroy_v2", unsafe { (self.context.table().cuEventDestroy_v2)(self.handle) }));
    }
}
