//! What happens to one message: number and content are checked, what concerns the session itself is
//! answered here, the rest goes to the executor's session.

use std::sync::Arc;

use vgpu_wire::body::session::WindowAllocReply;
use vgpu_wire::facts::{DeviceFacts, HelloReply};
use vgpu_wire::{Body, FLAG_JOIN, Kind, Message, SEGMENT_INLINE, Span};
use zerocopy::IntoBytes;

use crate::check::{self, Checks};
use crate::executor::{Session, SessionError, Work};
use crate::graph::{Graphs, PAYLOAD_MAX};
use crate::host::SessionHost;
use crate::pages::Refused;
use crate::violation::Violation;

/// `CUresult` values that the device itself answers.
mod status {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const INVALID_VALUE: u32 = 1;
    pub(super) const OUT_OF_MEMORY: u32 = 2;
    pub(super) const NOT_PERMITTED: u32 = 800;
    pub(super) const NOT_SUPPORTED: u32 = 801;
}

/// What Hello is answered with, besides the session's number.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) generation: u32,
    pub(crate) window_bytes: u64,
    /// The device takes guest pages.
    pub(crate) pages: bool,
    pub(crate) facts: Box<DeviceFacts>,
}

/// A session's messages meet their checks and their executor here.
pub(crate) struct Pump {
    host: SessionHost,
    greeting: Arc<Greeting>,
    session: Box<dyn Session>,
    checks: Checks,
    graphs: Graphs,
    /// Private copy of a graph's payload, kept for its capacity.
    payload: Vec<u8>,
    /// Messages taken from the ring.
    number: u64,
    /// The kind of the newest message, once its header is known to name one.
    kind: Option<Kind>,
}

impl Pump {
    pub(crate) fn new(host: SessionHost, greeting: Arc<Greeting>, session: Box<dyn Session>) -> Self {
        Self {
            host,
            greeting,
            session,
            checks: Checks::new(),
            graphs: Graphs::default(),
            payload: Vec::new(),
            number: 0,
            kind: None,
        }
    }

    /// How many messages have been taken.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The kind of the newest message, for a log line.
    pub(crate) const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// How many messages may be carried out before that is published.
    pub(crate) fn batch(&self) -> u32 {
        self.session.batch()
    }

    /// Carries out the message that `bytes`, private memory, hold.
    pub(crate) fn carry(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.number += 1;
        self.kind = None;
        let message = Message::decode(bytes).map_err(Violation::from)?;
        let kind = message.body.kind();
        self.kind = Some(kind);
        let expected = self.number as u32;
        if message.header.number != expected {
            return Err(Violation::Number { expected, found: message.header.number }.into());
        }
        if (kind == Kind::Hello) != (self.number == 1) {
            return Err(Violation::Hello.into());
        }
        self.checks.message(&self.host, &message.body)?;
        self.host.counters().tally.count(&message);
        if message.header.flags & FLAG_JOIN != 0 {
            self.session.join(message.header.join)?;
        }
        let work = Work { number: self.number, message, payload: message.tail, bytes };
        match &message.body {
            Body::GraphDefine(_) | Body::GraphUpdate(_) => self.carry_graph(&work),
            Body::GraphLaunch(body) => {
                self.graphs.known(body.graph)?;
                self.session.execute(&work)
            }
            Body::GraphDestroy(body) => {
                self.graphs.destroy(body.graph)?;
                self.session.execute(&work)
            }
            Body::Join(body) => self.session.join(body.stream),
            Body::Pad(_)
            | Body::Hello(_)
            | Body::Echo(_)
            | Body::WindowAlloc(_)
            | Body::WindowFree(_)
            | Body::PagesRegister(_)
            | Body::PagesUnregister(_) => self.carry_own(&work),
            _ => self.session.execute(&work),
        }
    }

    /// The kinds that concern the session itself.
    fn carry_own(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let reply = |status, data: &[u8]| {
            if let Some(to) = work.reply_to() {
                self.host.reply(to, status, data);
            }
        };
        match &work.message.body {
            Body::Hello(_) => reply(status::SUCCESS, self.hello().as_bytes()),
            Body::Echo(body) => reply(status::SUCCESS, body.cookie.as_bytes()),
            Body::WindowAlloc(body) if body.bytes == 0 => reply(status::INVALID_VALUE, &[]),
            Body::WindowAlloc(body) => {
                if let Some((offset, bytes)) = self.host.take_window(body.bytes) {
                    reply(status::SUCCESS, WindowAllocReply { offset, bytes }.as_bytes());
                } else {
                    reply(status::OUT_OF_MEMORY, &[]);
                }
            }
            Body::WindowFree(body) => {
                let retired = self.host.retire_window(body.offset)?;
                self.session.retire(retired);
            }
            Body::PagesRegister(body) => {
                // Looked at before all else: what is no list never is.
                let runs = body.runs(work.message.tail).map_err(Violation::from)?;
                if !self.greeting.pages {
                    reply(status::NOT_SUPPORTED, &[]);
                } else if !self.host.may_register() {
                    reply(status::NOT_PERMITTED, &[]);
                } else {
                    let registered = self.host.register_pages(body.segment, runs)?;
                    let status = registered.map_or_else(
                        |refused| match refused {
                            Refused::Pages => status::INVALID_VALUE,
                            Refused::Many => status::OUT_OF_MEMORY,
                        },
                        |()| status::SUCCESS,
                    );
                    reply(status, &[]);
                }
            }
            Body::PagesUnregister(body) => {
                if let Some(to) = work.reply_to() {
                    let retired = self.host.retire_pages(body.segment, to)?;
                    self.session.retire(retired);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn hello(&self) -> HelloReply {
        HelloReply {
            session: self.host.session(),
            generation: self.greeting.generation,
            window_bytes: self.greeting.window_bytes,
            facts: *self.greeting.facts,
        }
    }

    fn carry_graph(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let records = match &work.message.body {
            Body::GraphDefine(body) => body.records,
            Body::GraphUpdate(body) => body.records,
            _ => return Ok(()),
        };
        let payload = if records.segment == SEGMENT_INLINE {
            work.message.tail
        } else {
            self.fetch(&records)?;
            &self.payload
        };
        let host = &self.host;
        let node = |body: &Body| check::node(host, body);
        match &work.message.body {
            Body::GraphDefine(body) => self.graphs.define(body.graph, body.nodes, payload, node)?,
            Body::GraphUpdate(body) => self.graphs.update(body.graph, body.nodes, payload, node)?,
            _ => {}
        }
        self.session.execute(&Work { payload, ..*work })
    }

    /// Copies records out of the window: what is checked must be what is used.
    fn fetch(&mut self, span: &Span) -> Result<(), Violation> {
        if span.bytes > PAYLOAD_MAX {
            return Err(Violation::Field { field: "the payload's size", value: span.bytes });
        }
        let piece = self.host.piece(span)?;
        self.payload.resize(span.bytes as usize, 0);
        self.host.slice(&piece).copy_to(&mut self.payload);
        Ok(())
    }
}
