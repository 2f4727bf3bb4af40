//! The device: registers, BAR1, the window, and what becomes of a call between doorbell and answer. Knows no bus: accesses come as
//! BAR, offset and size.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::frame::{CUDA_CALL, Call, Header, MAGIC, Outcome};
use vgpu_wire::v1::registers::{BAR1_TO_GUEST, BAR1_TO_HOST, BUSY, DONE, ERROR, ErrorCode};
use vgpu_wire::v1::route::{self, PREFIX_BYTES, Place, Prefixes};
use vgpu_wire::v1::{INLINE_BYTES, WINDOW_MIN_BYTES, call, owner};
use zerocopy::little_endian::U32;

use super::bar1::Bar1;
use super::counts::{Accesses, Counts};
use super::link::{Delivery, Inlet, Link, LinkError, Submission};
use super::properties::Properties;
use super::registers::{Effect, Identity, Registers};
use crate::host::lock;
use crate::longest::Longest;
use crate::memory::GuestMemory;

/// The BARs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// Registers.
    Bar0,
    /// Payload.
    Bar1,
}

/// Guest pages that are registered.
#[derive(Clone, Copy, Debug)]
struct Window {
    address: u64,
    /// Bytes of each half.
    half: u32,
    /// `SCRATCH` at that time.
    token: u32,
}

/// The call that is on its way.
#[derive(Clone, Copy, Debug)]
struct Pending {
    request_id: u32,
    op: u32,
    seq: u32,
    token: u32,
}

#[derive(Debug)]
struct State {
    registers: Registers,
    bar1: Bar1,
    window: Option<Window>,
    pending: Option<Pending>,
    /// By which the newest call went.
    connection: u64,
    next_request: u32,
}

/// One function of version 1. Accesses may come from any thread; one is carried out at a time, as in a hypervisor.
#[derive(Debug)]
pub struct Device {
    properties: Properties,
    memory: Arc<dyn GuestMemory>,
    epoch: Instant,
    state: Mutex<State>,
    counts: Counts,
    longest: Longest,
    link: OnceLock<Box<dyn Link>>,
}

/// Calls whose late answers are taken though another is pending.
const BOOTSTRAP: [Op; 6] =
    [Op::Init, Op::GetGpuInfo, Op::DeviceGetCount, Op::DeviceGet, Op::PrimaryCtxRetain, Op::CtxSetCurrent];
/// How much older such an answer may be.
const LAG_MOST: u32 = 4;

impl Device {
    /// A device in a guest with this memory. No mediator is reached before there is a link ([`Device::attach`]).
    pub fn new(properties: Properties, memory: Arc<dyn GuestMemory>) -> Arc<Self> {
        let identity = Identity {
            pool: properties.pool.ascii(),
            priority: properties.priority as u8,
            vm_id: properties.vm_id,
            protocol: properties.protocol.unwrap_or(vgpu_wire::registers::PROTOCOL_V1),
        };
        let state = State {
            registers: Registers::new(identity),
            bar1: Bar1::new(),
            window: None,
            pending: None,
            connection: 0,
            next_request: 1,
        };
        Arc::new(Self {
            properties,
            memory,
            epoch: Instant::now(),
            state: Mutex::new(state),
            counts: Counts::default(),
            longest: Longest::default(),
            link: OnceLock::new(),
        })
    }

    /// Where a link brings what comes back.
    #[must_use]
    pub fn inlet(self: &Arc<Self>) -> Inlet {
        Inlet(Arc::downgrade(self))
    }

    /// Gives the device its link, once.
    pub fn attach(&self, link: Box<dyn Link>) {
        // A second one would be a bus's mistake, and nothing would be sent by it.
        let _ = self.link.set(link);
    }

    /// What was set.
    #[must_use]
    pub const fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Accesses so far.
    #[must_use]
    pub fn accesses(&self) -> Accesses {
        self.counts.get()
    }

    /// The longest that an access to a BAR took so far, in microseconds.
    #[must_use]
    pub fn longest_access_us(&self) -> u64 {
        self.longest.access_us()
    }

