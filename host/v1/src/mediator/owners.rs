//! All owners. Each is created by its first call. Only callers that an owner's end concerns wait for it.
//!
//! ```text
//!   table (locked for a moment) ─► entry ─► owner (locked while a call is carried out)
//!      │
//!      └ machines: connections, owners, until when
//! ```
//! Ending an owner removes its entry from the table and tells its session to stop. A separate thread waits
//! for a call in progress, frees the owner's objects, and returns its area.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use vgpu_device::{SessionStatus, lock, threads};
use vgpu_wire::v1::ARGS;
use vgpu_wire::v1::call::{OWNERS_MAX, Op, Treatment};
use vgpu_wire::v1::frame::Call;

use super::calls::{do_call, needs_context};
use super::core::{Core, OWNERS_OF_ALL};
use super::entry::{OwnerEntry, OwnerKey};
use super::machines::{MachineId, Machines};
use super::owner::Owner;
use super::request::{Reply, Request};
use super::status;

/// Time for which a call that ends an owner of its own machine waits until everything is freed.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The owners of all machines of a mediator. It may be used by several threads at once.
pub(super) struct Owners {
    pub(super) core: Core,
    table: Mutex<OwnerTable>,
    /// Condition that is notified when a machine's last connection has ended, or the mediator stops.
    news: Condvar,
}

struct OwnerTable {
    known: HashMap<OwnerKey, Arc<OwnerEntry>>,
    /// Areas of the window that no owner uses.
    areas: Vec<u32>,
    sessions: u32,
    machines: Machines,
    /// Whether a thread watches the machines without a connection.
    watched: bool,
    stopped: bool,
}

impl Owners {
    pub(super) fn new(core: Core, grace: Duration) -> Arc<Self> {
        let table = OwnerTable {
            known: HashMap::new(),
            areas: (0..OWNERS_OF_ALL).rev().collect(),
            sessions: 0,
            machines: Machines::new(grace, OWNERS_MAX),
            watched: false,
            stopped: false,
        };
        Arc::new(Self { core, table: Mutex::new(table), news: Condvar::new() })
    }

    /// Counts a connection of a machine.
    pub(super) fn connected(&self, machine: MachineId) {
        lock(&self.table).machines.connected(machine);
    }

    /// Handles the end of a connection. Objects that it created without a token are freed at once. The
    /// machine's owners end after the grace time, unless it reconnects.
    pub(super) fn disconnected(self: &Arc<Self>, machine: MachineId, number: u64) {
        let of_connection =
            |key: &OwnerKey| matches!(key, OwnerKey::Connection { connection, .. } if *connection == number);
        let (ended, watch) = {
            let mut table = lock(&self.table);
            table.machines.disconnected(machine, Instant::now());
            let waits = table.machines.next().is_some() && !table.stopped;
            let watch = waits && !table.watched;
            table.watched |= waits;
            (table.find(of_connection), watch)
        };
        self.news.notify_all();
        for entry in &ended {
            self.end(entry);
        }
        if watch {
            let own = Arc::clone(self);
            if let Err(error) = threads::spawn("machines", move || own.end_the_gone()) {
                lock(&self.table).watched = false;
                tracing::warn!("start a thread that ends the owners of disconnected machines: {error}");
            }
        }
    }

