//! What a module is charged of the device's memory: the size of its image, in whole granules. The driver does
//! not tell what it takes, and loads kernels when they are first used, so this is a bound and not a
//! measurement.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{CodeRefusal, PoolCharge, Quota, SessionHost};

use crate::shared_gpu::SharedGpu;

/// The charge of one module, from before its image arrives until nothing uses its code any more.
#[derive(Debug)]
pub(crate) struct CodeMemory {
    /// The bytes, which are `None` only while this is dropped.
    taken: Option<PoolCharge>,
    share: Quota,
    host: SessionHost,
}

impl CodeMemory {
    /// Charges a module whose image has this size.
    pub(crate) fn charge(shared: &SharedGpu, host: &SessionHost, bytes: u64) -> Result<Self, CodeRefusal> {
        let share = Quota::new(Arc::clone(&shared.account), Arc::clone(host.charges()));
        let whole = bytes.checked_next_multiple_of(shared.granule);
        let taken = whole.and_then(|whole| share.allocate(whole).ok());
        let Some(taken) = taken else {
            let why = format!("there is no device memory for a module of {bytes} bytes");
            return Err(CodeRefusal::new(CUresult::OUT_OF_MEMORY.0, &why));
        };
        let memory = Self { taken: Some(taken), share, host: host.clone() };
        memory.report();
        Ok(memory)
    }

    fn report(&self) {
        self.host.gauges().set_allocated(|| self.share.used());
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        drop(self.taken.take());
        self.report();
        self.host.memory_changed();
    }
}
