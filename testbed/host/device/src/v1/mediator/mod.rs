//! The mediator: calls in, answers out, for all machines of a host. What a call means, who owns what, who is
//! turned away.
//!
//! ```text
//!   connection ─► rules of the host: quarantine, rate ─► owners ─► owner ─► port ─► executor's session
//!                                                        │         tables   messages of version 2, waited for
//!                                                        └ 64 of each machine at most
//! ```
//! Of each owner one call is carried out at a time, and none waits for another owner's: hosts that exist
//! carry out one at a time, of whichever machine. Each owner has a session of its own, so what one has cannot
//! be named by another, and a fault takes one owner's objects, not everybody's (Q17, Q22). A machine whose
//! last connection is gone keeps its owners for a while ([`Settings::grace`]).

mod blas;
mod calls;
mod core;
mod entry;
mod launch;
mod machines;
mod memory;
mod module;
mod owner;
mod owners;
mod port;
mod request;
mod rules;
mod slots;
mod status;
mod stream;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use vgpu_wire::v1::frame::{Call, FrameError, Header, MAGIC, Outcome};
use vgpu_wire::v1::{ARGS, RESULTS};
use zerocopy::little_endian::U64;

use crate::charges::charge::DeviceCharges;
use crate::charges::limits::Limits;
use crate::executor::Executor;
use crate::gate::Gate;
use crate::memory::window::WindowError;
use crate::status::SessionStatus;
use crate::sync::lock;

use self::core::Core;
use entry::OwnerKey;
use machines::Machine;
use owners::Owners;
use request::Reply;
pub use rules::Rules;
use rules::Turned;

/// How long a machine without a connection keeps what it has: longer than a device takes that connects anew,
/// or a guest that pauses between calls after one was turned away.
const GRACE: Duration = Duration::from_mins(1);

/// Why there is no mediator.
#[derive(Debug, thiserror::Error)]
pub enum MediatorError {
    /// Its memory for payloads cannot be made.
    #[error("make the memory that payloads pass through")]
    Window(#[from] WindowError),
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// Status and number of results, with which the payload of the frame starts.
    pub outcome: Outcome,
    /// The data that follows it.
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
    /// The client has hung up meanwhile: nobody waits for the call.
    Gone,
}

/// What a host's administrator sets.
#[derive(Debug)]
pub struct Settings {
    /// Whom to turn away.
    pub rules: Rules,
    /// The most that each owner may have.
    pub limits: Limits,
    /// How long a machine whose last connection is gone keeps what it has. 60 s.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { rules: Rules::default(), limits: Limits::default(), grace: GRACE }
    }
}

/// Carries out the calls of all machines of a host, each owner's with a session of its own.
pub struct Mediator {
    owners: Arc<Owners>,
    rules: Mutex<Rules>,
    gate: Gate,
    waiting: Mutex<Vec<std::thread::Thread>>,
    /// When it was stopped.
    stopped: OnceLock<Instant>,
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

/// A client: a device, which speaks for one machine. What it owned without a token ends with it.
#[derive(Debug)]
pub struct Connection {
    mediator: Arc<Mediator>,
    number: u64,
    /// The user whose process it is.
    user: u32,
    /// The machine that its first call named.
    vm: OnceLock<u32>,
    /// The client has hung up.
    gone: Mutex<bool>,
}

impl Mediator {
    /// A mediator over an executor.
    pub fn new(executor: Arc<dyn Executor>, rules: Rules) -> Result<Arc<Self>, MediatorError> {
        Self::with_settings(executor, Settings { rules, ..Settings::default() })
    }

    /// The same with other limits than the usual ones for each owner.
    pub fn with_limits(
        executor: Arc<dyn Executor>,
        rules: Rules,
        limits: Limits,
    ) -> Result<Arc<Self>, MediatorError> {
        Self::with_settings(executor, Settings { rules, limits, ..Settings::default() })
    }

    /// The same with all that can be set.
    pub fn with_settings(
        executor: Arc<dyn Executor>,
        settings: Settings,
    ) -> Result<Arc<Self>, MediatorError> {
        let Settings { rules, limits, grace } = settings;
        let charges = Arc::new(DeviceCharges::default());
        let core = Core::new(Arc::clone(&executor), limits, Arc::clone(&charges))?;
        let total = core.facts.total_bytes;
        Ok(Arc::new(Self {
            owners: Owners::new(core, grace),
            rules: Mutex::new(rules),
            gate: Gate::default(),
            waiting: Mutex::default(),
            stopped: OnceLock::new(),
            connections: AtomicU64::new(1),
            name: executor.name(),
            total,
            charges,
            executor,
        }))
    }