    /// Reads `size` bytes, 1 to 8 and a power of two, at `offset`. 0 for what no bus would let through.
    #[must_use]
    pub fn read(&self, bar: Bar, offset: u32, size: usize) -> u64 {
        if !is_access(offset, size) {
            return 0;
        }
        self.counts.read(bar, 1);
        let _timed = self.longest.access();
        let state = lock(&self.state);
        match bar {
            // The registers implement 4 bytes, and wider accesses are two: narrower ones read 4 from where they are (Q1).
            Bar::Bar0 => {
                let low = u64::from(state.registers.read(offset));
                match size {
                    8 => low | u64::from(state.registers.read(offset + 4)) << 32,
                    _ => low & mask(size),
                }
            }
            Bar::Bar1 => state.bar1.load(offset, size),
        }
    }

    /// Writes the low `size` bytes of `value`, 1 to 8 and a power of two, at `offset`. What the write causes has happened when this
    /// returns; a call is on its way then, or waits for its mediator to take it.
    pub fn write(&self, bar: Bar, offset: u32, size: usize, value: u64) {
        if !is_access(offset, size) {
            return;
        }
        self.counts.write(bar, 1);
        let _timed = self.longest.access();
        let mut state = lock(&self.state);
        match bar {
            Bar::Bar0 => {
                // A narrower store is widened: it misses the register, or takes its neighbours along (Q1).
                self.write_register(&mut state, offset, (value & mask(size.min(4))) as u32);
                if size == 8 {
                    self.write_register(&mut state, offset + 4, (value >> 32) as u32);
                }
            }
            Bar::Bar1 => state.bar1.store(offset, &value.to_le_bytes()[..size]),
        }
    }

    /// Reads a run of BAR1 as 8-byte accesses would; shorter where BAR1 ends.
    #[must_use]
    pub fn read_block(&self, offset: u32, bytes: usize) -> Vec<u8> {
        self.counts.read(Bar::Bar1, bytes.div_ceil(8) as u64);
        lock(&self.state).bar1.load_block(offset, bytes)
    }

    /// Writes a run of BAR1 as 8-byte accesses would.
    pub fn write_block(&self, offset: u32, bytes: &[u8]) {
        self.counts.write(Bar::Bar1, bytes.len().div_ceil(8) as u64);
        lock(&self.state).bar1.store(offset, bytes);
    }

    fn write_register(&self, state: &mut State, offset: u32, value: u32) {
        match state.registers.write(offset, value) {
            Effect::None => {}
            Effect::Submit => {
                self.counts.doorbell();
                self.submit(state);
            }
            Effect::Legacy => state.legacy(),
            Effect::Register => self.register(state),
            Effect::Release => {
                state.drop_window();
                state.set(DONE);
            }
        }
    }

    /// `SHMEM_CTRL = 1`
    fn register(&self, state: &mut State) {
        // The old one is gone, whatever comes of the new one (Q9).
        state.drop_window();
        let staged = &state.registers.staged;
        let window = Window { address: staged.gpa, half: staged.window_bytes / 2, token: staged.scratch };
        if staged.window_bytes < WINDOW_MIN_BYTES {
            state.fail(ErrorCode::InvalidLength);
        } else if !self.memory.map(window.address, staged.window_bytes.into()) {
            state.fail(ErrorCode::InvalidRequest);
        } else {
            state.window = Some(window);
            state.registers.shown.window = true;
            state.registers.shown.error = 0;
            state.set(DONE);
        }
    }

    /// The window as far as it exists for calls of a token.
    fn window_for(&self, state: &State, token: u32) -> Option<Window> {
        state.window.filter(|window| !self.properties.window_of_its_owner || window.token == token)
    }

    /// `CUDA_DOORBELL = 1`
    fn submit(&self, state: &mut State) {
        state.registers.shown.error = 0;
        state.registers.shown.clear_results();
        state.set(BUSY);
        let request_id = state.next_request;
        state.next_request = request_id.checked_add(1).unwrap_or(1);
        let staged = &state.registers.staged;
        state.pending = Some(Pending { request_id, op: staged.op, seq: staged.seq, token: staged.scratch });
        let data = match self.payload(state) {
            Ok(data) => data,
            Err(why) => return state.fail(why),
        };
        let submission = self.submission(state, request_id, data);
        let unreachable = || LinkError::Unreachable(std::io::ErrorKind::NotConnected.into());
        // Deliveries wait for the state: what comes of a call is not told before its connection is known.
        match self.link.get().ok_or_else(unreachable).and_then(|link| link.send(submission)) {
            Ok(connection) => state.connection = connection,
            Err(error) => {
                tracing::warn!(vm = self.properties.vm_id, request_id, "{error}");
                match error {
                    LinkError::Unreachable(_) => state.fail(ErrorCode::MediatorUnavailable),
                    LinkError::Send(_) => state.unsent(),
                }
            }
        }
    }

