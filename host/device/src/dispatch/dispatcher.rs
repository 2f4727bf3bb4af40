//! Dispatch of a message. Its number and content are checked, messages that concern the session itself are
//! answered here, and all others are passed to the executor's session.

use std::sync::Arc;

use vgpu_wire::body::session::WindowAllocReply;
use vgpu_wire::facts::{DeviceFacts, HelloReply, exec};
use vgpu_wire::{Body, DecodeError, FLAG_JOIN, Kind, Message, SEGMENT_INLINE, Span};
use zerocopy::IntoBytes;

use crate::charges::charge::{Charge, OUT_OF_MEMORY};
use crate::charges::limits::Resource;
use crate::dispatch::check::{self, Checks};
use crate::dispatch::graph::{GraphError, Graphs, PAYLOAD_MAX};
use crate::dispatch::handles::Handles;
use crate::dispatch::refusals::Refusals;
use crate::executor::{Progress, Session, SessionError, Work};
use crate::memory::pages::PagesRefused;
use crate::session::host::SessionHost;
use crate::session::memory::WindowRequest;
use crate::session::remote::SharedRange;
use crate::session::violation::Violation;

/// Values of `CUresult` with which the device itself answers.
mod status {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const INVALID_VALUE: u32 = 1;
    pub(super) const NOT_PERMITTED: u32 = 800;
    pub(super) const NOT_SUPPORTED: u32 = 801;
}

/// Checks that a device with these abilities accepts messages of a kind. A kind of an extension that the
/// device did not announce is unknown, as it is to an older device.
fn announced(abilities: u32, kind: Kind) -> Result<(), Violation> {
    match kind.ability() {
        Some(bit) if abilities & bit == 0 => Err(DecodeError::Kind(kind as u16).into()),
        _ => Ok(()),
    }
}

/// The parts of the answer to Hello that do not depend on the session.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) generation: u32,
    pub(crate) window_bytes: u64,
    /// Whether the device accepts guest pages.
    pub(crate) pages: bool,
    pub(crate) facts: Box<DeviceFacts>,
}

/// Checks the messages of one session and passes them to its executor.
pub(crate) struct Dispatcher {
    host: SessionHost,
    greeting: Arc<Greeting>,
    session: Box<dyn Session>,
    checks: Checks,
    handles: Handles,
    graphs: Graphs,
    refusals: Refusals,
    /// Number of the newest message.
    number: u64,
    /// The kind of the newest message, once its header is known to name one.
    kind: Option<Kind>,
    /// The newest message, if a pause of the device came before it was carried out.
    pending: Option<Box<[u8]>>,
    /// Records of the pending message, if it defines or updates a graph and its records came outside of the
    /// message.
    records: Option<Records>,
}

/// Records of a graph that were copied out of the window, with the charge for the copy.
type Records = (Vec<u8>, Charge);

mod saved;

impl Dispatcher {
    pub(crate) fn new(host: SessionHost, greeting: Arc<Greeting>, session: Box<dyn Session>) -> Self {
        Self {
            handles: Handles::new(Arc::clone(host.charges())),
            graphs: Graphs::new(Arc::clone(host.charges())),
            refusals: Refusals::new(host.clone()),
            host,
            greeting,
            session,
            checks: Checks::new(),
            number: 0,
            kind: None,
            pending: None,
            records: None,
        }
    }

    /// Returns the number of the newest message, which is how many there have been.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the kind of the newest message, for log lines.
    pub(crate) const fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Returns the number of messages that may be carried out before the guest is told of progress.
    pub(crate) fn batch(&self) -> u32 {
        self.session.batch()
    }

    /// Submits deferred work by [`Session::progress`]. Returns the number of messages that the guest may be
    /// told are carried out, without the pending one.
    pub(crate) fn progress(&mut self) -> Progress {
        self.session.progress(self.number - u64::from(self.pending.is_some()))
    }

    /// Asks the executor to tell the session's host when all work so far is complete.
    pub(crate) fn settle(&mut self) -> Result<(), SessionError> {
        if self.session.settle(self.number)? {
            self.host.report_complete(self.number);
        }
        Ok(())
    }

