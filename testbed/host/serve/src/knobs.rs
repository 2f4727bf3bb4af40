//! What tests change about devices and mediators. A product sets none of it.

use std::sync::Arc;

use vgpu_device::{Executor, TestHooks, V1TestHooks};

/// Puts something between a device and its executor.
type Wrap = Box<dyn Fn(Arc<dyn Executor>) -> Arc<dyn Executor>>;

/// The knobs. Without any, devices behave as documented.
#[derive(Default)]
pub struct Knobs {
    /// Hooks of devices of version 2.
    pub device: TestHooks,
    /// Hooks of devices of version 1.
    pub v1: V1TestHooks,
    /// The seed of the order in which the soft executor does work of independent streams: one that CUDA
    /// allows and no program expects.
    pub adversarial: Option<u64>,
    /// Stands between each device and its executor.
    pub wrap: Option<Wrap>,
}

impl Knobs {
    /// The executor as devices see it.
    pub(crate) fn wrapped(&self, executor: Arc<dyn Executor>) -> Arc<dyn Executor> {
        match &self.wrap {
            Some(wrap) => wrap(executor),
            None => executor,
        }
    }
}
