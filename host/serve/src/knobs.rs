//! Changes that tests make to devices and mediators. The program `vgpu-device` makes none.

use std::sync::Arc;

use vgpu_device::{Executor, TestHooks};
use vgpu_device_v1::BusTestHooks;

/// Wraps the executor of a device, so that a test can watch it or interfere.
type Wrap = Box<dyn Fn(Arc<dyn Executor>) -> Arc<dyn Executor>>;

/// Changes for tests. The default changes nothing.
#[derive(Default)]
pub struct Knobs {
    /// Hooks of version 2 devices.
    pub device: TestHooks,
    /// Hooks of version 1 devices.
    pub v1: BusTestHooks,
    /// Seed of an order in which the soft executor runs the work of independent streams. CUDA allows any
    /// order; programs tend to expect one.
    pub adversarial: Option<u64>,
    /// Device memory that the soft executor charges each session for a context, in bytes.
    pub context_bytes: u64,
    /// Wraps the executor of each device.
    pub wrap: Option<Wrap>,
}

impl Knobs {
    /// Returns the executor that devices use: `executor`, wrapped if a test asked for it.
    pub(crate) fn wrapped(&self, executor: Arc<dyn Executor>) -> Arc<dyn Executor> {
        match &self.wrap {
            Some(wrap) => wrap(executor),
            None => executor,
        }
    }
}
