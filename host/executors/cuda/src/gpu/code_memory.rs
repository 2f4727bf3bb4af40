//! Charges device memory for code, in whole granules: for a module the size of its image and of its variables
//! without contents, for a kernel its local memory. The driver does not tell what it takes, and loads kernels
//! when they are first used, so a charge is a bound and not a measurement.

use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_abi::driver::attribute as id;
use vgpu_device::{CodeRefusal, PoolCharge, Quota, SessionHost};

use crate::driver::error::DriverError;
use crate::shared_gpu::SharedGpu;

/// The charge of one module, from before its image arrives until nothing uses its code any more.
#[derive(Debug)]
pub(crate) struct CodeMemory {
    /// The charges, which are empty only while this is dropped.
    taken: Vec<PoolCharge>,
    /// Unit in which the driver takes memory, in bytes.
    granule: u64,
    share: Quota,
    host: SessionHost,
}

impl CodeMemory {
    /// Charges nothing yet.
    fn none(shared: &SharedGpu, host: &SessionHost) -> Self {
        let share = Quota::new(Arc::clone(&shared.account), Arc::clone(host.charges()));
        Self { taken: Vec::new(), granule: shared.granule, share, host: host.clone() }
    }

    /// Charges a module whose image has this size.
    pub(crate) fn charge(shared: &SharedGpu, host: &SessionHost, bytes: u64) -> Result<Self, CodeRefusal> {
        let mut memory = Self::none(shared, host);
        if memory.add(bytes) {
            return Ok(memory);
        }
        let why = format!("there is no device memory for a module of {bytes} bytes");
        Err(CodeRefusal::new(CUresult::OUT_OF_MEMORY.0, &why))
    }

    /// Charges the variables of the module.
    pub(crate) fn charge_variables(&mut self, bytes: u64) -> Result<(), CodeRefusal> {
        if self.add_unrequested(bytes) {
            return Ok(());
        }
        let why = format!("there is no device memory for {bytes} bytes of a module's variables");
        Err(CodeRefusal::new(CUresult::OUT_OF_MEMORY.0, &why))
    }

    /// Charges bytes that no message requests. Returns false if there are not so many.
    fn add_unrequested(&mut self, bytes: u64) -> bool {
        let host = self.host.clone();
        bytes == 0 || host.with_reserved(bytes, || self.add(bytes)) == Some(true)
    }

    /// Charges `bytes`, in whole granules. Returns false if the session may not have them.
    fn add(&mut self, bytes: u64) -> bool {
        let whole = bytes.checked_next_multiple_of(self.granule);
        let taken = whole.and_then(|whole| self.share.allocate(whole).ok());
        let added = taken.is_some();
        self.taken.extend(taken);
        self.report();
        added
    }

    fn report(&self) {
        self.host.gauges().set_allocated(|| self.share.used());
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        self.taken.clear();
        self.report();
        self.host.memory_changed();
    }
}

/// Local memory that each thread has in a new context, in bytes: the usual `CU_LIMIT_STACK_SIZE`, which
/// guests cannot change. It is part of what a context costs.
const USUAL_LOCAL_BYTES: u64 = 1024;

/// The local memory of a session's kernels. The driver takes it for as many threads as can run at a time,
/// before the first launch of a kernel that needs more than earlier ones, and keeps it as long as the
/// context.
#[derive(Debug)]
pub(crate) struct LocalMemory {
    /// Bytes that each thread has.
    each: u64,
    /// Number of threads that can run at a time.
    threads: u64,
    memory: CodeMemory,
}

impl LocalMemory {
    /// Creates the local memory of a new context, for which nothing is charged.
    pub(crate) fn new(shared: &SharedGpu, host: &SessionHost) -> Self {
        let attribute =
            |id| shared.device.attribute(id).map_or(0, |value| u64::from(value.max(0).cast_unsigned()));
        let threads = attribute(id::MULTIPROCESSOR_COUNT) * attribute(id::MAX_THREADS_PER_MULTIPROCESSOR);
        Self { each: USUAL_LOCAL_BYTES, threads, memory: CodeMemory::none(shared, host) }
    }

    /// Charges the local memory that a kernel with `bytes` for each thread needs beyond that of earlier
    /// kernels. Fails with `OUT_OF_MEMORY` if the device has too little.
    #[inline]
    pub(crate) fn grow(&mut self, bytes: u32) -> Result<(), DriverError> {
        let bytes = u64::from(bytes);
        if bytes > self.each { self.grow_now(bytes) } else { Ok(()) }
    }

    #[cold]
    fn grow_now(&mut self, bytes: u64) -> Result<(), DriverError> {
        if !self.memory.add_unrequested((bytes - self.each).saturating_mul(self.threads)) {
            return Err(DriverError { call: "take local memory", code: CUresult::OUT_OF_MEMORY });
        }
        self.each = bytes;
        Ok(())
    }
}
