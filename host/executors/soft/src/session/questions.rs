//! Messages that need a reply, and those that carry the image of a module.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_device::{CodeRefusal, SessionError, Violation, Work};
use vgpu_wire::Body;
use vgpu_wire::area::reply_text;
use vgpu_wire::body::link::LinkData;
use vgpu_wire::body::memory::{Address, MEM_MANAGED, MemInfoReply, MemReserve};
use vgpu_wire::body::module::{GlobalReply, ModuleData, ModuleOpenReply, OccupancyReply};
use zerocopy::IntoBytes;

use super::{Place, SoftSession};
use crate::links;
use crate::memory::VirtualError;
use crate::modules;
use crate::runner::Runner;
use crate::status;
use crate::task::{DeferredReply, Task};

/// Reply to a message: its status and its data.
type Reply = (u32, Vec<u8>);

fn success(data: &[u8]) -> Reply {
    (status::SUCCESS, data.to_vec())
}

fn refused(code: u32) -> Reply {
    (code, Vec::new())
}

/// Makes the reply of a refusal, with the reason as text, which the guest shows.
fn refused_because(refusal: &CodeRefusal) -> Reply {
    (refusal.code, reply_text(&refusal.why).to_vec())
}

/// Allocates memory. The status report is updated before the reply is sent, so that it includes every address
/// that the guest knows.
fn allocate(runner: &Runner, bytes: u64) -> Reply {
    let allocated = runner.memory.allocate(bytes);
    runner.report();
    match allocated {
        Ok(address) => success(Address { address }.as_bytes()),
        Err(_) => refused(status::OUT_OF_MEMORY),
    }
}

fn create(runner: &Runner, handle: u32, bytes: u64) -> Result<Reply, Violation> {
    let created =
        runner.memory.with_virtual(|virtual_memory, _, share| virtual_memory.create(share, handle, bytes));
    runner.report();
    match created {
        Ok(true) => Ok(success(&[])),
        Ok(false) => Err(Violation::in_use("physical memory", handle)),
        Err(error) => Ok(refused(virtual_code(&error))),
    }
}

fn reserve(runner: &Runner, body: &MemReserve) -> Reply {
    match runner
        .memory
        .with_virtual(|virtual_memory, region, share| virtual_memory.reserve(region, share, body))
    {
        Ok(address) => success(Address { address }.as_bytes()),
        Err(error) => {
            let (session, code, why) = (runner.host.session(), virtual_code(&error), error.to_string());
            runner.host.log(0, || tracing::warn!(session, code, "refused: {why}"));
            refused_because(&CodeRefusal { code, why })
        }
    }
}

const fn virtual_code(error: &VirtualError) -> u32 {
    match error {
        VirtualError::OutOfMemory(_) | VirtualError::NoAddresses(_) | VirtualError::TooMany(_) => {
            status::OUT_OF_MEMORY
        }
        VirtualError::Invalid(_) | VirtualError::Arena(_) => status::INVALID_VALUE,
    }
}

fn info(runner: &Runner) -> Reply {
    let (free, total) = runner.memory.info();
    success(MemInfoReply { free, total }.as_bytes())
}

impl SoftSession {
    /// Carries out a message that needs a reply, and replies to it.
    pub(super) fn ask(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        if let Body::ModuleData(body) = &work.message.body {
            return Ok(self.module_data(work, body)?);
        }
        match &work.message.body {
            Body::LinkInput(body) => return Ok(self.links.input(body, work.message.tail)?),
            Body::LinkData(body) => return Ok(self.link_data(work, body)?),
            Body::LinkClose(body) => return Ok(self.links.close(body.link)?),
            _ => {}
        }
        if let Some(code) = self.runner.dead() {
            self.answer(work, code, &[]);
            return Ok(());
        }
        let (status, data) = match &work.message.body {
            Body::MemAlloc(body) if body.flags & MEM_MANAGED != 0 => refused(status::NOT_SUPPORTED),
            Body::MemAlloc(body) => return self.allocate(work, body.bytes),
            Body::MemAllocAsync(body) => {
                self.handles.check_stream(body.stream)?;
                return self.allocate(work, body.bytes);
            }
            // The reply must count memory as free that was freed earlier.
            Body::MemInfo(_) if self.is_freeing() => return self.answer_later(work, info),
            Body::MemInfo(_) => info(&self.runner),
            Body::MemReserve(body) => {
                let reply = reserve(&self.runner, body);
                if reply.0 == status::OUT_OF_MEMORY && self.queue.is_busy() {
                    // A reservation that was freed earlier may still be queued.
                    let body = *body;
                    return self.answer_later(work, move |runner| reserve(runner, &body));
                }
                reply
            }
            Body::MemCreate(body) => {
                let reply = create(&self.runner, body.handle, body.bytes)?;
                if reply.0 == status::OUT_OF_MEMORY && self.queue.is_busy() {
                    let body = *body;
                    // The handle was not in use just now, and only this thread makes handles.
                    return self.answer_later(work, move |runner| {
                        create(runner, body.handle, body.bytes).unwrap_or(refused(status::INVALID_VALUE))
                    });
                }
                reply
            }
            _ => self.ask_modules(work)?,
        };
        self.answer(work, status, &data);
        Ok(())
    }

