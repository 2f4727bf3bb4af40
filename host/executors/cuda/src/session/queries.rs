//! Messages that are answered, and those that bring the image of a module.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_abi::CUresult;
use vgpu_device::{CodeRefusal, Quota, ReplyTo, SessionError, SessionHost, Violation, Work};
use vgpu_wire::Body;
use vgpu_wire::body::memory::{Address, MEM_MANAGED, MemInfoReply};
use vgpu_wire::body::module::{GlobalReply, ModuleData, ModuleOpenReply, OccupancyReply};
use zerocopy::IntoBytes;

use super::CudaSession;
use crate::driver::error::DriverError;
use crate::driver::sticky::loses_context;
use crate::gpu::code_memory::CodeMemory;
use crate::gpu::health::Health;
use crate::gpu::memory::{DeviceMemory, MemoryError};

/// Answer to a message about code.
type CodeResult<T> = Result<T, CodeRefusal>;

/// A request for memory that can be repeated after earlier work.
type MemoryQuery = Box<dyn Fn(&DeviceMemory) -> Result<Vec<u8>, MemoryError> + Send + Sync>;

/// Answers a message from another thread.
pub(super) struct Responder {
    host: SessionHost,
    health: Arc<Health>,
    to: ReplyTo,
    number: u64,
}

impl Responder {
    /// Answers with a record, or with the reason of a refusal. `task` names the request in the log.
    pub(super) fn answer<T: IntoBytes + zerocopy::Immutable>(&self, task: &str, answer: CodeResult<T>) {
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

/// Retries an allocation after all earlier work, which may use memory that the guest has freed. Dropping it
/// replies to the guest.
struct DeferredAlloc {
    host: SessionHost,
    health: Arc<Health>,
    memory: Arc<DeviceMemory>,
    to: ReplyTo,
    ask: MemoryQuery,
}

impl std::fmt::Debug for DeferredAlloc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeferredAlloc").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Drop for DeferredAlloc {
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

/// Refuses a request for memory. An out-of-memory refusal has no text, because programs expect it.
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
    /// Carries out a message that has an answer, and answers it.
    pub(super) fn answer_query(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
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
            Body::LinkOpen(_) | Body::LinkComplete(_) | Body::LinkRead(_) => self.answer_link(work),
            Body::MemInfo(_) => {
                let share = Quota::new(Arc::clone(&self.shared.account), Arc::clone(self.host.charges()));
                let (free, total) = DeviceMemory::info(&share);
                self.answer(work, CUresult::SUCCESS.0, MemInfoReply { free, total }.as_bytes());
                Ok(())
            }
            Body::MemAlloc(body) if body.flags & MEM_MANAGED != 0 => {
                self.refuse_unsupported(work, "managed memory");
                Ok(())
            }
            Body::MemAlloc(body) => self.answer_allocation(work, body.bytes),
            Body::MemAllocAsync(body) => {
                self.handles.check_stream(body.stream)?;
                self.answer_allocation(work, body.bytes)
            }
            Body::MemReserve(body) => {
                let body = *body;
                self.answer_memory(work, move |memory| {
                    Ok(Address { address: memory.reserve(&body)? }.as_bytes().to_vec())
                })
            }
            Body::MemCreate(body) => {
                let (handle, bytes) = (body.handle, body.bytes);
                if self.gpu.as_ref().is_some_and(|gpu| gpu.memory.has_handle(handle)) {
                    return Err(Violation::in_use("physical memory", handle).into());
                }
                self.answer_memory(work, move |memory| memory.create(handle, bytes).map(|()| Vec::new()))
            }
            _ => self.answer_code(work),
        }
    }

    fn answer_allocation(&mut self, work: &Work<'_>, bytes: u64) -> Result<(), SessionError> {
        if bytes == 0 {
            self.answer(work, CUresult::INVALID_VALUE.0, &[]);
            return Ok(());
        }
        self.answer_memory(work, move |memory| {
            Ok(Address { address: memory.allocate(bytes)? }.as_bytes().to_vec())
        })
    }

    /// Requests memory and answers. If there is none, the request is repeated after all earlier work, which
    /// may use memory that the guest has freed. The thread that reads the ring does not wait.
    fn answer_memory(
        &mut self,
        work: &Work<'_>,
        ask: impl Fn(&DeviceMemory) -> Result<Vec<u8>, MemoryError> + Send + Sync + 'static,
    ) -> Result<(), SessionError> {
        let (number, Some(to)) = (work.number, work.reply_to()) else { return Ok(()) };
        let (host, health) = (self.host.clone(), Arc::clone(&self.health));
        let Some(gpu) = self.start(number)? else {
            self.answer_without_context(work);
            return Ok(());
        };
        match ask(&gpu.memory) {
            Ok(data) => host.reply(to, CUresult::SUCCESS.0, &data),
            Err(error) if error.code() == CUresult::OUT_OF_MEMORY.0 => {
                let memory = Arc::clone(&gpu.memory);
                let later = DeferredAlloc { host, health, memory, to, ask: Box::new(ask) };
                let later = gpu.unmap_aside(later);
                let done = gpu.drop_after_all(number, later);
                self.report_failure(number, done);
            }
            Err(error) => {
                if let MemoryError::Driver(error) = &error
                    && error.loses_context()
                {
                    self.report_failure(number, Err(*error));
                }
                refuse(&host, to, &error);
            }
        }
        Ok(())
    }

