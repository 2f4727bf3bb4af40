//! Translates a message of version 2 into calls of version 1.

mod arena;
mod copy;
mod gemm;
mod graph;
mod memory;
mod module;
mod numbered;

use std::ptr::NonNull;

use vgpu_wire::body::session::{WindowAlloc, WindowAllocReply};
use vgpu_wire::facts::{DeviceFacts, HelloReply};
use vgpu_wire::v1::call::Op;
use vgpu_wire::{Body, Message, SEGMENT_BAR, SEGMENT_INLINE, Span};
use zerocopy::{FromZeros, IntoBytes};

use crate::session_error::SessionError;

use super::call::{Call, Failure, Payload, Results};
use super::mailbox::Mailbox;
use super::returns::Returns;
use arena::Arena;
use module::{Function, Module};
use numbered::Numbered;

/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_INVALID_HANDLE`.
const INVALID_HANDLE: u32 = 400;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 801;

/// What a session has on a host of version 1, and how its messages are expressed there.
#[derive(Debug)]
pub(super) struct Translator {
    token: u32,
    greeting: Box<HelloReply>,
    arena: Arena,
    /// Start and length of allocations.
    allocations: Numbered<u64, u64>,
    /// Modules by the numbers that the guest minted.
    modules: Numbered<u32, Module>,
    functions: Numbered<u32, Function>,
    /// Messages of graphs, in an order in which they can be executed.
    graphs: Numbered<u32, Vec<Vec<u8>>>,
    /// The host's cuBLAS handle, made when the first product needs it.
    cublas: Option<u64>,
}

/// What executing a message needs.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) mailbox: &'a Mailbox,
    pub(super) returns: &'a Returns,
}

impl Translator {
    pub(super) fn new(token: u32, greeting: Box<HelloReply>, arena: std::ops::Range<u64>) -> Self {
        Self {
            token,
            greeting,
            arena: Arena::new(arena),
            allocations: Numbered::new(),
            modules: Numbered::new(),
            functions: Numbered::new(),
            graphs: Numbered::new(),
            cublas: None,
        }
    }

    /// The program may do nothing for a while: see [`Mailbox::rest`].
    pub(super) fn rest(&self, means: Means<'_>) -> Result<(), Failure> {
        means.mailbox.rest(self.token)
    }

    fn facts(&self) -> &DeviceFacts {
        &self.greeting.facts
    }

    /// Makes a call whose payload is a slice.
    fn plain(&self, means: Means<'_>, call: &Call<'_>) -> Result<Results, Failure> {
        means.mailbox.plain(Some(self.token), call)
    }

    /// Executes a message. When it returns, everything that the message asks for has completed.
    pub(super) fn translate(&mut self, means: Means<'_>, message: &Message<'_>) -> Result<(), Failure> {
        let Means { returns, .. } = means;
        let answer = |data: &[u8]| {
            if let Some(slot) = message.body.reply() {
                returns.reply(slot, 0, data);
            }
        };
        let tail = message.tail;
        match &message.body {
            Body::Hello(_) => answer(self.greeting.as_bytes()),
            Body::Echo(body) => {
                self.plain(means, &Call::new(Op::CtxGetApiVersion, &[]).results(1))?;
                answer(body.cookie.as_bytes());
            }
            Body::WindowAlloc(body) => answer(self.window(body)?.as_bytes()),
            Body::WindowFree(body) => self.arena.give_back(body.offset),
            Body::MemAlloc(body) => answer(self.allocate(means, body.flags, body.bytes)?.as_bytes()),
            Body::MemAllocAsync(body) => answer(self.allocate(means, 0, body.bytes)?.as_bytes()),
            Body::MemFree(body) => self.free(means, body.address)?,
            Body::MemFreeAsync(body) => self.free(means, body.address)?,
            Body::MemInfo(_) => answer(self.memory_info(means)?.as_bytes()),
            Body::CopyIn(body) => {
                let copied = self.upload(means, body.destination, self.source(means, &body.source, tail)?);
                // Who waits for it learns of the error from the return area.
                returns.mark(body.read);
                copied?;
                // A stream whose copies have all been read from their sources is not waited for: no message
                // comes.
                self.rest(means)?;
            }
            Body::CopyOut(body) => {
                let (to, bytes) = place(means, &body.destination)?;
                // SAFETY: the range is one of the window, which the session that sent the message owns.
                let copied = unsafe { self.download(means, body.source, to, bytes) };
                returns.mark(body.written);
                copied?;
            }
            Body::CopyDevice(body) => self.copy(means, body.destination, body.source, body.bytes)?,
            Body::CopyRows(body) => self.copy_rows(means, body)?,
            Body::Fill(body) => self.fill(means, body)?,
            Body::ModuleOpen(body) => answer(self.module_open(body).as_bytes()),
            Body::ModuleData(body) => {
                let data = self.private(means, &body.data, tail)?;
                self.module_data(body, &data)?;
            }
            Body::ModuleLoad(body) => {
                self.module_load(means, body.module)?;
                answer(&[]);
            }
            Body::ModuleUnload(body) => self.module_unload(means, body.module)?,
            Body::FunctionGet(body) => answer(self.function_get(means, body, tail)?.as_bytes()),
            Body::FunctionSet(body) => self.function_set(means, body)?,
            Body::Occupancy(body) => answer(self.occupancy(body)?.as_bytes()),
            Body::GlobalGet(body) => answer(self.global_get(means, body.module, tail)?.as_bytes()),
            Body::Launch(body) => self.launch(means, body, tail)?,
            Body::Signal(body) => {
                // A synchronize waits for it.
                self.rest(means)?;
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
                let records = self.private(means, &body.records, tail)?;
                self.graph_define(body, &records)?;
            }
            Body::GraphUpdate(body) => {
                let records = self.private(means, &body.records, tail)?;
                self.graph_update(body, &records)?;
            }
            Body::GraphLaunch(body) => self.graph_launch(means, body.graph)?,
            Body::GraphDestroy(body) => drop(self.graphs.remove(body.graph)),
            Body::Gemm(body) => self.gemm(means, body)?,
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
            | Body::TriangularSolve(_) => return Err(Failure::Status(NOT_SUPPORTED)),
        }
        Ok(())
    }

    fn window(&mut self, body: &WindowAlloc) -> Result<WindowAllocReply, Failure> {
        let (offset, bytes) = self.arena.take(body.bytes).ok_or(Failure::Status(OUT_OF_MEMORY))?;
        let mut reply = WindowAllocReply::new_zeroed();
        reply.offset = offset;
        reply.bytes = bytes;
        Ok(reply)
    }

    /// The bytes of a span, wherever they lie.
    #[allow(clippy::unused_self, reason = "a method beside `private`, which reads as its sibling")]
    fn source<'a>(&self, means: Means<'_>, span: &Span, tail: &'a [u8]) -> Result<Payload<'a>, Failure> {
        if span.segment == SEGMENT_INLINE {
            return Ok(Payload::Bytes(tail));
        }
        let (start, bytes) = place(means, span)?;
        Ok(Payload::Memory(start.as_ptr(), bytes))
    }

    /// The bytes of a span, in private memory.
    fn private(&self, means: Means<'_>, span: &Span, tail: &[u8]) -> Result<Vec<u8>, Failure> {
        match self.source(means, span, tail)? {
            Payload::Bytes(bytes) => Ok(bytes.to_vec()),
            Payload::Memory(_, bytes) => {
                let mut data = vec![0; bytes];
                means.returns.window().get(span.offset, &mut data);
                Ok(data)
            }
        }
    }
}

/// Where a span of the window lies in this process.
fn place(means: Means<'_>, span: &Span) -> Result<(NonNull<u8>, usize), Failure> {
    let wrong = Failure::Lost(SessionError::Misuse { what: "a span that is not in the window" });
    if span.segment != SEGMENT_BAR {
        return Err(wrong);
    }
    let start = means.returns.window().pointer(span.offset, span.bytes).ok_or(wrong)?;
    Ok((start, span.bytes as usize))
}
