//! A model of what a driver takes of a GPU's memory beside allocations: a context, which grows with modules.
//! It is for tests of the executor for real GPUs, whose GPU is a soft device then
//! ([`TestHooks::context_bytes`](crate::TestHooks)).

use std::collections::HashMap;

use vgpu_device::{OutOfMemory, PoolCharge};
use vgpu_wire::Body;

use crate::memory::Memory;

/// Unit in which code takes memory, in bytes.
const CODE_UNIT: u64 = 64 << 10;

/// What a session is charged beside its allocations: a context, and the code of each module.
#[derive(Debug, Default)]
pub(super) struct Overhead {
    context: Option<PoolCharge>,
    modules: HashMap<u32, PoolCharge>,
}

impl Overhead {
    /// Charges what a message takes, before it is carried out. The first one takes a context of `bytes`.
    /// Returns whether anything has changed.
    pub(super) fn charge(&mut self, memory: &Memory, bytes: u64, body: &Body) -> Result<bool, OutOfMemory> {
        let first = self.context.is_none();
        if first {
            self.context = Some(memory.charge(bytes)?);
        }
        match body {
            Body::ModuleOpen(open) => {
                let whole = open.bytes.checked_next_multiple_of(CODE_UNIT).ok_or(OutOfMemory)?;
                self.modules.insert(open.module, memory.charge(whole)?);
                Ok(true)
            }
            Body::ModuleUnload(unload) => Ok(self.modules.remove(&unload.module).is_some() || first),
            _ => Ok(first),
        }
    }
}