    fn submission(&self, state: &State, request_id: u32, data: Vec<u8>) -> Submission {
        let staged = &state.registers.staged;
        let vm_id = self.properties.vm_id;
        let num_args = staged.num_args as usize;
        let mut args = [U32::ZERO; vgpu_wire::v1::ARGS];
        for (to, from) in args.iter_mut().zip(&staged.args[..num_args]) {
            *to = (*from).into();
        }
        let call = Call {
            magic: MAGIC.into(),
            op: staged.op.into(),
            seq: staged.seq.into(),
            owner: owner(vm_id, staged.scratch).into(),
            num_args: staged.num_args.into(),
            // What the guest said, though less may follow (Q7).
            data_len: staged.data_len.into(),
            args,
        };
        let bytes = (size_of::<Call>() + data.len()) as u32;
        let mut header = Header::new(CUDA_CALL, vm_id, request_id, bytes);
        header.pool = self.properties.pool.ascii();
        header.priority = self.properties.priority as u8;
        Submission { header, call, data }
    }

    /// The call's payload, from where the rules say that it is.
    fn payload(&self, state: &State) -> Result<Vec<u8>, ErrorCode> {
        let staged = &state.registers.staged;
        let window = self.window_for(state, staged.scratch);
        let half = window.map_or(0, |window| window.half);
        let seen = self.prefixes(state, window);
        let (place, bytes) =
            route::to_host(staged.op, staged.data_len, half, seen, self.properties.preferences);
        let length = bytes as usize;
        Ok(match place {
            Place::Nowhere => Vec::new(),
            Place::Inline => staged.inline[..length].to_vec(),
            Place::Bar1 => {
                let mut data = room(length)?;
                data.copy_from_slice(state.bar1.get(BAR1_TO_HOST, length));
                data
            }
            Place::Window => {
                let window = window.ok_or(ErrorCode::RequestTooLarge)?;
                // The guest may have let go of the pages since it registered them.
                if call::is_bulk(staged.op) && !self.memory.map(window.address, window.half.into()) {
                    return Err(ErrorCode::InvalidRequest);
                }
                let mut data = room(length)?;
                if !self.memory.read(window.address, &mut data) {
                    return Err(ErrorCode::InvalidRequest);
                }
                data
            }
        })
    }

    /// Whether something lies where a bulk payload can be; looked at only where that decides.
    fn prefixes(&self, state: &State, window: Option<Window>) -> Prefixes {
        let staged = &state.registers.staged;
        let (Some(window), true) = (window, call::is_bulk(staged.op)) else { return Prefixes::default() };
        if staged.data_len <= INLINE_BYTES {
            return Prefixes::default();
        }
        let length = staged.data_len.min(PREFIX_BYTES) as usize;
        let any = |bytes: &[u8]| bytes.iter().any(|&byte| byte != 0);
        let mut prefix = [0; PREFIX_BYTES as usize];
        let prefix = &mut prefix[..length];
        let window_prefix = self.memory.read(window.address, prefix) && any(prefix);
        let fresh = window_prefix || (self.memory.read(window.address, prefix) && any(prefix));
        Prefixes {
            window: window_prefix,
            window_fresh: fresh,
            bar1: any(state.bar1.get(BAR1_TO_HOST, length)),
        }
    }

