//! Translates a message of version 2 into calls of version 1.
//!
//! ```text
//!  this file ─► graphs
//!            ─► functions ─► modules
//!            ─► gemm, fill ─► copy ─► allocations
//!            ─► window_arena, spans
//! ```
//! Each of these tracks the host's objects of its kind for the session. All call the host through
//! [`HostSession`].

mod allocations;
pub(super) mod copy;
mod fill;
mod functions;
mod gemm;
mod graphs;
mod modules;
mod numbered;
mod spans;
mod window_arena;

use vgpu_wire::facts::HelloReply;
use vgpu_wire::v1::call::Op;
use vgpu_wire::{Body, Message, padded};
use zerocopy::IntoBytes;

use crate::call::{Call, CallError};
use crate::host_session::HostSession;
use crate::return_area::ReturnArea;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED};
use allocations::Allocations;
use functions::FunctionTable;
use gemm::Gemms;
use graphs::GraphTable;
use modules::ModuleTable;
use window_arena::WindowArena;

/// The objects of a session on a host of version 1. It translates the session's messages into calls.
#[derive(Debug)]
pub(super) struct Translator {
    greeting: Box<HelloReply>,
    arena: WindowArena,
    allocations: Allocations,
    modules: ModuleTable,
    functions: FunctionTable,
    graphs: GraphTable,
    gemms: Gemms,
}

impl Translator {
    /// Creates the translator of a new session. `arena` is the range of the window for allocations.
    pub(super) fn new(greeting: Box<HelloReply>, arena: std::ops::Range<u64>) -> Self {
        Self {
            greeting,
            arena: WindowArena::new(arena),
            allocations: Allocations::new(),
            modules: ModuleTable::new(),
            functions: FunctionTable::new(),
            graphs: GraphTable::new(),
            gemms: Gemms::default(),
        }
    }

    /// Returns the device memory of the session.
    pub(super) const fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    fn launch_graph(
        &mut self,
        host: HostSession<'_>,
        returns: &ReturnArea,
        graph: u32,
    ) -> Result<(), CallError> {
        self.graphs.nodes(graph)?.iter().try_for_each(|node| {
            debug_assert_eq!(node.len() as u64, padded(node.len() as u64));
            let message = Message::decode(node).map_err(|_| CallError::Status(INVALID_VALUE))?;
            self.translate(host, returns, &message)
        })
    }

    /// Executes a message. When it returns, everything that the message asks for has completed.
    pub(super) fn translate(
        &mut self,
        host: HostSession<'_>,
        returns: &ReturnArea,
        message: &Message<'_>,
    ) -> Result<(), CallError> {
        let answer = |data: &[u8]| {
            if let Some(slot) = message.body.reply() {
                returns.reply(slot, 0, data);
            }
        };
        let tail = message.tail;
        match &message.body {
            Body::Hello(_) => answer(self.greeting.as_bytes()),
            Body::Echo(body) => {
                host.call_plain(&Call::new(Op::CtxGetApiVersion, &[]).with_results(1))?;
                answer(body.cookie.as_bytes());
            }
            Body::WindowAlloc(body) => answer(self.arena.allocate(body)?.as_bytes()),
            Body::WindowFree(body) => self.arena.free(body.offset),
            Body::MemAlloc(body) => {
                answer(self.allocations.allocate(host, body.flags, body.bytes)?.as_bytes());
            }
            Body::MemAllocAsync(body) => answer(self.allocations.allocate(host, 0, body.bytes)?.as_bytes()),
            Body::MemFree(body) => self.allocations.free(host, body.address)?,
            Body::MemFreeAsync(body) => self.allocations.free(host, body.address)?,
            Body::MemInfo(_) => answer(allocations::memory_info(host)?.as_bytes()),
            Body::CopyIn(body) => {
                let copied =
                    copy::upload(host, body.destination, spans::payload(returns, &body.source, tail)?);
                // The mark is set after a failure too. The error is reported in the return area.
                returns.mark(body.read);
                copied?;
                // A program that synchronizes after this copy sends no further message.
                host.release_window_while_idle()?;
            }
            Body::CopyOut(body) => {
                let (to, bytes) = spans::in_window(returns, &body.destination)?;
                // SAFETY: the range is one of the window, which the session that sent the message owns.
                let copied = unsafe { copy::download(host, &self.allocations, body.source, to, bytes) };
                returns.mark(body.written);
                copied?;
            }
            Body::CopyDevice(body) => copy::copy_within(host, body.destination, body.source, body.bytes)?,
            Body::CopyRows(body) => copy::copy_rows(host, body)?,
            Body::Fill(body) => fill::fill(host, body)?,
            Body::ModuleOpen(body) => answer(self.modules.open(body).as_bytes()),
            Body::ModuleData(body) => {
                let data = spans::to_private(returns, &body.data, tail)?;
                self.modules.data(body, &data)?;
            }
            Body::ModuleLoad(body) => {
                self.modules.load(host, body.module)?;
                answer(&[]);
            }
            Body::ModuleUnload(body) => {
                self.functions.forget_module(body.module);
                self.modules.unload(host, body.module)?;
            }
            Body::FunctionGet(body) => {
                answer(self.functions.resolve(host, &self.modules, body, tail)?.as_bytes());
            }
            Body::FunctionSet(body) => self.functions.set_attribute(host, body)?,
            Body::Occupancy(body) => {
                answer(self.functions.occupancy(&self.greeting.facts, body)?.as_bytes());
            }
            Body::GlobalGet(body) => answer(self.modules.global(host, body.module, tail)?.as_bytes()),
            Body::Launch(body) => self.functions.launch(host, body, tail)?,
            Body::Signal(body) => {
                // The program may wait for the mark.
                host.release_window_while_idle()?;
                returns.mark(body.mark);
            }
            Body::EventRecord(body) => returns.mark(body.mark),
            // All earlier work has completed, so nothing needs to be ordered. The host does not know streams
            // and events.
            Body::Pad(_)
            | Body::Join(_)
            | Body::StreamCreate(_)
            | Body::StreamDestroy(_)
            | Body::EventCreate(_)
            | Body::EventDestroy(_)
            | Body::StreamWait(_) => {}
            Body::GraphDefine(body) => {
                let records = spans::to_private(returns, &body.records, tail)?;
                self.graphs.define(body, &records)?;
            }
            Body::GraphUpdate(body) => {
                let records = spans::to_private(returns, &body.records, tail)?;
                self.graphs.update(body, &records)?;
            }
            Body::GraphLaunch(body) => self.launch_graph(host, returns, body.graph)?,
            Body::GraphDestroy(body) => self.graphs.destroy(body.graph),
            Body::Gemm(body) => self.gemms.gemm(host, &self.allocations, body)?,
            Body::PagesRegister(_)
            | Body::PagesUnregister(_)
            | Body::MemReserve(_)
            | Body::MemUnreserve(_)
            | Body::MemCreate(_)
            | Body::MemRelease(_)
            | Body::MemMap(_)
            | Body::MemUnmap(_)
            | Body::MemSetAccess(_)
            | Body::StreamHold(_)
            | Body::StreamRelease(_)
            | Body::TriangularSolve(_)
            | Body::MatmulLt(_)
            | Body::VectorOp(_)
            | Body::LinkOpen(_)
            | Body::LinkInput(_)
            | Body::LinkData(_)
            | Body::LinkComplete(_)
            | Body::LinkRead(_)
            | Body::LinkClose(_) => return Err(CallError::Status(NOT_SUPPORTED)),
        }
        Ok(())
    }
}