    /// Ends the owners of machines that do not reconnect in time, until no such machine is left. This is the
    /// body of a thread.
    fn end_the_gone(self: &Arc<Self>) {
        let mut table = lock(&self.table);
        loop {
            let now = Instant::now();
            let gone = table.machines.due(now);
            if !gone.is_empty() {
                let left = table.find(|key| gone.contains(&key.machine()));
                drop(table);
                for entry in &left {
                    tracing::info!(key = ?entry.key, "owner ends: its machine did not reconnect");
                    self.end(entry);
                }
                table = lock(&self.table);
                continue;
            }
            let next = table.machines.next().filter(|_| !table.stopped);
            let Some(next) = next else {
                table.watched = false;
                return;
            };
            let left = next.saturating_duration_since(now);
            let waited = self.news.wait_timeout(table, left);
            table = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    /// Returns whether a machine has an owner.
    pub(super) fn has_owners(&self, machine: MachineId) -> bool {
        lock(&self.table).machines.owns(machine)
    }

    /// Returns the status of each owner, ordered by machine and token.
    pub(super) fn status(&self) -> Vec<SessionStatus> {
        let entries = lock(&self.table).find(|_| true);
        let mut all: Vec<SessionStatus> = entries.iter().map(|entry| entry.status()).collect();
        all.sort_by_key(|owner| (owner.channel, owner.process));
        all
    }

    /// Ends all owners, without waiting for any. No owner can be created afterwards.
    pub(super) fn stop(self: &Arc<Self>) {
        let all = {
            let mut table = lock(&self.table);
            table.stopped = true;
            table.find(|_| true)
        };
        self.news.notify_all();
        for entry in &all {
            self.end(entry);
        }
    }

    /// Executes a call on the session of its owner, which its first call opens. Waits for an earlier call of
    /// the same owner. The error is the `CUresult` that the guest gets.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        key: OwnerKey,
        wanted: &dyn Fn() -> bool,
        call: &Call,
        data: &[u8],
    ) -> Result<Reply, u32> {
        let op = Op::try_from(call.op.get());
        if op == Ok(Op::ProcessCleanup) {
            self.clean_up(key);
            return Ok(Reply::NONE);
        }
        let entry = self.entry(key, wanted)?;
        let mut owner = lock(&entry.owner);
        if entry.host.stopping() {
            // The owner was ended meanwhile and has no session any more.
            return Err(status::UNKNOWN);
        }
        if owner.is_none() {
            match self.core.open(&entry.host) {
                Ok(port) => *owner = Some(Owner::new(port)),
                Err(code) => {
                    drop(owner);
                    self.end_at_once(&entry);
                    return Err(code);
                }
            }
        }
        let op = op.map_err(|_| status::NOT_SUPPORTED)?;
        let Some(worked_for) = owner.as_mut() else { return Err(status::OUT_OF_MEMORY) };
        entry.begin(op.name(), op.treatment() == Treatment::Done && needs_context(op));
        let mut args = [0; ARGS];
        let num_args = call.num_args.get() as usize;
        // Only the stated arguments count. The frame has room for more.
        args[..num_args].copy_from_slice(&call.args()[..num_args]);
        let request = Request { op, args, num_args, data };
        let done = match op.treatment() {
            Treatment::Refused => Err(status::NOT_SUPPORTED),
            Treatment::Ignored => Ok(Reply::NONE),
            // A panic is a bug of this program. It ends the owner, not the host.
            Treatment::Done => catch_unwind(AssertUnwindSafe(|| do_call(&self.core, worked_for, &request)))
                .unwrap_or_else(|_| {
                    tracing::error!(?key, op = op.name(), "a call panicked, and its owner ends");
                    worked_for.port.lose();
                    Err(status::UNKNOWN)
                }),
        };
        worked_for.port.release_slot();
        entry.note(worked_for);
        let lost = worked_for.port.is_dead();
        drop(owner);
        if lost {
            // The session is lost, as a process's context would be: none of the owner's objects exists any
            // more, and its next call starts with a new session.
            tracing::warn!(?key, op = op.name(), "the owner's session is lost, with all its objects");
            self.end_at_once(&entry);
        }
        done
    }

    /// Returns the owner of a key, and creates it for its first call. Fails if the call is no longer
    /// `wanted`, if the machine has too many owners, or if the mediator is stopped.
    fn entry(&self, key: OwnerKey, wanted: &dyn Fn() -> bool) -> Result<Arc<OwnerEntry>, u32> {
        let mut table = lock(&self.table);
        if !wanted() {
            return Err(status::UNKNOWN);
        }
        if let Some(entry) = table.known.get(&key) {
            return Ok(Arc::clone(entry));
        }
        if table.stopped || table.areas.is_empty() || !table.machines.add_owner(key.machine()) {
            return Err(status::OUT_OF_MEMORY);
        }
        let area = table.areas.pop().ok_or(status::OUT_OF_MEMORY)?;
        table.sessions += 1;
        let entry = Arc::new(OwnerEntry::new(key, self.core.sessions.host(area, table.sessions)));
        table.known.insert(key, Arc::clone(&entry));
        Ok(entry)
    }

    /// Carries out `PROCESS_CLEANUP`: ends the owner if one of its calls needed a context, or if it has no
    /// memory. Otherwise it frees everything but memory (Q11).
    fn clean_up(self: &Arc<Self>, key: OwnerKey) {
        let Some(entry) = lock(&self.table).known.get(&key).map(Arc::clone) else { return };
        let whole = {
            let figures = lock(&entry.figures);
            figures.context || figures.allocations == 0
        };
        // An owner whose call is in progress can only be ended as a whole.
        let Some(mut owner) = entry.owner.try_lock().ok().filter(|_| !whole) else {
            return self.end_at_once(&entry);
        };
        if let Some(owner) = owner.as_mut() {
            owner.pieces = None;
            owner.cublas.retain(|_, _| false);
            tracing::warn!(
                ?key,
                bytes = owner.allocations.bytes(),
                "a cleanup leaves memory behind: its owner has no context"
            );
        }
    }

    /// Ends an owner of the caller's machine. Everything is freed when this returns, unless that takes longer
    /// than [`END_PATIENCE`].
    fn end_at_once(self: &Arc<Self>, entry: &Arc<OwnerEntry>) {
        self.end(entry);
        entry.wait_until_freed(END_PATIENCE);
    }

    /// Ends an owner: removes it from the table, stops its work, and lets a thread free its objects. Does not
    /// wait.
    fn end(self: &Arc<Self>, entry: &Arc<OwnerEntry>) {
        {
            let mut table = lock(&self.table);
            let known = table.known.get(&entry.key).is_some_and(|known| Arc::ptr_eq(known, entry));
            if !known {
                // Another thread is ending it already.
                return;
            }
            table.known.remove(&entry.key);
        }
        entry.stop();
        let (own, ended) = (Arc::clone(self), Arc::clone(entry));
        let freeing = threads::spawn("owner-ends", move || own.free(&ended));
        if let Err(error) = freeing {
            tracing::warn!("start a thread that ends an owner: {error}");
            self.free(entry);
        }
    }

    /// Frees the objects of an ended owner, once its call has returned, and returns its area.
    fn free(&self, entry: &OwnerEntry) {
        drop(lock(&entry.owner).take());
        let area = entry.host.channel();
        self.core.sessions.clear(area);
        let mut table = lock(&self.table);
        table.areas.push(area);
        table.machines.remove_owner(entry.key.machine());
        drop(table);
        self.core.executor.tidy();
        entry.set_freed();
        entry.host.charges().check_returned();
    }
}

impl OwnerTable {
    fn find(&self, wanted: impl Fn(&OwnerKey) -> bool) -> Vec<Arc<OwnerEntry>> {
        self.known.values().filter(|entry| wanted(&entry.key)).map(Arc::clone).collect()
    }
}
