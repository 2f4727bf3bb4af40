//! Translates a message of version 2 into calls of version 1.
//!
//! ```text
//!  this file ─► graphs
//!            ─► functions ─► modules
//!            ─► products, fill ─► copy ─► allocations
//!            ─► arena, spans
//! ```
//! Each of these owns what the host has of its kind for the session; all call it through [`Host`].

mod allocations;
mod arena;
pub(super) mod copy;
mod fill;
mod functions;
mod graphs;
mod modules;
mod numbered;
mod products;
mod spans;

use vgpu_wire::facts::HelloReply;
use vgpu_wire::v1::call::Op;
use vgpu_wire::{Body, Message, padded};
use zerocopy::IntoBytes;

use super::call::{Call, Failure};
use super::host::Host;
use super::returns::Returns;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED};
use allocations::Allocations;
use arena::Arena;
use functions::Functions;
use graphs::Graphs;
use modules::Modules;
use products::Products;

/// What a session has on a host of version 1, and how its messages are expressed there.
#[derive(Debug)]
pub(super) struct Translator {
    greeting: Box<HelloReply>,
    arena: Arena,
    allocations: Allocations,
    modules: Modules,
    functions: Functions,
    graphs: Graphs,
    products: Products,
}

impl Translator {
    /// A session that has nothing yet. `arena` is the part of the window that it hands out.
    pub(super) fn new(greeting: Box<HelloReply>, arena: std::ops::Range<u64>) -> Self {
        Self {
            greeting,
            arena: Arena::new(arena),
            allocations: Allocations::new(),
            modules: Modules::new(),
            functions: Functions::new(),
            graphs: Graphs::new(),
            products: Products::default(),
        }
    }

    /// Device memory of the session.
    pub(super) const fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    fn launch_graph(&mut self, host: Host<'_>, returns: &Returns, graph: u32) -> Result<(), Failure> {
        self.graphs.nodes(graph)?.iter().try_for_each(|node| {
            debug_assert_eq!(node.len() as u64, padded(node.len() as u64));
            let message = Message::decode(node).map_err(|_| Failure::Status(INVALID_VALUE))?;
            self.translate(host, returns, &message)
        })
    }

    /// Executes a message. When it returns, everything that the message asks for has completed.
    pub(super) fn translate(
        &mut self,
        host: Host<'_>,
        returns: &Returns,
        message: &Message<'_>,
    ) -> Result<(), Failure> {
        let answer = |data: &[u8]| {
            if let Some(slot) = message.body.reply() {
                returns.reply(slot, 0, data);
            }
        };
        let tail = message.tail;
        match &message.body {
            Body::Hello(_) => answer(self.greeting.as_bytes()),
            Body::Echo(body) => {
                host.plain(&Call::new(Op::CtxGetApiVersion, &[]).results(1))?;
                answer(body.cookie.as_bytes());
            }
            Body::WindowAlloc(body) => answer(self.arena.allocate(body)?.as_bytes()),
            Body::WindowFree(body) => self.arena.give_back(body.offset),
            Body::MemAlloc(body) => {
                answer(self.allocations.allocate(host, body.flags, body.bytes)?.as_bytes());
            }
            Body::MemAllocAsync(body) => answer(self.allocations.allocate(host, 0, body.bytes)?.as_bytes()),
            Body::MemFree(body) => self.allocations.free(host, body.address)?,
            Body::MemFreeAsync(body) => self.allocations.free(host, body.address)?,
            Body::MemInfo(_) => answer(allocations::info(host)?.as_bytes()),
            Body::CopyIn(body) => {
                let copied =
                    copy::upload(host, body.destination, spans::payload(returns, &body.source, tail)?);
                // Who waits for it learns of the error from the return area.
                returns.mark(body.read);
                copied?;
                // A stream whose copies have all been read from their sources is not waited for: no message
                // comes.
                host.rest()?;
            }
            Body::CopyOut(body) => {
                let (to, bytes) = spans::in_window(returns, &body.destination)?;
                // SAFETY: the range is one of the window, which the session that sent the message owns.
                let copied = unsafe { copy::download(host, &self.allocations, body.source, to, bytes) };
                returns.mark(body.written);
                copied?;
            }
            Body::CopyDevice(body) => copy::copy(host, body.destination, body.source, body.bytes)?,
            Body::CopyRows(body) => copy::copy_rows(host, body)?,
            Body::Fill(body) => fill::fill(host, body)?,
            Body::ModuleOpen(body) => answer(self.modules.open(body).as_bytes()),
            Body::ModuleData(body) => {
                let data = spans::private(returns, &body.data, tail)?;
                self.modules.data(body, &data)?;
            }
            Body::ModuleLoad(body) => {
                self.modules.load(host, body.module)?;
                answer(&[]);
            }
            Body::ModuleUnload(body) => {
                self.functions.forget(body.module);
                self.modules.unload(host, body.module)?;
            }
            Body::FunctionGet(body) => {
                answer(self.functions.introduce(host, &self.modules, body, tail)?.as_bytes());
            }
            Body::FunctionSet(body) => self.functions.set(host, body)?,
            Body::Occupancy(body) => {
                answer(self.functions.occupancy(&self.greeting.facts, body)?.as_bytes());
            }
            Body::GlobalGet(body) => answer(self.modules.global(host, body.module, tail)?.as_bytes()),
            Body::Launch(body) => self.functions.launch(host, body, tail)?,
            Body::Signal(body) => {
                // A synchronize waits for it.
                host.rest()?;
                returns.mark(body.mark);
            }
            Body::EventRecord(body) => returns.mark(body.mark),
            // All earlier work has completed: there is nothing to order, and only the guest knows streams and
            // events.
            Body::Pad(_)
            | Body::Join(_)
            | Body::StreamCreate(_)
            | Body::StreamDestroy(_)
            | Body::EventCreate(_)
            | Body::EventDestroy(_)
            | Body::StreamWait(_) => {}
            Body::GraphDefine(body) => {
                let records = spans::private(returns, &body.records, tail)?;
                self.graphs.define(body, &records)?;
            }
            Body::GraphUpdate(body) => {
                let records = spans::private(returns, &body.records, tail)?;
                self.graphs.update(body, &records)?;
            }
            Body::GraphLaunch(body) => self.launch_graph(host, returns, body.graph)?,
            Body::GraphDestroy(body) => self.graphs.destroy(body.graph),
            Body::Gemm(body) => self.products.gemm(host, &self.allocations, body)?,
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
            | Body::LinkClose(_) => return Err(Failure::Status(NOT_SUPPORTED)),
        }
        Ok(())
    }
}
