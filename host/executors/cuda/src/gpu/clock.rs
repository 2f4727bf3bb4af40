//! The device's clock at the moments that timed fences were reached.

use std::sync::Arc;

use crate::driver::error::DriverError;
use crate::driver::stream::Stream;
use crate::gpu::fence::{Fence, Fences};

/// Milliseconds after which a fence becomes the new reference. CUDA tells a time between two events as an
/// `f32`: of a second it knows 60 nanoseconds, of an hour a quarter of a millisecond.
const REFERENCE_MOST: f32 = 1000.0;

/// Times of fences, counted from one whose time the host knows.
#[derive(Debug)]
pub(crate) struct Clock {
    reference: Arc<Fence>,
    /// Nanoseconds on the device's clock when the reference was reached.
    at: u64,
}

impl Clock {
    /// Records a reference on a stream without work, and waits the moment that it takes. `now`: the device's
    /// clock.
    pub(crate) fn start(
        fences: &Arc<Fences>,
        idle: &Stream,
        now: impl FnOnce() -> u64,
    ) -> Result<Self, DriverError> {
        let reference = fences.record(idle, true, 0)?;
        reference.wait()?;
        Ok(Self { reference, at: now() })
    }

    /// When a timed fence was reached, in nanoseconds on the device's clock.
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
