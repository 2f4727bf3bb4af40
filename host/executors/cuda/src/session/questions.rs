//! Messages that are answered, and those that bring the image of a module.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_abi::CUresult;
use vgpu_device::{CodeRefusal, ReplyTo, SessionError, SessionHost, Share, Violation, Work};
use vgpu_wire::Body;
use vgpu_wire::body::memory::{Address, MEM_MANAGED, MemInfoReply};
use vgpu_wire::body::module::{GlobalReply, ModuleData, ModuleOpenReply, OccupancyReply};
use zerocopy::IntoBytes;

use super::CudaSession;
use crate::driver::error::DriverError;
use crate::driver::sticky::loses_context;
use crate::gpu::health::Health;
use crate::gpu::memory::{Memory, MemoryError};

/// What an answer says.
type Answer<T> = Result<T, CodeRefusal>;

/// What is asked of memory when earlier work is complete.
type Ask = Box<dyn Fn(&Memory) -> Result<Vec<u8>, MemoryError> + Send + Sync>;

/// Who waits for an answer that another thread gives.
pub(super) struct Asker {
    host: SessionHost,
    health: Arc<Health>,
    to: ReplyTo,
    number: u64,
}

impl Asker {
    /// Answers with a record, or with why there is none. `task`: what was refused, for the log.
    pub(super) fn answer<T: IntoBytes + zerocopy::Immutable>(&self, task: &str, answer: Answer<T>) {
        let CodeRefusal { code, why } = match answer {
            Ok(record) => return self.host.reply(self.to, CUresult::SUCCESS.0, record.as_bytes()),
            Err(refusal) => refusal,
        };
        let (session, number) = (self.host.session(), self.number);
        self.host.log(why.len(), || tracing::warn!(session, number, code, "{task}: {why}"));
        if loses_context(CUresult(code)) {
            self.health.refused(number, CUresult(code), &why);
        }
        self.host.refuse(self.to, code, &why);
    }
}

/// A question about memory that is asked again, and answered, when nothing has a share of this any more: what
/// earlier work used has been freed by then.
struct Later {
    host: SessionHost,
    health: Arc<Health>,
    memory: Arc<Memory>,
    to: ReplyTo,
    ask: Ask,
}

impl std::fmt::Debug for Later {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Later").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        if let Some(code) = self.health.dead() {
            return self.host.reply(self.to, code, &[]);
        }
        match (self.ask)(&self.memory) {
            Ok(data) => self.host.reply(self.to, CUresult::SUCCESS.0, &data),
            Err(error) => refuse(&self.host, self.to, &error),
        }
    }
}

/// Refuses what was asked of memory. That there is none left needs no words: the guest's program expects it.
fn refuse(host: &SessionHost, to: ReplyTo, error: &MemoryError) {
    let code = error.code();
    if let MemoryError::OutOfMemory(_) = error {
        return host.reply(to, code, &[]);
    }
    let (session, why) = (host.session(), error.to_string());
    host.log(why.len(), || tracing::warn!(session, code, "refused: {why}"));
    host.refuse(to, code, &why);
}

impl CudaSession {
    /// Answers a message.
    pub(super) fn ask(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Body::ModuleData(body) = &work.message.body {
            return Ok(self.module_data(work, body)?);
        }
        if let Body::LinkInput(_) | Body::LinkData(_) | Body::LinkClose(_) = &work.message.body {
            return Ok(self.link_input(work)?);
        }
        if let Some(code) = self.health.dead() {
            self.answer(work, code, &[]);
            return Ok(());
        }
        match &work.message.body {
            Body::LinkOpen(_) | Body::LinkComplete(_) | Body::LinkRead(_) => self.link(work),
            Body::MemInfo(_) => {
                let share = Share::new(Arc::clone(&self.shared.account), Arc::clone(self.host.charges()));
                let (free, total) = Memory::info(&share);
                self.answer(work, CUresult::SUCCESS.0, MemInfoReply { free, total }.as_bytes());
                Ok(())
            }
            Body::MemAlloc(body) if body.flags & MEM_MANAGED != 0 => {
                self.lack(work, "managed memory");
                Ok(())
            }
            Body::MemAlloc(body) => self.allocate(work, body.bytes),
            Body::MemAllocAsync(body) => {
                self.handles.check_stream(body.stream)?;
                self.allocate(work, body.bytes)
            }
            Body::MemReserve(body) => {
                let body = *body;
                self.ask_memory(work, move |memory| {
                    Ok(Address { address: memory.reserve(&body)? }.as_bytes().to_vec())
                })
            }
            Body::MemCreate(body) => {
                let (handle, bytes) = (body.handle, body.bytes);
                if self.part.as_ref().is_some_and(|part| part.memory.has_handle(handle)) {
                    return Err(Violation::in_use("physical memory", handle).into());
                }
                self.ask_memory(work, move |memory| memory.create(handle, bytes).map(|()| Vec::new()))
            }
            _ => self.ask_code(work),
        }
    }

    fn allocate(&mut self, work: &Work<'_>, bytes: u64) -> Result<(), SessionError> {
        if bytes == 0 {
            self.answer(work, CUresult::INVALID_VALUE.0, &[]);
            return Ok(());
        }
        self.ask_memory(work, move |memory| {
            Ok(Address { address: memory.allocate(bytes)? }.as_bytes().to_vec())
        })
    }

