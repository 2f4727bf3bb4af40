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
mod launch;
mod memory;
mod module;
mod owner;
mod port;
mod rules;
mod status;
mod stream;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use vgpu_image::Target;
use vgpu_wire::area;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::v1::call::{OWNERS_MAX, Op, Treatment};
use vgpu_wire::v1::frame::{Call, FrameError, Header, MAGIC, Outcome};
use vgpu_wire::v1::payload::{GemmEx, GemmStrided, Sgemm};
use vgpu_wire::v1::{ARGS, PAYLOAD_MAX, RESULTS, join};
use zerocopy::little_endian::U64;

use super::info;
use crate::executor::Executor;
use crate::host::{SessionHost, lock};
use crate::published::Published;
use crate::pump::Greeting;
use crate::session::Gate;
use crate::shares::Shares;
use crate::status::SessionStatus;
use crate::window::{Window, WindowError};

use owner::Owner;
use port::{Port, Staging};
pub use rules::Rules;
use rules::Turned;

/// The word by which copies are waited for; others are the synchronize's and the events'.
const COPY_WORD: u32 = 1000;
/// Bytes of an owner's area that are used: there is no ring.
const USED_OF_AREA: u64 = area::RING;
/// How long a report waits for the call that is being carried out, and between two looks.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
const STATUS_PAUSE: Duration = Duration::from_millis(1);
/// `cuCtxGetApiVersion`
const API_VERSION: u64 = 3020;

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

/// Who owns what a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OwnerKey {
    /// A process of a machine, by its token as the device writes it.
    Process { vm: u32, owner: u32 },
    /// Whoever said no token, by the connection: it ends with that.
    Connection { vm: u32, connection: u64 },
}

/// Everything that calls change.
struct Core {
    executor: Arc<dyn Executor>,
    facts: Box<DeviceFacts>,
    window: Arc<Window>,
    shares: Arc<Shares>,
    published: Arc<Published>,
    greeting: Arc<Greeting>,
    staging: Staging,
    epoch: Instant,
    owners: HashMap<OwnerKey, Owner>,
    /// Areas of the window that no owner has.
    areas: Vec<u32>,
    sessions: u32,
    mint: Mint,
    /// The handle of the one context that there is.
    context: u64,
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
        let owners = OWNERS_MAX as u64;
        let staging = Staging { offset: owners * area::AREA_BYTES, bytes: PAYLOAD_MAX.into() };
        let window = Arc::new(Window::private(staging.offset + staging.bytes)?);
        let facts = Box::new(executor.facts());
        let greeting = Greeting { generation: 1, window_bytes: 0, facts: facts.clone() };
        let mut mint = Mint(Mint::FIRST);
        let core = Core {
            facts: facts.clone(),
            shares: Arc::new(Shares::new(Arc::clone(&window), window.bytes())),
            published: Arc::new(Published::new(Arc::clone(&executor), facts.total_bytes)),
            greeting: Arc::new(greeting),
            staging,
            epoch: Instant::now(),
            owners: HashMap::new(),
            areas: (0..OWNERS_MAX as u32).rev().collect(),
            sessions: 0,
            context: mint.handle(),
            mint,
            executor: Arc::clone(&executor),
            window,
        };
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
            total: facts.total_bytes,
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

impl Core {
    fn carry_out(&mut self, key: OwnerKey, call: &Call, data: &[u8]) -> Result<Reply, u32> {
        let op = Op::try_from(call.op.get());
        if op == Ok(Op::ProcessCleanup) {
            self.clean_up(key);
            return Ok(Reply::NONE);
        }
        let owner = self.owner(key)?;
        let op = op.map_err(|_| status::NOT_SUPPORTED)?;
        *owner.calls.entry(op.name()).or_default() += 1;
        owner.call_count += 1;
        let mut args = [0; ARGS];
        let num_args = call.num_args.get() as usize;
        // Arguments that are not stated are not there, whatever the frame holds.
        args[..num_args].copy_from_slice(&call.args()[..num_args]);
        let request = Request { op, args, num_args, data };
        let done = match op.treatment() {
            Treatment::Refused => Err(status::NOT_SUPPORTED),
            Treatment::Ignored => Ok(Reply::NONE),
            Treatment::Done => self.do_call(key, &request),
        };
        if self.owners.get(&key).is_some_and(|owner| owner.port.is_dead()) {
            // As after a context is lost: nothing that the owner had exists any more, and its next call begins anew.
            tracing::warn!(?key, op = op.name(), "all that an owner has is lost");
            self.end(key);
        }
        done
    }

