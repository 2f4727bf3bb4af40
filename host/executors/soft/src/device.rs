//! State that all sessions of a device share: limits, the account of memory, images and programs, and the
//! threads that run kernels.

use std::sync::{Arc, OnceLock};

use vgpu_device::{Addresses, GpuConfig, MemoryPool};
use vgpu_simt::Pool;
use vgpu_wire::facts::DeviceFacts;

use crate::hooks::TestHooks;
use crate::image::{Images, Rules};
use crate::limits::LaunchLimits;
use crate::options::SoftOptions;
use crate::profile::Recorders;
use crate::programs::Programs;

/// State that all sessions of a device share.
#[derive(Debug)]
pub(crate) struct SoftDevice {
    pub(crate) account: Arc<MemoryPool>,
    pub(crate) addresses: Addresses,
    pub(crate) limits: LaunchLimits,
    pub(crate) images: Images,
    pub(crate) programs: Programs,
    pub(crate) options: SoftOptions,
    pub(crate) hooks: TestHooks,
    pub(crate) recorders: Recorders,
    pool: OnceLock<Pool>,
}

impl SoftDevice {
    pub(crate) fn new(
        config: &GpuConfig,
        facts: &DeviceFacts,
        options: SoftOptions,
        hooks: TestHooks,
    ) -> Self {
        Self {
            account: Arc::new(MemoryPool::new(config.memory_bytes)),
            addresses: config.addresses.clone(),
            limits: LaunchLimits::new(facts),
            images: Images::new(Rules::new(facts)),
            programs: Programs::new(options.features),
            options,
            hooks,
            recorders: Recorders::default(),
            pool: OnceLock::new(),
        }
    }

    /// Returns the threads that run kernels. They are started with the first kernel.
    pub(crate) fn pool(&self) -> &Pool {
        self.pool.get_or_init(|| Pool::new(self.options.threads.get()))
    }
}