    /// Returns whether frees are queued, so that memory figures are not final.
    fn is_freeing(&self) -> bool {
        self.frees.load(Ordering::Relaxed) != 0
    }

    fn allocate(&mut self, work: &Work<'_>, bytes: u64) -> Result<(), SessionError> {
        if bytes == 0 {
            self.answer(work, status::INVALID_VALUE, &[]);
            return Ok(());
        }
        let (status, data) = allocate(&self.runner, bytes);
        if status == status::OUT_OF_MEMORY && self.queue.is_busy() {
            // Queued work may still use memory that was freed earlier.
            return self.answer_later(work, move |runner| allocate(runner, bytes));
        }
        self.answer(work, status, &data);
        Ok(())
    }

    /// Replies when all queued work is completed, without blocking the thread that reads the ring. After a
    /// sticky error the reply is that error, and `ask` is not called.
    fn answer_later(
        &mut self,
        work: &Work<'_>,
        ask: impl FnOnce(&Runner) -> Reply + Send + 'static,
    ) -> Result<(), SessionError> {
        let Some(to) = work.reply_to() else { return Ok(()) };
        let runner = Arc::clone(&self.runner);
        let answer = move || {
            let (status, data) = runner.dead().map_or_else(|| ask(&runner), refused);
            runner.host.reply(to, status, &data);
        };
        self.give(Place::After(None), Task::Answer(DeferredReply(Box::new(answer))), work.number)
    }

    /// Returns the reply to a message about modules, functions or links.
    fn ask_modules(&mut self, work: &Work<'_>) -> Result<Reply, Violation> {
        let runner = &self.runner;
        let reply = match &work.message.body {
            Body::ModuleOpen(body) => match modules::open(&mut self.modules, runner, body)? {
                Ok(known) => success(ModuleOpenReply { known: known.into(), reserved: 0 }.as_bytes()),
                Err(refusal) => refused_because(&refusal),
            },
            Body::ModuleLoad(body) => match modules::load(&mut self.modules, runner, body.module)? {
                Ok(()) => success(&[]),
                Err(refusal) => refused_because(&refusal),
            },
            Body::FunctionGet(body) => {
                let (module, number, name) = (body.module, body.function, work.message.tail);
                match modules::find_function(&mut self.modules, runner, module, number, name)? {
                    Ok(function) => success(function.attributes().as_bytes()),
                    Err(refusal) => refused_because(&refusal),
                }
            }
            Body::FunctionSet(body) => {
                if let Err(code) = self.modules.function(body.function)?.set(body, &runner.device.limits) {
                    runner.fail(work.number, code, false);
                }
                return Ok(refused(status::SUCCESS));
            }
            Body::Occupancy(body) => {
                let function = self.modules.function(body.function)?;
                if body.block_threads == 0 {
                    return Ok(refused(status::INVALID_VALUE));
                }
                let limits = &runner.device.limits;
                let blocks = function.occupancy(body.block_threads, body.shared_bytes, limits);
                success(OccupancyReply { blocks, reserved: 0 }.as_bytes())
            }
            Body::GlobalGet(body) => {
                match modules::find_global(&self.modules, body.module, work.message.tail)? {
                    Some((address, bytes)) => success(GlobalReply { address, bytes }.as_bytes()),
                    None => refused(status::NOT_FOUND),
                }
            }
            Body::LinkOpen(body) => match links::open(&mut self.links, runner, body)? {
                Ok(()) => success(&[]),
                Err(refusal) => refused_because(&refusal),
            },
            Body::LinkComplete(body) => match links::complete(&mut self.links, runner, body.link)? {
                Ok(reply) => success(reply.as_bytes()),
                Err(refusal) => refused_because(&refusal),
            },
            Body::LinkRead(body) => success(self.links.read(body.link, body.offset)?),
            // Every kind has been handled above. A kind that the contract gains is refused until it is
            // handled.
            _ => refused(status::NOT_SUPPORTED),
        };
        self.report();
        Ok(reply)
    }

    /// Receives a piece of the image of a module.
    fn module_data(&mut self, work: &Work<'_>, body: &ModuleData) -> Result<(), Violation> {
        self.host.take_data(&body.data, work.message.tail, |bytes, copy| {
            self.modules.add_piece(body.module, body.offset, bytes, copy)
        })
    }

    /// Receives a piece of an input of a link.
    fn link_data(&mut self, work: &Work<'_>, body: &LinkData) -> Result<(), Violation> {
        self.host.take_data(&body.data, work.message.tail, |bytes, copy| {
            self.links.data(body.link, body.offset, bytes, copy)
        })
    }
}