    /// Checks and carries out the message that `bytes` hold. They are in private memory.
    pub(crate) fn dispatch(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
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
        announced(self.greeting.facts.abilities, kind)?;
        self.checks.message(&self.host, &message.body)?;
        self.host.counters().stats.count(&message);
        let work = Work { number: self.number, message, payload: message.tail, bytes };
        let carried = self.dispatch_checked(&work);
        self.conclude(&work, carried)
    }

    /// Carries out the message that a pause of the device has kept, if there is one. It was checked before.
    pub(crate) fn dispatch_pending(&mut self) -> Result<(), SessionError> {
        let Some(bytes) = self.pending.take() else { return Ok(()) };
        let records = self.records.take();
        let message = Message::decode(&bytes).map_err(Violation::from)?;
        let payload = records.as_ref().map_or(message.tail, |records| &records.0);
        let work = Work { number: self.number, message, payload, bytes: &bytes };
        let carried = match &work.message.body {
            Body::WindowAlloc(_) => self.answer_own(&work),
            _ => self.session.execute(&work),
        };
        let carried = carried.inspect(|()| self.handles.end(&work.message.body));
        let concluded = self.conclude(&work, carried);
        if matches!(concluded, Err(SessionError::Paused)) {
            self.records = records;
        }
        concluded
    }

    /// Refuses a message that was not carried out, or keeps it if the device is paused.
    fn conclude(&mut self, work: &Work<'_>, carried: Result<(), SessionError>) -> Result<(), SessionError> {
        let Err(error) = carried else { return Ok(()) };
        if matches!(error, SessionError::Paused) {
            self.pending = Some(work.bytes.into());
            return Err(error);
        }
        let (code, why) = self.refusals.judge(work, error)?;
        self.refuse(work, code, &why)?;
        if let (Body::GraphDefine(body), OUT_OF_MEMORY) = (&work.message.body, code) {
            self.graphs.destroy(body.graph)?;
        }
        Ok(())
    }

    /// Refuses a message. The session continues without the object that the message would have made.
    fn refuse(&mut self, work: &Work<'_>, code: u32, why: &str) -> Result<(), SessionError> {
        self.handles.refuse(&work.message.body);
        self.refusals.excuse_users(&work.message.body);
        if !self.session.refuse_in_order(work, code, why)? {
            self.refusals.refuse(work, code, why);
        }
        Ok(())
    }

    fn dispatch_checked(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let header = &work.message.header;
        if header.flags & FLAG_JOIN != 0 {
            self.session.join(header.join)?;
        }
        if let Err(over) = self.handles.make(&work.message.body) {
            return self.refuse(work, OUT_OF_MEMORY, &over.to_string());
        }
        match &work.message.body {
            Body::GraphDefine(_) | Body::GraphUpdate(_) => self.dispatch_graph(work),
            Body::GraphLaunch(body) => {
                self.host.counters().stats.count_graph(self.graphs.work(body.graph)?);
                self.session.execute(work)
            }
            Body::GraphDestroy(body) => {
                self.graphs.destroy(body.graph)?;
                self.session.execute(work)
            }
            Body::Join(body) => self.session.join(body.stream),
            Body::Pad(_)
            | Body::Hello(_)
            | Body::Echo(_)
            | Body::WindowAlloc(_)
            | Body::WindowFree(_)
            | Body::PagesRegister(_)
            | Body::PagesUnregister(_) => self.answer_own(work),
            _ => self.session.execute(work),
        }?;
        self.handles.end(&work.message.body);
        Ok(())
    }