    /// A client of this process comes.
    pub fn connect(self: &Arc<Self>) -> Connection {
        self.connect_as(rustix::process::geteuid().as_raw())
    }

    /// A client of a user's process comes. What one user's machine has, another user's cannot reach by saying
    /// the same number.
    pub fn connect_as(self: &Arc<Self>, user: u32) -> Connection {
        Connection {
            mediator: Arc::clone(self),
            number: self.connections.fetch_add(1, Ordering::Relaxed),
            user,
            vm: OnceLock::new(),
            gone: Mutex::new(false),
        }
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
        // The first time counts.
        self.stopped.get_or_init(Instant::now);
        self.release();
        self.owners.stop();
    }

    /// What is left of the time that a way to the mediator, as it ends, has for the call that is being
    /// carried out. It counts from the mediator's own end, so that many ways together take no longer than
    /// one.
    pub(in crate::v1) fn left_of(&self, limit: Duration) -> Duration {
        self.stopped.get().map_or(limit, |stopped| limit.saturating_sub(stopped.elapsed()))
    }

    /// What each owner has; of one whose call is being carried out, what it had before.
    #[must_use]
    pub fn owners(&self) -> Vec<SessionStatus> {
        self.owners.status()
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

    fn carry_out(&self, key: OwnerKey, wanted: &dyn Fn() -> bool, call: &Call, data: &[u8]) -> Answer {
        self.wait_for_gate();
        let done = if self.stopped.get().is_some() {
            Err(status::UNKNOWN)
        } else {
            self.owners.carry_out(key, wanted, call, data)
        };
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
}

impl Drop for Mediator {
    fn drop(&mut self) {
        // Threads that look after owners end.
        self.owners.stop();
    }
}

impl Connection {
    /// Carries out the call that a frame holds.
    pub fn call(&self, header: &Header, call: &Call, data: &[u8]) -> Verdict {
        self.call_while(&|| true, header, call, data)
    }

    /// The same as long as it is `wanted`: one that was left behind makes no owner any more, since that may
    /// have been cleaned up by now.
    pub(in crate::v1) fn call_while(
        &self,
        wanted: &dyn Fn() -> bool,
        header: &Header,
        call: &Call,
        data: &[u8],
    ) -> Verdict {
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
        let Some(first) = self.speaks_for(vm) else { return Verdict::Gone };
        if first != vm {
            return Verdict::HangUp(FrameError::Machine { first, then: vm });
        }
        Verdict::Answer(Box::new(self.mediator.carry_out(self.owner(vm, call), wanted, call, data)))
    }

    /// The machine that the connection speaks for, which is the first that it named; none: the client has
    /// hung up.
    fn speaks_for(&self, vm: u32) -> Option<u32> {
        if let Some(vm) = self.vm.get() {
            return (!*lock(&self.gone)).then_some(*vm);
        }
        // So that it does not come after it went.
        let gone = lock(&self.gone);
        (!*gone).then(|| {
            *self.vm.get_or_init(|| {
                self.mediator.owners.came(Machine { user: self.user, vm });
                vm
            })
        })
    }

    /// Whether the connection's machine has an owner.
    pub(crate) fn has_owners(&self) -> bool {
        self.vm.get().is_some_and(|&vm| self.mediator.owners.has_owners(Machine { user: self.user, vm }))
    }

    /// The client has hung up, though a call of its may still be carried out.
    pub(crate) fn hang_up(&self) {
        let mut gone = lock(&self.gone);
        if !std::mem::replace(&mut *gone, true)
            && let Some(&vm) = self.vm.get()
        {
            self.mediator.owners.went(Machine { user: self.user, vm }, self.number);
        }
    }

    /// A call whose owner is the machine itself is owned by the connection.
    fn owner(&self, vm: u32, call: &Call) -> OwnerKey {
        let machine = Machine { user: self.user, vm };
        match call.owner.get() {
            owner if owner == vm => OwnerKey::Connection { machine, connection: self.number },
            owner => OwnerKey::Process { machine, owner },
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.hang_up();
    }
}