    /// The owner, which comes to be with its first call.
    fn owner(&mut self, key: OwnerKey) -> Result<&mut Owner, u32> {
        if !self.owners.contains_key(&key) {
            let owner = Owner::new(self.open()?);
            self.owners.insert(key, owner);
        }
        self.owners.get_mut(&key).ok_or(status::OUT_OF_MEMORY)
    }

    fn open(&mut self) -> Result<Port, u32> {
        let index = self.areas.pop().ok_or(status::OUT_OF_MEMORY)?;
        let base = u64::from(index) * area::AREA_BYTES;
        self.sessions += 1;
        let host = SessionHost::new(
            Arc::clone(&self.window),
            Arc::clone(&self.shares),
            base,
            index,
            self.sessions,
            self.epoch,
            Arc::clone(&self.published),
        );
        let port = if self.window.reserve(base, USED_OF_AREA) {
            Port::open(host, &*self.executor, &self.greeting, self.staging).map_err(|error| {
                tracing::warn!("failed to {error}");
                status::OUT_OF_MEMORY
            })
        } else {
            Err(status::OUT_OF_MEMORY)
        };
        if port.is_err() {
            self.free_area(index);
        }
        port
    }

    fn free_area(&mut self, index: u32) {
        self.window.clear(u64::from(index) * area::AREA_BYTES, area::AREA_BYTES);
        self.areas.push(index);
    }

    /// Ends an owner with all that it has.
    fn end(&mut self, key: OwnerKey) {
        if let Some(owner) = self.owners.remove(&key) {
            let index = owner.port.host().channel();
            drop(owner);
            self.free_area(index);
        }
    }

    /// `PROCESS_CLEANUP`: all that the owner has, if a call of its needed a context; else only what is no memory (Q11).
    fn clean_up(&mut self, key: OwnerKey) {
        let Some(owner) = self.owners.get_mut(&key) else { return };
        owner.pieces = None;
        owner.cublas.retain(|_, _| false);
        if owner.context || owner.allocations.len() == 0 {
            self.end(key);
        } else {
            tracing::warn!(
                ?key,
                bytes = owner.allocations.bytes(),
                "a cleanup leaves memory behind: its owner has no context"
            );
        }
    }

