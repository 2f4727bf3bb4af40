//! Messages about handles: streams, events, holds of streams, and the end of modules.

use vgpu_device::{SessionError, Work};
use vgpu_wire::Body;

use super::{Place, SoftSession};
use crate::task::Task;

impl SoftSession {
    /// Handles messages that make and destroy streams and events, and `ModuleUnload`, which frees the
    /// module's variables after all queued work.
    pub(super) fn handles(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        self.handles.apply(&work.message.body, self.host.gauges())?;
        match &work.message.body {
            Body::EventDestroy(body) if self.queue.is_busy() => {
                self.queue.add(|order| order.forget(body.event))?;
            }
            Body::ModuleUnload(body) => {
                let memory = self.modules.unload(body.module)?.0.map(|module| module.memory);
                self.free(Place::Between(true), memory.unwrap_or_default(), work.number)?;
            }
            _ => {}
        }
        self.report();
        Ok(())
    }

    /// Handles `StreamHold`, which stops a stream until the guest has run a host function, and
    /// `StreamRelease`.
    pub(super) fn hold(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::StreamHold(body) => {
                let stream = self.stream(body.stream)?;
                self.handles.holds.insert(body.hold, ())?;
                let task = Task::Hold(body.hold, body.mark);
                if self.is_overfull(1) {
                    self.runner.execute(task, work.number);
                } else if let Some(job) = self.job(task, work.number) {
                    self.queue.add(|order| order.push(stream, job, true))?;
                }
            }
            Body::StreamRelease(body) => {
                self.handles.holds.remove(body.hold)?;
                if !self.is_overfull(1) {
                    self.queue.release(body.hold);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