    /// Carries out a message that concerns the session itself.
    fn answer_own(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let reply = |status, data: &[u8]| {
            if let Some(to) = work.reply_to() {
                self.host.answer(to, status, data);
            }
        };
        match &work.message.body {
            Body::Hello(_) => reply(status::SUCCESS, self.hello().as_bytes()),
            Body::Echo(body) => reply(status::SUCCESS, body.cookie.as_bytes()),
            Body::WindowAlloc(body) if body.bytes == 0 => reply(status::INVALID_VALUE, &[]),
            Body::WindowAlloc(body) => {
                match self.host.memory().allocate_window(body.bytes, || self.host.pausing()) {
                    WindowRequest::Allocated(offset, bytes) => {
                        self.session.granted(SharedRange::Window { offset, bytes })?;
                        reply(status::SUCCESS, WindowAllocReply { offset, bytes }.as_bytes());
                    }
                    WindowRequest::NoRoom => reply(OUT_OF_MEMORY, &[]),
                    WindowRequest::Paused => return Err(SessionError::Paused),
                }
            }
            Body::WindowFree(body) => {
                let retired = self.host.retire_window(body.offset)?;
                self.session.retire(retired);
            }
            Body::PagesRegister(body) => {
                // Checked first, because an invalid list stays invalid.
                let runs = body.runs(work.message.tail).map_err(Violation::from)?;
                if !self.greeting.pages {
                    reply(status::NOT_SUPPORTED, &[]);
                } else if !self.host.memory().may_register() {
                    reply(status::NOT_PERMITTED, &[]);
                } else {
                    let registered = self.host.memory().register_pages(body.segment, runs)?;
                    if registered.is_ok() {
                        self.session.granted(SharedRange::Pages { segment: body.segment })?;
                    }
                    let status = registered.map_or_else(
                        |refused| match refused {
                            PagesRefused::Pages => status::INVALID_VALUE,
                            PagesRefused::Many => OUT_OF_MEMORY,
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

    fn dispatch_graph(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        let records = match &work.message.body {
            Body::GraphDefine(body) => body.records,
            Body::GraphUpdate(body) => body.records,
            _ => return Ok(()),
        };
        if records.segment == SEGMENT_INLINE {
            return self.dispatch_records(work, work.message.tail);
        }
        match self.fetch(&records)? {
            Ok((payload, charge)) => {
                let carried = self.dispatch_records(work, &payload);
                if matches!(carried, Err(SessionError::Paused)) {
                    self.records = Some((payload, charge));
                }
                carried
            }
            Err(why) => self.refuse(work, OUT_OF_MEMORY, &why.to_string()),
        }
    }

    fn dispatch_records(&mut self, work: &Work<'_>, payload: &[u8]) -> Result<(), SessionError> {
        let host = &self.host;
        let abilities = self.greeting.facts.abilities;
        let node = |body: &Body| {
            announced(abilities, body.kind())?;
            check::node(host, body)
        };
        let checked = match &work.message.body {
            Body::GraphDefine(body) => {
                let edges = abilities & exec::EDGES != 0;
                self.graphs.define(body.graph, body.nodes, payload, edges, node)
            }
            Body::GraphUpdate(body) => {
                self.graphs.update(body.graph, body.nodes, payload, node).map_err(GraphError::from)
            }
            _ => Ok(()),
        };
        match checked {
            Ok(()) => self.session.execute(&Work { payload, ..*work }),
            Err(GraphError::Violation(violation)) => Err(violation.into()),
            Err(why) => self.refuse(work, OUT_OF_MEMORY, &why.to_string()),
        }
    }

    /// Copies records out of the window, because the bytes that are checked must be the ones that are used.
    /// Returns the charge for the copy too.
    fn fetch(&self, span: &Span) -> Result<Result<(Vec<u8>, Charge), GraphError>, Violation> {
        if span.bytes > PAYLOAD_MAX {
            return Err(Violation::Field { field: "the payload's size", value: span.bytes });
        }
        let piece = self.host.piece(span)?;
        let charge = match self.host.charges().charge(Resource::HostBytes, span.bytes) {
            Ok(charge) => charge,
            Err(over) => return Ok(Err(over.into())),
        };
        let mut payload = Vec::new();
        if payload.try_reserve_exact(span.bytes as usize).is_err() {
            return Ok(Err(GraphError::NoMemory));
        }
        payload.resize(span.bytes as usize, 0);
        self.host.slice(&piece).copy_to(&mut payload);
        Ok(Ok((payload, charge)))
    }
}
