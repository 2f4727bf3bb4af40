//! An owner as the mediator holds it: found by its key, worked for by one call at a time, told of to whoever
//! asks while a call takes long, and ended without waiting for that call.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::machines::Machine;
use super::owner::Owner;
use crate::session::host::SessionHost;
use crate::status::SessionStatus;
use crate::sync::lock;

/// Who owns what a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnerKey {
    /// A process of a machine, by its token as the device writes it.
    Process { machine: Machine, owner: u32 },
    /// Whoever said no token, by the connection: it ends with that.
    Connection { machine: Machine, connection: u64 },
}

impl OwnerKey {
    /// Whose it is.
    pub(super) const fn machine(&self) -> Machine {
        match *self {
            Self::Process { machine, .. } | Self::Connection { machine, .. } => machine,
        }
    }
}

/// What is reported of an owner, as it was when its last call began or ended.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// A call has been made that needs a context.
    pub(super) context: bool,
    /// Calls by their names.
    calls: BTreeMap<&'static str, u64>,
    call_count: u64,
    allocated: u64,
    pub(super) allocations: usize,
    streams: usize,
    events: usize,
    modules: usize,
    bytes_in: u64,
    bytes_out: u64,
}

/// One owner: its session, its tables while a call uses them, and its figures.
pub(super) struct Entry {
    pub(super) key: OwnerKey,
    pub(super) host: SessionHost,
    /// Locked while a call is carried out. `None`: its session is not opened yet, or it has ended.
    pub(super) owner: Mutex<Option<Owner>>,
    pub(super) figures: Mutex<Figures>,
    freed: Mutex<bool>,
    was_freed: Condvar,
}

impl Entry {
    pub(super) fn new(key: OwnerKey, host: SessionHost) -> Self {
        Self {
            key,
            host,
            owner: Mutex::new(None),
            figures: Mutex::default(),
            freed: Mutex::new(false),
            was_freed: Condvar::new(),
        }
    }

    /// Ends work that is being done for the owner, as far as it looks whether it is to go on.
    pub(super) fn stop(&self) {
        self.host.stop();
        self.host.wake();
    }

    /// All that it had is free again.
    pub(super) fn set_freed(&self) {
        *lock(&self.freed) = true;
        self.was_freed.notify_all();
    }

    /// Waits until all is free again, for at most `limit`: work that cannot be stopped keeps nobody who only
    /// wants to be rid of it.
    pub(super) fn wait_until_freed(&self, limit: Duration) {
        let freed = lock(&self.freed);
        // Whether it is by now makes no difference to anybody: what is found by its key is gone.
        let _ = self.was_freed.wait_timeout_while(freed, limit, |freed| !*freed);
    }

    /// A call begins.
    pub(super) fn begin(&self, name: &'static str, needs_context: bool) {
        let mut figures = lock(&self.figures);
        figures.context |= needs_context;
        *figures.calls.entry(name).or_default() += 1;
        figures.call_count += 1;
    }

    /// It is over.
    pub(super) fn note(&self, owner: &Owner) {
        let mut figures = lock(&self.figures);
        figures.allocated = owner.allocations.bytes();
        figures.allocations = owner.allocations.len();
        figures.streams = owner.streams.len();
        figures.events = owner.events.len();
        figures.modules = owner.modules.len() + owner.library_modules.len();
        figures.bytes_in = owner.bytes_in;
        figures.bytes_out = owner.bytes_out;
    }

    /// As the control socket reports it: the process is its token, the channel its machine.
    pub(super) fn status(&self) -> SessionStatus {
        let (channel, process) = match self.key {
            OwnerKey::Process { machine, owner } => (machine.vm, owner & vgpu_wire::v1::TOKEN_MASK),
            OwnerKey::Connection { machine, .. } => (machine.vm, 0),
        };
        let figures = lock(&self.figures);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        SessionStatus {
            channel,
            session: self.host.session(),
            process,
            state: if figures.context { "attached" } else { "no context" }.to_owned(),
            allocated: figures.allocated,
            allocations: count(figures.allocations),
            charged_bytes: self.host.charges().bytes(),
            window_bytes: 0,
            page_bytes: 0,
            streams: count(figures.streams),
            events: count(figures.events),
            modules: count(figures.modules),
            messages: figures.call_count,
            done: figures.call_count,
            host_sleeps: 0,
            unread: 0,
            kinds: figures.calls.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            joins: 0,
            waits: figures.call_count,
            bytes_in: figures.bytes_in,
            bytes_out: figures.bytes_out,
            doorbells: figures.call_count,
        }
    }
}
