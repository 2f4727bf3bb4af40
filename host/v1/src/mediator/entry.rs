//! The mediator's record of an owner. It is found by its key and executes one call at a time. Its status can
//! be read, and it can be ended, without waiting for that call.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::machines::MachineId;
use super::owner::Owner;
use vgpu_device::{SessionHost, SessionStatus, lock};

/// Identifies the owner of the objects that a call creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnerKey {
    /// A process of a machine, identified by the token that the device sends.
    Process { machine: MachineId, owner: u32 },
    /// A connection, for calls without a token. This owner ends with the connection.
    Connection { machine: MachineId, connection: u64 },
}

impl OwnerKey {
    /// Returns the machine of the owner.
    pub(super) const fn machine(&self) -> MachineId {
        match *self {
            Self::Process { machine, .. } | Self::Connection { machine, .. } => machine,
        }
    }
}

/// The figures of an owner that its status reports, as of the start or end of its last call.
#[derive(Debug, Default)]
pub(super) struct OwnerFigures {
    /// Whether a call that needs a context has been made.
    pub(super) context: bool,
    /// Number of calls of each operation, by its name.
    calls: BTreeMap<&'static str, u64>,
    call_count: u64,
    /// Number of completed calls, which excludes the call in progress.
    done: u64,
    allocated: u64,
    pub(super) allocations: usize,
    streams: usize,
    events: usize,
    modules: usize,
    bytes_in: u64,
    bytes_out: u64,
}

/// An owner with its session, tables and figures.
pub(super) struct OwnerEntry {
    pub(super) key: OwnerKey,
    pub(super) host: SessionHost,
    /// Locked while a call is executed. `None` before the session is opened and after the owner has ended.
    pub(super) owner: Mutex<Option<Owner>>,
    pub(super) figures: Mutex<OwnerFigures>,
    freed: Mutex<bool>,
    was_freed: Condvar,
}

impl OwnerEntry {
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

    /// Stops the owner's running work at its next poll, and wakes a call that waits for it.
    pub(super) fn stop(&self) {
        self.host.stop();
        self.host.wake();
    }

    /// Records that everything the owner had is freed, and wakes those that wait for it.
    pub(super) fn set_freed(&self) {
        *lock(&self.freed) = true;
        self.was_freed.notify_all();
    }

    /// Waits until everything is freed, for at most `limit`, so that work that cannot be stopped does not
    /// block the caller.
    pub(super) fn wait_until_freed(&self, limit: Duration) {
        let freed = lock(&self.freed);
        // The outcome does not matter to the caller: the owner can no longer be found by its key.
        let _ = self.was_freed.wait_timeout_while(freed, limit, |freed| !*freed);
    }

    /// Records the start of a call of the operation `name`.
    pub(super) fn begin(&self, name: &'static str, needs_context: bool) {
        let mut figures = lock(&self.figures);
        figures.context |= needs_context;
        *figures.calls.entry(name).or_default() += 1;
        figures.call_count += 1;
    }

    /// Records the end of a call, and what the owner has now.
    pub(super) fn note(&self, owner: &Owner) {
        let mut figures = lock(&self.figures);
        figures.done = figures.call_count;
        figures.allocated = owner.allocations.bytes();
        figures.allocations = owner.allocations.len();
        figures.streams = owner.streams.len();
        figures.events = owner.events.len();
        figures.modules = owner.modules.len() + owner.library_modules.len();
        figures.bytes_in = owner.bytes_in;
        figures.bytes_out = owner.bytes_out;
    }

    /// Returns the status that the control socket reports. The token stands in the place of a process id, and
    /// the machine in that of a channel.
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
            busy_us: self.host.gauges().busy_us(),
            contexts: 0,
            window_bytes: 0,
            page_bytes: 0,
            streams: count(figures.streams),
            events: count(figures.events),
            modules: count(figures.modules),
            worker: None,
            messages: figures.call_count,
            done: figures.done,
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
