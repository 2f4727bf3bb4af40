//! The mediator: executes the calls of all machines of a host. It decides what a call means, who owns which
//! object, and which machines are refused.
//!
//! ```text
//!   connection ─► rules of the host: quarantine, rate ─► owners ─► owner ─► port ─► executor's session
//!                                                        │         tables   messages of version 2, waited for
//!                                                        └ 64 of each machine at most
//! ```
//! One call of each owner is executed at a time, and no call waits for another owner's; existing hosts
//! execute one call at a time, of all machines. Each owner has a session of its own, so an owner cannot name
//! another's objects, and a fault destroys the objects of one owner only (Q17, Q22). A machine whose last
//! connection has ended keeps its owners for a while ([`MediatorSettings::grace`]).

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

use vgpu_device::{DeviceCharges, Executor, Gate, Limits, SessionStatus, WindowError, lock};
use vgpu_wire::v1::frame::{Call, FrameError, Header, MAGIC, Outcome};
use vgpu_wire::v1::{ARGS, RESULTS};
use zerocopy::little_endian::U64;

use self::core::Core;
use entry::OwnerKey;
use machines::MachineId;
use owners::Owners;
use request::Reply;
pub use rules::MediatorRules;
use rules::Turned;

/// Time for which a machine without a connection keeps its owners. It is longer than a device takes to
/// reconnect, and than a guest pauses after a call was refused.
const GRACE: Duration = Duration::from_mins(1);

/// Reason for which a mediator cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MediatorError {
    /// The memory for payloads cannot be allocated.
    #[error("make the memory that payloads pass through")]
    Window(#[from] WindowError),
}

/// An answer to a call, ready to be sent.
#[derive(Debug)]
pub struct Answer {
    /// Status and number of results, with which the payload of the frame starts.
    pub outcome: Outcome,
    /// Data that follows the results.
    pub data: Vec<u8>,
}

/// Outcome of a call, as its link or its socket has to report it.
#[derive(Debug)]
pub enum Verdict {
    /// The call is answered.
    Answer(Box<Answer>),
    /// The call is refused for now, and the connection ends.
    Busy,
    /// All calls of the machine are refused, and the connection ends.
    Quarantined,
    /// The frame is not a valid call; the connection ends without an answer.
    HangUp(FrameError),
    /// The client has hung up meanwhile, so nobody waits for the call.
    Gone,
}

/// Settings of a mediator, which a host's administrator chooses.
#[derive(Debug)]
pub struct MediatorSettings {
    /// Rules by which calls are refused.
    pub rules: MediatorRules,
    /// Limits of each owner's session.
    pub limits: Limits,
    /// Time for which a machine whose last connection has ended keeps its owners; 60 s by default.
    pub grace: Duration,
}

impl Default for MediatorSettings {
    fn default() -> Self {
        Self { rules: MediatorRules::default(), limits: Limits::default(), grace: GRACE }
    }
}

/// Executes the calls of all machines of a host, with a session for each owner.
pub struct Mediator {
    owners: Arc<Owners>,
    rules: Mutex<MediatorRules>,
    gate: Gate,
    waiting: Mutex<Vec<std::thread::Thread>>,
    /// Time at which the mediator was stopped; not set while it runs.
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

/// A client's connection: that of the device of one machine. Objects that it created without a token end with
/// it.
#[derive(Debug)]
pub struct Connection {
    mediator: Arc<Mediator>,
    number: u64,
    /// User of the client's process.
    user: u32,
    /// The `vm_id` of the first call, which all later calls must state too.
    vm: OnceLock<u32>,
    /// Whether the client has hung up.
    gone: Mutex<bool>,
}

impl Mediator {
    /// Makes a mediator that executes calls on this executor.
    pub fn new(executor: Arc<dyn Executor>, rules: MediatorRules) -> Result<Arc<Self>, MediatorError> {
        Self::with_settings(executor, MediatorSettings { rules, ..MediatorSettings::default() })
    }

    /// Makes a mediator as [`Mediator::new`] does, with all settings.
    pub fn with_settings(
        executor: Arc<dyn Executor>,
        settings: MediatorSettings,
    ) -> Result<Arc<Self>, MediatorError> {
        let MediatorSettings { rules, limits, grace } = settings;
        let charges = Arc::new(DeviceCharges::default());
        let core = Core::new(Arc::clone(&executor), limits, Arc::clone(&charges))?;
        let total = core.sessions.facts().total_bytes;
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

    /// Connects a client within this process.
    pub fn connect(self: &Arc<Self>) -> Connection {
        self.connect_as(rustix::process::geteuid().as_raw())
    }

    /// Connects a client of a user's process. Machines of different users are different machines, even if
    /// they state the same `vm_id`.
    pub fn connect_as(self: &Arc<Self>, user: u32) -> Connection {
        Connection {
            mediator: Arc::clone(self),
            number: self.connections.fetch_add(1, Ordering::Relaxed),
            user,
            vm: OnceLock::new(),
            gone: Mutex::new(false),
        }
    }

    /// Returns the name of the executor, as the status report has it.
    #[must_use]
    pub const fn executor(&self) -> &'static str {
        self.name
    }

