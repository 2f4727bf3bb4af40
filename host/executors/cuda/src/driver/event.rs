//! Events of the driver.

use std::sync::Arc;

use vgpu_abi::driver::{CUevent, EVENT_DISABLE_TIMING};

use super::context::DriverContext;
use super::error::{DriverError, check, check_ready, log_failure};

/// An event, which stands for its newest record.
#[derive(Debug)]
pub(crate) struct DriverEvent {
    context: Arc<DriverContext>,
    handle: CUevent,
    timed: bool,
}

impl DriverEvent {
    /// Creates an event that was never recorded. A `timed` event stores when its record completed.
    pub(crate) fn create(context: &Arc<DriverContext>, timed: bool) -> Result<Self, DriverError> {
        let flags = if timed { 0 } else { EVENT_DISABLE_TIMING };
        let mut handle = CUevent::NULL;
        // SAFETY: a live place for the answer.
        check("cuEventCreate", unsafe { (context.table().cuEventCreate)(&raw mut handle, flags) })?;
        Ok(Self { context: Arc::clone(context), handle, timed })
    }

    pub(super) const fn handle(&self) -> CUevent {
        self.handle
    }

    /// Returns whether the event stores the time of its records.
    pub(crate) const fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns whether the newest record is complete. An error is usually one of the work before the record.
    pub(crate) fn is_complete(&self) -> Result<bool, DriverError> {
        // SAFETY: the event lives as long as `self`.
        check_ready("cuEventQuery", unsafe { (self.context.table().cuEventQuery)(self.handle) })
    }

    /// Waits until the newest record is complete. The caller knows that no held stream delays it.
    pub(crate) fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the event lives as long as `self`.
        check("cuEventSynchronize", unsafe { (self.context.table().cuEventSynchronize)(self.handle) })
    }

    /// Returns the milliseconds from this event's record to another's. Both must be complete and timed.
    pub(crate) fn milliseconds_to(&self, end: &Self) -> Result<f32, DriverError> {
        let mut milliseconds = 0.0;
        let elapsed = self.context.table().cuEventElapsedTime;
        // SAFETY: both events live, and there is a place for the answer.
        check("cuEventElapsedTime", unsafe { elapsed(&raw mut milliseconds, self.handle, end.handle) })?;
        Ok(milliseconds)
    }
}

impl Drop for DriverEvent {
    fn drop(&mut self) {
        // SAFETY: this is the last use of the handle. The driver keeps an event for which streams still wait.
        log_failure(check("cuEventDestroy_v2", unsafe {
            (self.context.table().cuEventDestroy_v2)(self.handle)
        }));
    }
}
