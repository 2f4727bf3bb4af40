//! The mediator: calls in, answers out, for all machines of a host. What a call means, who owns what, who is turned away.
//!
//! ```text
//!   connection ─► rules of the host: quarantine, rate ─► core ─► owner ─► port ─► executor's session
//!                                                        │       tables   messages of version 2, waited for
//!                                                        └ 64 owners at most
//! ```
//! One call is carried out at a time, of whichever machine, as on hosts that exist. Each owner has a session of its own, so what
//! one has cannot be named by another, and a fault takes one owner's objects, not everybody's (Q17, Q22).

mod blas;
mod calls;
mod launch;
mod memory;
mod module;
mod owner;
mod port;
mod rules;
mod status;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::frame::{Call, FrameError, Header, MAGIC, Outcome};
use vgpu_wire::v1::{ARGS, RESULTS, join};
use zerocopy::little_endian::U64;

use crate::charge::{DeviceCharges, Limits};
use crate::executor::Executor;
use crate::host::{SessionHost, lock};
use crate::session::Gate;
use crate::status::SessionStatus;
use crate::window::WindowError;

use calls::{Core, OwnerKey, status_of};
pub use rules::Rules;
use rules::Turned;

/// The word by which copies are waited for; others are the synchronize's and the events'.
const COPY_WORD: u32 = 1000;
/// How long a report waits for the call that is being carried out, and between two looks.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
const STATUS_PAUSE: Duration = Duration::from_millis(1);

/// Why there is no mediator.
#[derive(Debug, thiserror::Error)]
pub enum MediatorError {
    /// Its memory for payloads cannot be made.
    #[error("make the memory that payloads pass through")]
    Window(#[from] WindowError),
}

/// A call, taken apart.
struct Request<'a> {
    op: Op,
    args: [u32; ARGS],
    num_args: usize,
    data: &'a [u8],
}

impl Request<'_> {
    /// The 64-bit argument that begins with argument `at`.
    const fn wide(&self, at: usize) -> u64 {
        join(&self.args, at)
    }
}

/// What a call brings, where it succeeds.
#[derive(Debug, Default)]
struct Reply {
    results: Vec<u64>,
    data: Vec<u8>,
}

impl Reply {
    /// Nothing but success.
    const NONE: Self = Self { results: Vec::new(), data: Vec::new() };

    fn of(results: &[u64]) -> Self {
        Self { results: results.to_vec(), data: Vec::new() }
    }

    const fn data(data: Vec<u8>) -> Self {
        Self { results: Vec::new(), data }
    }
}

/// Gives out handles. They mean nothing but themselves, are never used again, and look like the host's pointers: a guest that
/// keeps 32 bits of one has none.
#[derive(Debug)]
struct Mint(u64);

impl Mint {
    const FIRST: u64 = 0x5560_0000_0010;

    fn handle(&mut self) -> u64 {
        self.0 += 0x10;
        self.0
    }
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// Its head.
    pub outcome: Outcome,
    /// Its payload.
    pub data: Vec<u8>,
}

/// What becomes of a call.
#[derive(Debug)]
pub enum Verdict {
    /// It is answered.
    Answer(Box<Answer>),
    /// It is turned away for now, and the connection ends.
    Busy,
    /// The machine is turned away, and the connection ends.
    Quarantined,
    /// It is no call: the connection ends without a word.
    HangUp(FrameError),
}

/// See the module.
pub struct Mediator {
    core: Mutex<Core>,
    rules: Mutex<Rules>,
    /// Sessions that may have to be stopped while a call of theirs is carried out.
    hosts: Mutex<Vec<SessionHost>>,
    /// Owners as they were last reported.
    owners: Mutex<Vec<SessionStatus>>,
    gate: Gate,
    waiting: Mutex<Vec<std::thread::Thread>>,
    stopped: AtomicBool,
    connections: AtomicU64,
    name: &'static str,
    total: u64,
    charges: Arc<DeviceCharges>,
    executor: Arc<dyn Executor>,
}

impl std::fmt::Debug for Mediator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mediator").field("executor", &self.name).finish_non_exhaustive()
    }
}

/// A client: a device. What it owned without a token ends with it.
#[derive(Debug)]
pub struct Connection {
    mediator: Arc<Mediator>,
    number: u64,
}

impl Mediator {
    /// A mediator over an executor.
    pub fn new(executor: Arc<dyn Executor>, rules: Rules) -> Result<Arc<Self>, MediatorError> {
        Self::with_limits(executor, rules, Limits::default())
    }

    /// The same with other limits than the usual ones for each owner.
    pub fn with_limits(
        executor: Arc<dyn Executor>,
        rules: Rules,
        limits: Limits,
    ) -> Result<Arc<Self>, MediatorError> {
        let facts = Box::new(executor.facts());
        let total = facts.total_bytes;
        let charges = Arc::new(DeviceCharges::default());
        let core = Core::new(Arc::clone(&executor), facts, limits, Arc::clone(&charges))?;
        Ok(Arc::new(Self {
            core: Mutex::new(core),
            rules: Mutex::new(rules),
            hosts: Mutex::default(),
            owners: Mutex::default(),
            gate: Gate::default(),
            waiting: Mutex::default(),
            stopped: AtomicBool::new(false),
            connections: AtomicU64::new(1),
            name: executor.name(),
            total,
            charges,
            executor,
        }))
    }

