//! An executor for tests: another one with changed facts, which fails where it is told to.

use std::sync::Arc;

use vgpu_device::{
    DeviceConfig, Executor, ExecutorError, GpuConfig, LateError, Session, SessionError, SessionHost, Work,
};
use vgpu_executor_null::Null;
use vgpu_wire::Body;
use vgpu_wire::facts::DeviceFacts;

/// A fill of 32-bit values with this one fails once, late, with the code in the low half.
pub const FAILS_ONCE: u32 = 0xdead_0000;
/// A fill with this one fails, and so does everything after it.
pub const FAILS_FOR_GOOD: u32 = 0xbeef_0000;

struct Odd {
    inner: Null,
    facts: DeviceFacts,
}

impl Executor for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn facts(&self) -> DeviceFacts {
        self.facts
    }

    fn allocated(&self) -> u64 {
        self.inner.allocated()
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        let inner = self.inner.open(host.clone())?;
        Ok(Box::new(OddSession { inner, host }))
    }
}

struct OddSession {
    inner: Box<dyn Session>,
    host: SessionHost,
}

impl Session for OddSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Body::Fill(fill) = work.message.body {
            let (kind, code) = (fill.value & 0xffff_0000, fill.value & 0xffff);
            if kind == FAILS_ONCE || kind == FAILS_FOR_GOOD {
                self.host.fail(LateError { code, sticky: kind == FAILS_FOR_GOOD, message: work.number });
            }
        }
        self.inner.execute(work)
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        self.inner.join(stream)
    }
}

/// A device that fails where it is told to, with virtual memory management.
pub fn odd(address: &str) -> DeviceConfig {
    let gpu = GpuConfig::new("Odd GPU").unwrap();
    let inner = Null::new(&gpu).unwrap();
    let mut facts = inner.facts();
    facts.attributes[102] = 1;
    DeviceConfig::new(address.parse().unwrap(), Arc::new(Odd { inner, facts }))
}
