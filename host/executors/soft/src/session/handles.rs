//! Messages about handles: streams, events, holds of streams, and the end of modules.

use vgpu_device::{SessionError, Violation, Work};
use vgpu_wire::Body;
use vgpu_wire::body::stream::STREAM_NON_BLOCKING;

use super::{Place, SoftSession};
use crate::queue::order::Stream;
use crate::task::Task;

impl SoftSession {
    /// Handles messages that make and destroy streams, events and modules.
    pub(super) fn handles(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::StreamCreate(body) => {
                let blocking = body.flags & STREAM_NON_BLOCKING == 0;
                let stream = Stream { number: body.stream, blocking };
                if self.streams.insert(body.stream, stream).is_some() {
                    return Err(Violation::in_use("stream", body.stream).into());
                }
            }
            Body::StreamDestroy(body) => {
                self.streams.remove(&body.stream).ok_or(Violation::unknown("stream", body.stream))?;
            }
            Body::EventCreate(body) if !self.events.insert(body.event) => {
                return Err(Violation::in_use("event", body.event).into());
            }
            Body::EventDestroy(body) => {
                if !self.events.remove(&body.event) {
                    return Err(Violation::unknown("event", body.event).into());
                }
                if self.queue.is_busy() {
                    self.queue.add(|order| order.forget(body.event))?;
                }
            }
            Body::ModuleUnload(body) => {
                let memory = self.modules.unload(body.module)?;
                self.free(Place::Between(true), memory, work.number)?;
            }
            _ => {}
        }
        self.report();
        Ok(())
    }

    /// Handles holds of streams and their releases.
    pub(super) fn hold(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::StreamHold(body) => {
                let stream = self.stream(body.stream)?;
                if !self.holds.insert(body.hold) {
                    return Err(Violation::in_use("hold", body.hold).into());
                }
                let task = Task::Hold(body.hold, body.mark);
                if self.is_overfull(1) {
                    self.runner.run(task, work.number);
                } else if let Some(job) = self.job(task, work.number) {
                    self.queue.add(|order| order.push(stream, job, true))?;
                }
            }
            Body::StreamRelease(body) => {
                if !self.holds.remove(&body.hold) {
                    return Err(Violation::unknown("hold", body.hold).into());
                }
                if !self.is_overfull(1) {
                    self.queue.release(body.hold);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
