//! Time on the device's clock at which timed fences were reached.

use std::sync::Arc;

use crate::driver::error::DriverError;
use crate::driver::stream::DriverStream;
use crate::gpu::fence::{Fence, Fences};

/// Distance in milliseconds after which a fence becomes the new reference. CUDA returns the time between two
/// events as an `f32`, which resolves 60 nanoseconds within a second but only a quarter of a millisecond
/// within an hour.
const REFERENCE_MOST: f32 = 1000.0;

/// Converts timed fences to times, relative to a fence whose time the host knows.
#[derive(Debug)]
pub(crate) struct Clock {
    reference: Arc<Fence>,
    /// Time on the device's clock at which the reference was reached, in nanoseconds.
    at: u64,
}

impl Clock {
    /// Records a reference on an idle stream and waits for it. `now` returns the device's clock.
    pub(crate) fn start(
        fences: &Arc<Fences>,
        idle: &DriverStream,
        now: impl FnOnce() -> u64,
    ) -> Result<Self, DriverError> {
        let reference = fences.record(idle, true, 0, 0)?;
        reference.wait()?;
        Ok(Self { reference, at: now() })
    }

    /// Returns the time at which a timed fence was reached, in nanoseconds on the device's clock.
    pub(crate) fn time_of(&mut self, fence: &Arc<Fence>) -> Result<u64, DriverError> {
        let milliseconds = self.reference.milliseconds_to(fence)?;
        let time = self.at.saturating_add_signed((f64::from(milliseconds) * 1e6) as i64);
        if milliseconds > REFERENCE_MOST {
            self.reference = Arc::clone(fence);
            self.at = time;
        }
        Ok(time)
    }
}