    /// Answers messages about modules and their kernels.
    fn answer_code(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let charges = Arc::clone(self.host.charges());
        let tail = work.message.tail;
        match &work.message.body {
            Body::ModuleOpen(body) => {
                self.collect_loaded(body.module)?;
                let opened = match CodeMemory::charge(&self.shared, &self.host, body.bytes) {
                    Ok(memory) => self.code.open(&charges, body, memory)?,
                    Err(refusal) => Err(refusal),
                };
                let opened = opened.map(|()| ModuleOpenReply { known: 0, reserved: 0 });
                self.reply_code(work, opened);
            }
            Body::ModuleLoad(body) => {
                if self.start(work.number)?.is_none() {
                    self.answer_without_context(work);
                    return Ok(());
                }
                self.collect_loaded(body.module)?;
                self.load_module(work, body.module)?;
            }
            Body::FunctionGet(body) => {
                self.collect_loaded(body.module)?;
                let Some(context) = self.gpu.as_ref().map(|gpu| Arc::clone(&gpu.context)) else {
                    return Err(Violation::unknown("module", body.module).into());
                };
                let found = self.code.find_function(&charges, &context, body.module, body.function, tail)?;
                self.reply_code(work, found);
            }
            Body::FunctionSet(body) => {
                let done = self.code.kernel(body.function)?.set(body.attribute, body.value);
                self.report_failure(work.number, done);
            }
            Body::Occupancy(body) => {
                let kernel = self.code.kernel(body.function)?;
                let threads = i32::try_from(body.block_threads).unwrap_or(i32::MAX);
                let shared = usize::try_from(body.shared_bytes).unwrap_or(usize::MAX);
                let blocks = kernel.function.occupancy(threads, shared, body.flags);
                let reply = blocks.map(|blocks| OccupancyReply { blocks, reserved: 0 });
                self.reply_code(work, reply.map_err(CodeRefusal::from));
            }
            Body::GlobalGet(body) => {
                self.collect_loaded(body.module)?;
                let found = self.code.find_global(body.module, tail)?;
                if let (Ok(range), Some(gpu)) = (&found, &self.gpu) {
                    gpu.memory.add_global(*range, body.module);
                }
                let reply = found.map(|range| GlobalReply { address: range.address(), bytes: range.bytes() });
                self.reply_code(work, reply);
            }
            // Every kind has been handled above. A kind that the contract gains is refused until it is
            // handled.
            other => self.refuse_unsupported(work, other.kind().name()),
        }
        self.report_modules();
        Ok(())
    }

    /// Takes over modules that were loaded. Waits for `module` if it is being loaded.
    pub(super) fn collect_loaded(&mut self, module: u32) -> Result<(), Violation> {
        let Self { code, host, .. } = self;
        code.collect_loaded(module, || host.stopping())
    }

    /// Makes the loader load a module and answer the message.
    fn load_module(&mut self, work: &Work<'_>, module: u32) -> Result<(), SessionError> {
        let (Some(responder), Some(gpu)) = (self.responder(work), &mut self.gpu) else { return Ok(()) };
        let context = Arc::clone(&gpu.context);
        let loader = gpu.loader()?;
        let loading = self.code.start_loading(module)?;
        loader.enqueue_task(Box::new(move || {
            responder.answer("load a module", loading.load(&context));
        }));
        Ok(())
    }

    /// Returns the responder for a message, if the guest waits for an answer.
    pub(super) fn responder(&self, work: &Work<'_>) -> Option<Responder> {
        let to = work.reply_to()?;
        Some(Responder { host: self.host.clone(), health: Arc::clone(&self.health), to, number: work.number })
    }

    /// Answers with a record, or with the reason of a refusal. The refusal may lose the context.
    pub(super) fn reply_code<T: IntoBytes + zerocopy::Immutable>(
        &self,
        work: &Work<'_>,
        answer: CodeResult<T>,
    ) {
        let Some(to) = work.reply_to() else { return };
        match answer {
            Ok(record) => self.host.reply(to, CUresult::SUCCESS.0, record.as_bytes()),
            Err(refusal) => {
                let error = DriverError { call: "a call about code", code: CUresult(refusal.code) };
                if error.loses_context() {
                    self.report_failure(work.number, Err(error));
                }
                self.host.refuse(to, refusal.code, &refusal.why);
            }
        }
    }

    /// Updates the status report.
    pub(super) fn report_modules(&self) {
        self.host.gauges().modules.store(self.code.len(), Ordering::Relaxed);
    }

    /// Adds a piece of a module's image.
    fn module_data(&mut self, work: &Work<'_>, body: &ModuleData) -> Result<(), Violation> {
        self.host.take_data(&body.data, work.message.tail, |bytes, copy| {
            self.code.add_piece(body.module, body.offset, bytes, copy)
        })
    }
}