    /// Returns the device memory in bytes: first the total, then the part in use.
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        (self.total, self.executor.allocated())
    }

    /// Returns the number of bytes of host and device memory that are charged to owners.
    #[must_use]
    pub fn charged_bytes(&self) -> u64 {
        self.charges.bytes()
    }

    /// Returns the number of bytes of images that the executor keeps for later owners.
    #[must_use]
    pub fn kept_image_bytes(&self) -> u64 {
        self.executor.kept_image_bytes()
    }

    /// Holds all calls: from now on they are received, but wait until [`Mediator::release`].
    pub fn hold(&self) {
        self.gate.set(true);
    }

    /// Executes calls again after [`Mediator::hold`].
    pub fn release(&self) {
        self.gate.set(false);
        for thread in lock(&self.waiting).drain(..) {
            thread.unpark();
        }
    }

    /// Stops the work in progress, and ends all owners. Later calls fail.
    pub fn stop(&self) {
        // Only the first call of `stop` sets the time.
        self.stopped.get_or_init(Instant::now);
        self.release();
        self.owners.stop();
    }

    /// Returns how much of `limit`, the time that an ending link or server grants the call in progress, is
    /// left. It counts from the mediator's own stop, so that several of them together take no longer than
    /// one.
    pub(crate) fn left_of(&self, limit: Duration) -> Duration {
        self.stopped.get().map_or(limit, |stopped| limit.saturating_sub(stopped.elapsed()))
    }

    /// Returns the status of each owner. For an owner whose call is in progress, it is the status before that
    /// call.
    #[must_use]
    pub fn owners(&self) -> Vec<SessionStatus> {
        self.owners.status()
    }

    /// Replaces the rules. Calls that were accepted already are not affected.
    pub fn set_rules(&self, rules: MediatorRules) {
        *lock(&self.rules) = rules;
    }

    fn wait_for_gate(&self) {
        while self.gate.held() {
            lock(&self.waiting).push(std::thread::current());
            // This is checked again, because the release may have come before the thread was in the list.
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
        // The threads that watch owners end.
        self.owners.stop();
    }
}

impl Connection {
    /// Executes the call in a frame, and waits for it. `data` is the payload after the call's header.
    pub fn call(&self, header: &Header, call: &Call, data: &[u8]) -> Verdict {
        self.call_while(&|| true, header, call, data)
    }

    /// Executes a call as [`Connection::call`] does, as long as it is `wanted`. A call that was left behind
    /// must not create an owner, because that owner may have been cleaned up already.
    pub(crate) fn call_while(
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

    /// Returns the `vm_id` of the connection's machine: that of the first call, which is `vm` if this is the
    /// first. Returns `None` if the client has hung up.
    fn speaks_for(&self, vm: u32) -> Option<u32> {
        if let Some(vm) = self.vm.get() {
            return (!*lock(&self.gone)).then_some(*vm);
        }
        // The lock keeps this from counting a connection whose end was counted already.
        let gone = lock(&self.gone);
        (!*gone).then(|| {
            *self.vm.get_or_init(|| {
                self.mediator.owners.connected(MachineId { user: self.user, vm });
                vm
            })
        })
    }

    /// Returns whether the connection's machine has any owner.
    pub(crate) fn has_owners(&self) -> bool {
        self.vm.get().is_some_and(|&vm| self.mediator.owners.has_owners(MachineId { user: self.user, vm }))
    }

    /// Records that the client has hung up. A call of its may still be in progress.
    pub(crate) fn hang_up(&self) {
        let mut gone = lock(&self.gone);
        if !std::mem::replace(&mut *gone, true)
            && let Some(&vm) = self.vm.get()
        {
            self.mediator.owners.disconnected(MachineId { user: self.user, vm }, self.number);
        }
    }

    /// Returns the owner of a call. A call without a token belongs to the connection.
    fn owner(&self, vm: u32, call: &Call) -> OwnerKey {
        let machine = MachineId { user: self.user, vm };
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
