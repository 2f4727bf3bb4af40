//! The VGPU-STUB device model, version 2: the other end of the contract that `vgpu-wire` specifies.
//!
//! A [`Device`] consists of registers ([`Device::read`], [`Device::write`]), a window of shared memory and up
//! to 64 channels. A guest process that attaches to a channel is a session. A host thread of its own copies
//! its messages out of the ring into private memory, checks them, answers those that concern the session
//! itself, and passes the others to the session of an [`Executor`]. A bus presents a device to guests. The
//! [`SimBus`] is a directory that looks like sysfs.
//!
//! ```text
//!  guest process            device                                                 executor
//!  ─────────────            ──────                                                 ────────
//!  registers ── socket ──►  registers ─► Channel: attach, detach
//!  window    ── mapping ─►  SessionThread: ring ─► Dispatcher: checks, tables ───► Session::execute
//!            ◄── mapping ─  ReturnArea ◄────────────────────────────────────────── SessionHost: reply, signal, fail
//! ```
//!
//! The crate's directories are layers. Each uses those below it:
//!
//! ```text
//!  sim        the simulated bus                       local   sessions of a caller in this process
//!  device     channels, registers, a session's thread
//!  dispatch   what becomes of a message
//!  executor   what carries messages out
//!  session    the guest's side of a session, as an executor accesses it
//!  supply     what executors share out among their sessions
//!  saved      what another process needs to continue a device
//!  memory, charges, gpu
//! ```
//!
//! **A device outlives its process.** [`Device::pause`] stops all sessions between two messages and saves
//! their state, and [`Device::restore`] continues them in another program of the same process, if their
//! executor has them in worker processes.
//!
//! **Nothing that a guest writes is trusted.** Messages are decoded from private copies. Lengths, slots,
//! words, spans, reserved fields and graph records are checked before an executor sees them. A violation ends
//! that session: its resources are freed, the guest finds a sticky error in its return area, and a line in
//! the log names session, message and reason. Other sessions continue.
//!
//! **Order.** One thread passes the messages of a session to its executor, in the order of the ring. The
//! executor may carry them out in any way that keeps the contract's order.
//!
//! The crate contains no unsafe code. Shared memory is accessed through `vm-memory`, which copies from and to
//! it, and makes references into it only for atomics.

#![forbid(unsafe_code)]

mod accesses;
mod charges;
mod control;
mod device;
mod dispatch;
mod executor;
mod figures;
mod gate;
mod gpu;
mod hooks;
mod local;
mod longest;
mod memory;
mod priority;
mod profile;
mod saved;
mod session;
mod share;
mod sim;
mod spin;
mod status;
mod supply;
mod sync;
mod thread_group;
pub mod threads;
mod tracked;
mod unix_socket;

pub use accesses::{Accesses, BarAccesses};
pub use charges::charge::{Charge, Charges, DeviceCharges, OUT_OF_MEMORY, OUT_OF_RESOURCES, OverLimit};
pub use charges::host_memory::mappings_allowed;
pub use charges::limits::{Limits, Resource};
pub use charges::log_budget::LogBudget;
pub use control::{ControlSocket, LineHandler};
pub use device::{Device, DeviceConfig, DeviceError, PausedDevice, PreviousDevice};
pub use dispatch::graph::{GraphEdge, GraphRecord, nodes as graph_nodes, patches as graph_patches};
pub use dispatch::refusals::Refusals;
pub use executor::{
    Executor, ExecutorError, Progress, Session, SessionClaims, SessionError, Work, WorkerCount,
};
pub use figures::{DeviceFigures, LostSessions, WorkDone};
pub use gate::{Gate, GateListener, GateMode, GateReport};
pub use gpu::{
    ADDRESS_RANGES, ADDRESS_SPAN, Addresses, ClaimError, GpuConfig, GpuError, RangeLocks, parse_bytes,
    parse_compute_capability, parse_uuid,
};
pub use hooks::TestHooks;
pub use local::{LocalSession, LocalSessions};
pub use longest::{Longest, TimedAccess};
pub use memory::address_space::{AddressSpace, Granularity, NoAddresses};
pub use memory::guest::{GuestMemory, Ram};
pub use memory::window::{SharedSlice, Window, WindowError};
pub use priority::RaisedPriority;
pub use profile::{BusProfile, KernelProfile, Profile, SessionProfile, TaskProfile};
pub use saved::bytes::HexBytes;
pub use saved::descriptors::KeptDescriptors;
pub use saved::error::{NotSaved, PauseError, RestoreError, STATE_MAX, STATE_VERSION};
pub use saved::state::{DeviceState, RetiredState};
pub use session::gauges::Gauges;
pub use session::grant::Grant;
pub use session::host::{RetiredMemory, SessionHost};
pub use session::memory::ResolvedSpan;
pub use session::remote::{DeviceProcess, FileRange, SessionLoss, SharedRange, WorkerLink};
pub use session::return_area::{FailureReason, LateError, ReplyTo, ReturnArea};
pub use session::violation::Violation;
pub use session::worker_session::SessionInWorker;
pub use share::ShareSource;
pub use sim::{Bar, BusDevice, ExitHandle, SimBus, SimDevice, SimError, SimFunction, StatusHandle};
pub use spin::{Awake, SpinBudget, WaitEvent, cpus, has_spare_cpus};
pub use status::{BusStatus, DeviceStatus, SessionStatus};
pub use supply::handle_table::{EventState, HandleTable, StreamConfig, StreamTable};
pub use supply::images::{CachedImage, Digest, ImageCache, IncomingImage, ReceivedImage, has_digest};
pub use supply::links::{CodeLink, CodeLinkInput, CodeLinkRefusal, CodeLinks};
pub use supply::matrix::{MatrixShape, Strided};
pub use supply::memory_pool::{MemoryPool, OutOfMemory, PoolCharge, Quota};
pub use supply::modules::{CodeCharge, CodeRefusal, ModuleImage, Modules};
pub use sync::lock;
pub use tracked::{TrackedGuard, held_lock, lock_tracked};
pub use unix_socket::{ListenError, connect_bar, connect_to, listen_for};
pub use vgpu_wire::pci::PciAddress;
