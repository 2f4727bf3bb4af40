//! What calls change, and which call is what: owners, their sessions, the one context.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use vgpu_image::Target;
use vgpu_wire::area;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::v1::call::{OWNERS_MAX, Op, Treatment};
use vgpu_wire::v1::frame::Call;
use vgpu_wire::v1::payload::{GemmEx, GemmStrided, Sgemm};
use vgpu_wire::v1::{ARGS, PAYLOAD_MAX};

use super::owner::Owner;
use super::port::{Port, Staging};
use super::status;
use super::{Mint, Reply, Request};
use crate::charge::{Charges, DeviceCharges, Limits};
use crate::executor::Executor;
use crate::host::{Guest, SessionHost};
use crate::published::Published;
use crate::pump::Greeting;
use crate::shares::Shares;
use crate::status::SessionStatus;
use crate::v1::info;
use crate::window::{Window, WindowError};

/// Bytes of an owner's area that are used: there is no ring.
const USED_OF_AREA: u64 = area::RING;
/// `cuCtxGetApiVersion`
const API_VERSION: u64 = 3020;

/// Who owns what a call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnerKey {
    /// A process of a machine, by its token as the device writes it.
    Process { vm: u32, owner: u32 },
    /// Whoever said no token, by the connection: it ends with that.
    Connection { vm: u32, connection: u64 },
}

/// Everything that calls change.
pub(super) struct Core {
    executor: Arc<dyn Executor>,
    facts: Box<DeviceFacts>,
    window: Arc<Window>,
    shares: Arc<Shares>,
    published: Arc<Published>,
    limits: Limits,
    charges: Arc<DeviceCharges>,
    greeting: Arc<Greeting>,
    staging: Staging,
    epoch: Instant,
    pub(super) owners: HashMap<OwnerKey, Owner>,
    /// Areas of the window that no owner has.
    areas: Vec<u32>,
    pub(super) sessions: u32,
    mint: Mint,
    /// The handle of the one context that there is.
    context: u64,
}

impl Core {
    pub(super) fn new(
        executor: Arc<dyn Executor>,
        facts: Box<DeviceFacts>,
        limits: Limits,
        charges: Arc<DeviceCharges>,
    ) -> Result<Self, WindowError> {
        let owners = OWNERS_MAX as u64;
        let staging = Staging { offset: owners * area::AREA_BYTES, bytes: PAYLOAD_MAX.into() };
        let window = Arc::new(Window::private(staging.offset + staging.bytes)?);
        let greeting = Greeting { generation: 1, window_bytes: 0, pages: false, facts: facts.clone() };
        let mut mint = Mint(Mint::FIRST);
        Ok(Self {
            shares: Arc::new(Shares::new(Arc::clone(&window), window.bytes())),
            published: Arc::new(Published::new(Arc::clone(&executor), facts.total_bytes)),
            limits,
            charges,
            greeting: Arc::new(greeting),
            facts,
            staging,
            epoch: Instant::now(),
            owners: HashMap::new(),
            areas: (0..OWNERS_MAX as u32).rev().collect(),
            sessions: 0,
            context: mint.handle(),
            mint,
            executor,
            window,
        })
    }

    pub(super) fn carry_out(&mut self, key: OwnerKey, call: &Call, data: &[u8]) -> Result<Reply, u32> {
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
            index,
            self.epoch,
            Arc::clone(&self.published),
            Charges::new(self.sessions, self.limits, Arc::clone(&self.charges)),
            Guest { wakes: true, ..Guest::default() },
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
    pub(super) fn end(&mut self, key: OwnerKey) {
        if let Some(owner) = self.owners.remove(&key) {
            let host = owner.port.host().clone();
            let index = host.channel();
            drop(owner);
            host.charges().check_returned();
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
pub(super) fn status_of(key: OwnerKey, owner: &Owner) -> SessionStatus {
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
        charged_bytes: owner.port.host().charges().bytes(),
        window_bytes: 0,
        page_bytes: 0,
        streams: owner.streams.len() as u32,
        events: owner.events.len() as u32,
        modules: (owner.modules.len() + owner.library_modules.len()) as u32,
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
