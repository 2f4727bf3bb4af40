//! Executors for tests: the null executor with changed facts, which fails where a fill tells it to.

use std::sync::Arc;

use vgpu_device::{
    DeviceConfig, Executor, ExecutorError, GpuConfig, LateError, Session, SessionError, SessionHost, Work,
};
use vgpu_executor_null::Null;
use vgpu_executor_soft::Soft;
use vgpu_wire::Body;
use vgpu_wire::body::module::IMAGE_CUBIN;
use vgpu_wire::facts::{DeviceFacts, exec};

/// A fill of 32-bit values with this one fails once, late, with the code in the low half.
pub const FAILS_ONCE: u32 = 0xdead_0000;
/// A fill with this one fails, and so does everything after it.
pub const FAILS_FOR_GOOD: u32 = 0xbeef_0000;

/// A fill with this one ends the session.
pub const ENDS: u32 = 0xfade_0000;

struct Odd {
    inner: Box<dyn Executor>,
    facts: DeviceFacts,
    refuses_cubins: bool,
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
        Ok(Box::new(OddSession { inner, host, refuses_cubins: self.refuses_cubins }))
    }
}

struct OddSession {
    inner: Box<dyn Session>,
    host: SessionHost,
    refuses_cubins: bool,
}

impl Session for OddSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Body::Fill(fill) = work.message.body {
            if fill.value == ENDS {
                return Err(SessionError::Lost("it was told to".into()));
            }
            let (kind, code) = (fill.value & 0xffff_0000, fill.value & 0xffff);
            if kind == FAILS_ONCE || kind == FAILS_FOR_GOOD {
                self.host.fail(LateError { code, sticky: kind == FAILS_FOR_GOOD, message: work.number });
            }
        }
        if let Body::ModuleOpen(open) = &work.message.body
            && self.refuses_cubins
            && open.image == IMAGE_CUBIN
        {
            if let Some(to) = work.reply_to() {
                self.host.reply(to, 209, &[]);
            }
            return Ok(());
        }
        self.inner.execute(work)
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        self.inner.join(stream)
    }
}

/// Returns a device that fails where a fill tells it to, and has virtual memory management.
pub fn odd(address: &str) -> DeviceConfig {
    changed(address, |facts| facts.attributes[102] = 1)
}

/// Returns a device with other facts.
pub fn changed(address: &str, change: impl FnOnce(&mut DeviceFacts)) -> DeviceConfig {
    of(address, change, false)
}

/// Returns a device of compute capability 7.5 that says that it takes cubins, and refuses each.
pub fn without_cubins(address: &str) -> DeviceConfig {
    let says_so = |facts: &mut DeviceFacts| {
        (facts.cc_major, facts.cc_minor) = (7, 5);
        facts.abilities |= exec::KERNELS | exec::CUBIN | exec::PTX;
    };
    of(address, says_so, true)
}

/// Returns a device that has memory and runs kernels, with other facts.
pub fn soft_changed(address: &str, gpu: &GpuConfig, change: impl FnOnce(&mut DeviceFacts)) -> DeviceConfig {
    around(address, Box::new(Soft::new(gpu).unwrap()), change, false)
}

fn of(address: &str, change: impl FnOnce(&mut DeviceFacts), refuses_cubins: bool) -> DeviceConfig {
    let gpu = GpuConfig::new("Odd GPU").unwrap();
    around(address, Box::new(Null::new(&gpu).unwrap()), change, refuses_cubins)
}

fn around(
    address: &str,
    inner: Box<dyn Executor>,
    change: impl FnOnce(&mut DeviceFacts),
    refuses_cubins: bool,
) -> DeviceConfig {
    let mut facts = inner.facts();
    change(&mut facts);
    DeviceConfig::new(address.parse().unwrap(), Arc::new(Odd { inner, facts, refuses_cubins }))
}