    /// A client comes.
    pub fn connect(self: &Arc<Self>) -> Connection {
        Connection { mediator: Arc::clone(self), number: self.connections.fetch_add(1, Ordering::Relaxed) }
    }

    /// Name of the executor.
    #[must_use]
    pub const fn executor(&self) -> &'static str {
        self.name
    }

    /// Device memory: all of it, and what is in use, bytes.
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        (self.total, self.executor.allocated())
    }

    /// Bytes of host and device memory that are charged to owners.
    #[must_use]
    pub fn charged_bytes(&self) -> u64 {
        self.charges.bytes()
    }

    /// Bytes of images that are kept for later owners.
    #[must_use]
    pub fn kept_image_bytes(&self) -> u64 {
        self.executor.kept_image_bytes()
    }

    /// Calls are taken but not carried out.
    pub fn hold(&self) {
        self.gate.set(true);
    }

    /// They go on.
    pub fn release(&self) {
        self.gate.set(false);
        for thread in lock(&self.waiting).drain(..) {
            thread.unpark();
        }
    }

    /// Ends the work that is being done, and carries out no more.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.release();
        for host in &*lock(&self.hosts) {
            host.stop();
            host.wake();
        }
    }

    /// What each owner has. While a call is carried out that takes long, what each had when it was last asked.
    #[must_use]
    pub fn owners(&self) -> Vec<SessionStatus> {
        let mut known = lock(&self.owners);
        let end = Instant::now() + STATUS_PATIENCE;
        loop {
            let core = match self.core.try_lock() {
                Ok(core) => core,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => return known.clone(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(STATUS_PAUSE);
                    continue;
                }
            };
            *known = core.owners.iter().map(|(key, owner)| status_of(*key, owner)).collect();
            drop(core);
            known.sort_by_key(|owner| (owner.channel, owner.process));
            return known.clone();
        }
    }

    /// Turns others away from now on.
    pub fn set_rules(&self, rules: Rules) {
        *lock(&self.rules) = rules;
    }

    fn wait_for_gate(&self) {
        while self.gate.held() {
            lock(&self.waiting).push(std::thread::current());
            // Again, for the release may have come before the thread was in the list.
            if self.gate.held() {
                std::thread::park();
            }
        }
    }

    fn carry_out(&self, key: OwnerKey, call: &Call, data: &[u8]) -> Answer {
        self.wait_for_gate();
        let mut core = lock(&self.core);
        let done = if self.stopped.load(Ordering::SeqCst) {
            Err(status::UNKNOWN)
        } else {
            // A panic is a bug of this program: it costs the owner, not the host.
            catch_unwind(AssertUnwindSafe(|| core.carry_out(key, call, data))).unwrap_or_else(|_| {
                tracing::error!(?key, op = call.op.get(), "a call ended by a panic");
                core.end(key);
                Err(status::UNKNOWN)
            })
        };
        self.note_sessions(&core);
        drop(core);
        let (status, reply) = done.map_or_else(|code| (code, Reply::NONE), |reply| (0, reply));
        let mut results = [U64::ZERO; RESULTS];
        for (to, from) in results.iter_mut().zip(&reply.results) {
            *to = (*from).into();
        }
        let outcome = Outcome {
            magic: MAGIC.into(),
            seq: call.seq,
            status: status.into(),
            num_results: (reply.results.len() as u32).into(),
            data_len: (reply.data.len() as u32).into(),
            reserved: 0.into(),
            results,
        };
        Answer { outcome, data: reply.data }
    }

    /// Keeps the list of sessions that can be stopped.
    fn note_sessions(&self, core: &MutexGuard<'_, Core>) {
        let mut hosts = lock(&self.hosts);
        if hosts.len() != core.owners.len()
            || hosts.last().is_some_and(|host| host.session() != core.sessions)
        {
            *hosts = core.owners.values().map(|owner| owner.port.host().clone()).collect();
            hosts.sort_by_key(SessionHost::session);
        }
    }
}

impl Connection {
    /// Carries out the call that a frame holds.
    pub fn call(&self, header: &Header, call: &Call, data: &[u8]) -> Verdict {
        let vm = header.vm_id.get();
        match lock(&self.mediator.rules).admit(vm, Instant::now()) {
            Ok(()) => {}
            Err(Turned::Quarantined) => return Verdict::Quarantined,
            Err(Turned::Busy) => return Verdict::Busy,
        }
        if call.magic.get() != MAGIC {
            return Verdict::HangUp(FrameError::Magic(call.magic.get()));
        }
        if call.num_args.get() as usize > ARGS {
            return Verdict::HangUp(FrameError::Args(call.num_args.get()));
        }
        if call.data_len.get() as usize != data.len() {
            return Verdict::HangUp(FrameError::Data { stated: call.data_len.get(), there: data.len() });
        }
        Verdict::Answer(Box::new(self.mediator.carry_out(self.owner(vm, call), call, data)))
    }

    /// A call whose owner is the machine itself is owned by the connection.
    fn owner(&self, vm: u32, call: &Call) -> OwnerKey {
        match call.owner.get() {
            owner if owner == vm => OwnerKey::Connection { vm, connection: self.number },
            owner => OwnerKey::Process { vm, owner },
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let own = |key: &OwnerKey| matches!(key, OwnerKey::Connection { connection, .. } if *connection == self.number);
        let mut core = lock(&self.mediator.core);
        let ended: Vec<OwnerKey> = core.owners.keys().copied().filter(own).collect();
        for key in ended {
            core.end(key);
        }
        self.mediator.note_sessions(&core);
    }
}