    /// Something comes from the mediator.
    pub(super) fn deliver(&self, delivery: Delivery<'_>) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        match delivery {
            Delivery::Result { request_id, outcome, data } => self.result(state, request_id, outcome, data),
            Delivery::Busy => state.fail(ErrorCode::RateLimited),
            Delivery::Quarantined => state.fail(ErrorCode::Quarantined),
            Delivery::Unsent { connection } => {
                if state.registers.shown.status == BUSY && state.connection == connection {
                    state.unsent();
                }
            }
            Delivery::Closed { connection } => {
                // The end of an older connection is nothing to a call that went by a newer one.
                if state.registers.shown.status == BUSY && state.connection == connection {
                    state.fail(ErrorCode::MediatorUnavailable);
                }
            }
        }
    }

    fn result(&self, state: &mut State, request_id: u32, outcome: Option<&Outcome>, data: &[u8]) {
        let Some(pending) = state.pending else { return };
        if pending.request_id != request_id {
            let seq = outcome.map_or(!pending.seq, |outcome| outcome.seq.get());
            if !state.takes_late(pending, request_id, seq) {
                tracing::debug!(
                    request_id,
                    pending = pending.request_id,
                    "an answer is dropped: it is of another call"
                );
                return;
            }
        }
        state.pending = None;
        let Some(outcome) = outcome else { return state.fail(ErrorCode::InvalidRequest) };
        let shown = &mut state.registers.shown;
        shown.result_status = outcome.status.get();
        shown.result_num = outcome.num_results.get();
        shown.result_data_len = outcome.data_len.get();
        for (to, from) in shown.results.iter_mut().zip(outcome.results).take(shown.result_num as usize) {
            *to = from.get();
        }
        let delivered = self.put(state, pending.token, data);
        let shown = &mut state.registers.shown;
        shown.timestamp = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
        shown.response_len = 1;
        match (delivered, shown.result_status) {
            (false, _) => state.fail(ErrorCode::InvalidRequest),
            (true, 0) => state.set(DONE),
            (true, _) => state.fail(ErrorCode::Cuda),
        }
    }

    /// Writes the answer's payload to where the rules say; false: the guest's pages are not there any more.
    fn put(&self, state: &mut State, token: u32, data: &[u8]) -> bool {
        let window = self.window_for(state, token);
        let (place, bytes) = route::to_guest(data.len() as u32, window.map_or(0, |window| window.half));
        let data = &data[..bytes as usize];
        match (place, window) {
            (Place::Nowhere, _) => true,
            (Place::Inline, _) => {
                state.registers.shown.inline[..data.len()].copy_from_slice(data);
                true
            }
            (Place::Window, Some(window)) => self.memory.write(window.address + u64::from(window.half), data),
            (Place::Window | Place::Bar1, _) => {
                state.bar1.answer(BAR1_TO_GUEST, data);
                true
            }
        }
    }
}

impl State {
    /// A new status, in BAR0 and in BAR1.
    fn set(&mut self, status: u32) {
        self.registers.shown.status = status;
        self.bar1.show(status);
    }

    fn fail(&mut self, why: ErrorCode) {
        self.registers.shown.error = why as u32;
        self.set(ERROR);
    }

    /// The mediator does not take the call. BAR1 goes on saying that it is on its way (Q5).
    fn unsent(&mut self) {
        self.registers.shown.error = ErrorCode::MediatorUnavailable as u32;
        self.registers.shown.status = ERROR;
    }

    fn drop_window(&mut self) {
        self.window = None;
        self.registers.shown.window = false;
    }

    /// Whether an answer to an older call is taken for the pending one.
    fn takes_late(&self, pending: Pending, request_id: u32, seq: u32) -> bool {
        let lag = pending.request_id.wrapping_sub(request_id);
        self.registers.shown.status == BUSY
            && BOOTSTRAP.iter().any(|op| *op as u32 == pending.op)
            && seq == pending.seq
            && (1..=LAG_MOST).contains(&lag)
    }

    /// `DOORBELL = 1`: nothing that runs uses the legacy path, which the CUDA registers overlap (Q2), and no mediator is asked.
    fn legacy(&mut self) {
        self.registers.shown.clear_results();
        self.fail(match self.registers.staged.legacy_len {
            0 => ErrorCode::InvalidLength,
            1..=INLINE_BYTES => ErrorCode::UnsupportedOp,
            _ => ErrorCode::RequestTooLarge,
        });
    }
}

/// Room for a payload. The guest says how long it is, up to half of a window of any size: the host may not have that much.
fn room(bytes: usize) -> Result<Vec<u8>, ErrorCode> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| ErrorCode::RequestTooLarge)?;
    room.resize(bytes, 0);
    Ok(room)
}

/// Whether a bus lets an access through: 1 to 8 bytes, aligned to their number.
fn is_access(offset: u32, size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8) && offset.is_multiple_of(size as u32) && offset.checked_add(8).is_some()
}

pub(super) const fn mask(size: usize) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 }
}