    /// Asks for memory. Where there is none, asks again when all earlier work is complete, since that may use
    /// memory that the guest has freed; the thread that reads the ring goes on.
    fn ask_memory(
        &mut self,
        work: &Work<'_>,
        ask: impl Fn(&Memory) -> Result<Vec<u8>, MemoryError> + Send + Sync + 'static,
    ) -> Result<(), SessionError> {
        let (number, Some(to)) = (work.number, work.reply_to()) else { return Ok(()) };
        let (host, health) = (self.host.clone(), Arc::clone(&self.health));
        let Some(part) = self.start(number)? else {
            self.answer_without_context(work);
            return Ok(());
        };
        match ask(&part.memory) {
            Ok(data) => host.reply(to, CUresult::SUCCESS.0, &data),
            Err(error) if error.code() == CUresult::OUT_OF_MEMORY.0 => {
                let memory = Arc::clone(&part.memory);
                let later = Later { host, health, memory, to, ask: Box::new(ask) };
                let done = part.after_all(number, later);
                self.told(number, done);
            }
            Err(error) => {
                if let MemoryError::Driver(error) = &error
                    && error.loses_context()
                {
                    self.told(number, Err(*error));
                }
                refuse(&host, to, &error);
            }
        }
        Ok(())
    }

    /// Answers messages about modules and their kernels.
    fn ask_code(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let charges = Arc::clone(self.host.charges());
        let tail = work.message.tail;
        match &work.message.body {
            Body::ModuleOpen(body) => {
                self.collect_loaded(body.module)?;
                let opened = self.code.open(&charges, body)?;
                self.say(work, opened.map(|()| ModuleOpenReply { known: 0, reserved: 0 }));
            }
            Body::ModuleLoad(body) => {
                if self.start(work.number)?.is_none() {
                    self.answer_without_context(work);
                    return Ok(());
                }
                self.collect_loaded(body.module)?;
                self.load(work, body.module)?;
            }
            Body::FunctionGet(body) => {
                self.collect_loaded(body.module)?;
                let Some(context) = self.part.as_ref().map(|part| Arc::clone(&part.context)) else {
                    return Err(Violation::unknown("module", body.module).into());
                };
                let found = self.code.find_function(&charges, &context, body.module, body.function, tail)?;
                self.say(work, found);
            }
            Body::FunctionSet(body) => {
                let done = self.code.kernel(body.function)?.set(body.attribute, body.value);
                self.told(work.number, done);
            }
            Body::Occupancy(body) => {
                let kernel = self.code.kernel(body.function)?;
                let threads = i32::try_from(body.block_threads).unwrap_or(i32::MAX);
                let shared = usize::try_from(body.shared_bytes).unwrap_or(usize::MAX);
                let blocks = kernel.function.occupancy(threads, shared, body.flags);
                let reply = blocks.map(|blocks| OccupancyReply { blocks, reserved: 0 });
                self.say(work, reply.map_err(CodeRefusal::from));
            }
            Body::GlobalGet(body) => {
                self.collect_loaded(body.module)?;
                let found = self.code.find_global(body.module, tail)?;
                if let (Ok(range), Some(part)) = (&found, &self.part) {
                    part.memory.add_global(*range, body.module);
                }
                let reply = found.map(|range| GlobalReply { address: range.address(), bytes: range.bytes() });
                self.say(work, reply);
            }
            // Every kind has been handled above. A kind that the contract gains is refused until it is
            // handled.
            other => self.lack(work, other.kind().name()),
        }
        self.report_modules();
        Ok(())
    }

    /// Takes over the modules that have been loaded, `module` among them.
    pub(super) fn collect_loaded(&mut self, module: u32) -> Result<(), Violation> {
        let Self { code, host, .. } = self;
        code.collect_loaded(module, || host.stopping())
    }

    /// Has a module loaded, and the message answered, by another thread.
    fn load(&mut self, work: &Work<'_>, module: u32) -> Result<(), SessionError> {
        let (Some(asker), Some(part)) = (self.asker(work), &mut self.part) else { return Ok(()) };
        let context = Arc::clone(&part.context);
        let loader = part.loader()?;
        let loading = self.code.start_loading(module)?;
        loader.give(Box::new(move || {
            asker.answer("load a module", loading.load(&context));
        }));
        Ok(())
    }

    /// Who waits for an answer, if anybody does.
    pub(super) fn asker(&self, work: &Work<'_>) -> Option<Asker> {
        let to = work.reply_to()?;
        Some(Asker { host: self.host.clone(), health: Arc::clone(&self.health), to, number: work.number })
    }

    /// Answers with a record, or with why there is none. A fault shows itself here too.
    pub(super) fn say<T: IntoBytes + zerocopy::Immutable>(&self, work: &Work<'_>, answer: Answer<T>) {
        let Some(to) = work.reply_to() else { return };
        match answer {
            Ok(record) => self.host.reply(to, CUresult::SUCCESS.0, record.as_bytes()),
            Err(refusal) => {
                let error = DriverError { call: "a call about code", code: CUresult(refusal.code) };
                if error.loses_context() {
                    self.told(work.number, Err(error));
                }
                self.host.refuse(to, refusal.code, &refusal.why);
            }
        }
    }

    /// Brings the status report up to date.
    pub(super) fn report_modules(&self) {
        self.host.gauges().modules.store(self.code.len(), Ordering::Relaxed);
    }

    /// Takes a piece of the image of a module.
    fn module_data(&mut self, work: &Work<'_>, body: &ModuleData) -> Result<(), Violation> {
        self.host.take_data(&body.data, work.message.tail, |bytes, copy| {
            self.code.add_piece(body.module, body.offset, bytes, copy)
        })
    }
}