    fn do_call(&mut self, key: OwnerKey, request: &Request<'_>) -> Result<Reply, u32> {
        let target =
            Target { sm: 10 * self.facts.cc_major + self.facts.cc_minor, abilities: self.facts.abilities };
        let context = self.context;
        let Self { owners, mint, facts, executor, .. } = self;
        let owner = owners.get_mut(&key).ok_or(status::OUT_OF_MEMORY)?;
        owner.context |= needs_context(request.op);
        let number = |value: u64| Ok(Reply::of(&[value]));
        match request.op {
            Op::Init | Op::DeviceGetCount => number(1),
            Op::DriverGetVersion => number(facts.driver_version.into()),
            Op::DeviceGet | Op::CtxGetDevice => number(0),
            Op::GetGpuInfo => Ok(Reply::data(info::gpu_info(facts, executor.allocated()))),
            Op::CtxCreate | Op::PrimaryCtxRetain => number(context),
            Op::CtxGetCurrent => number(if owner.context { context } else { 0 }),
            Op::CtxSynchronize if owner.context => owner.port.finish().map(|()| Reply::NONE),
            Op::CtxSynchronize | Op::CtxSetCurrent => Ok(Reply::NONE),
            Op::CtxGetApiVersion => number(API_VERSION),
            Op::PrimaryCtxReset => owner.free_all().map(|()| Reply::NONE),
            Op::PrimaryCtxGetState => Ok(Reply::of(&[0, owner.context.into()])),

            Op::MemAlloc => owner.allocate(request),
            Op::MemFree => owner.free(request),
            Op::MemcpyHtoD => owner.copy_in(request, 0),
            Op::MemcpyHtoDAsync => owner.copy_in_async(request),
            Op::MemcpyDtoH => owner.copy_out(request),
            Op::MemcpyDtoD => owner.copy_device(request),
            Op::MemsetD8 => owner.fill(request, 1),
            Op::MemsetD32 => owner.fill(request, 4),
            Op::MemGetInfo => owner.memory_info(),

            Op::ModuleLoadData | Op::ModuleLoadDataEx | Op::ModuleLoadFatBinary => {
                owner.module_load(mint, request, target)
            }
            Op::ModuleUnload => owner.module_unload(request),
            Op::ModuleGetFunction => owner.function_get(mint, request),
            Op::ModuleGetGlobal => owner.global_get(request),
            Op::LibraryLoadData => owner.library_load(mint, request, target),
            Op::LibraryUnload => owner.library_unload(request),
            Op::LibraryGetModule => owner.library_module(request),
            Op::FuncGetAttribute => owner.function_attribute(request),
            Op::FuncSetCacheConfig => owner.function_cache(request),
            Op::FuncGetParamInfo => owner.function_param(request, facts.driver_version),
            Op::LaunchKernel => owner.launch(request),

            Op::StreamCreate | Op::StreamCreateWithFlags => owner.stream_create(mint, request.args[0], 0),
            Op::StreamCreateWithPriority => {
                owner.stream_create(mint, request.args[0], request.args[2].cast_signed())
            }
            Op::StreamDestroy => owner.stream_destroy(request),
            Op::StreamSynchronize => owner.stream_synchronize(request),
            Op::StreamQuery => owner.stream_query(request),
            Op::StreamWaitEvent => owner.stream_wait(request),
            Op::EventCreate | Op::EventCreateWithFlags => owner.event_create(mint, request.args[0]),
            Op::EventDestroy => owner.event_destroy(request),
            Op::EventRecord => owner.event_record(request),
            Op::EventSynchronize => owner.event_synchronize(request),
            Op::EventQuery => owner.event_query(request),
            Op::EventElapsedTime => owner.event_elapsed(request),

            Op::CublasCreate => Ok(owner.cublas_create(mint)),
            Op::CublasDestroy => Ok(owner.cublas_destroy(request)),
            Op::CublasSetStream => Ok(owner.cublas_set_stream(request)),
            Op::CublasGetStream => Ok(owner.cublas_get_stream(request)),
            Op::CublasSgemm => Ok(owner.multiply::<Sgemm>(request)),
            Op::CublasGemmEx => Ok(owner.multiply::<GemmEx>(request)),
            Op::CublasGemmStridedBatchedEx => Ok(owner.multiply::<GemmStrided>(request)),
            Op::CublasGemmBatchedEx => Ok(owner.multiply_batched(request)),
            // All that are done are above; what the table gains is refused until it is, too.
            _ => Err(status::NOT_SUPPORTED),
        }
    }
}

/// Whether a call makes its owner's context valid: any about contexts, streams, events, modules, libraries and launches; not a lone
/// allocation, copy or product.
const fn needs_context(op: Op) -> bool {
    !matches!(
        op,
        Op::Init
            | Op::DriverGetVersion
            | Op::DeviceGetCount
            | Op::DeviceGet
            | Op::GetGpuInfo
            | Op::CtxGetCurrent
            | Op::CtxSynchronize
            | Op::CtxGetDevice
            | Op::CtxGetApiVersion
            | Op::PrimaryCtxReset
            | Op::PrimaryCtxGetState
            | Op::MemAlloc
            | Op::MemFree
            | Op::MemcpyHtoD
            | Op::MemcpyHtoDAsync
            | Op::MemcpyDtoH
            | Op::MemcpyDtoD
            | Op::MemsetD8
            | Op::MemsetD32
            | Op::MemGetInfo
            | Op::CublasCreate
            | Op::CublasDestroy
            | Op::CublasSetStream
            | Op::CublasGetStream
            | Op::CublasSgemm
            | Op::CublasGemmEx
            | Op::CublasGemmStridedBatchedEx
            | Op::CublasGemmBatchedEx
    )
}

/// An owner as the control socket reports it: the process is its token, the channel its machine.
fn status_of(key: OwnerKey, owner: &Owner) -> SessionStatus {
    let (vm, process) = match key {
        OwnerKey::Process { vm, owner } => (vm, owner & vgpu_wire::v1::TOKEN_MASK),
        OwnerKey::Connection { vm, .. } => (vm, 0),
    };
    SessionStatus {
        channel: vm,
        session: owner.port.host().session(),
        process,
        state: if owner.context { "attached" } else { "no context" }.to_owned(),
        allocated: owner.allocations.bytes(),
        allocations: owner.allocations.len() as u32,
        window_bytes: 0,
        streams: owner.streams.len() as u32,
        events: owner.events.len() as u32,
        modules: owner.modules.len() as u32,
        messages: owner.call_count,
        done: owner.call_count,
        host_sleeps: 0,
        unread: 0,
        kinds: owner.calls.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        joins: 0,
        waits: owner.call_count,
        bytes_in: owner.bytes_in,
        bytes_out: owner.bytes_out,
        doorbells: owner.call_count,
    }
}
