//! The device: what each access does, and the states of a call from doorbell to answer. It is independent of
//! the bus, which passes accesses as BAR, offset and size.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use vgpu_device::{Accesses, GuestMemory, Longest, lock};
use vgpu_wire::v1::frame::{CUDA_CALL, Call, Header, MAGIC, Outcome};
use vgpu_wire::v1::registers::{BUSY, DONE, ErrorCode};
use vgpu_wire::v1::{WINDOW_MIN_BYTES, owner};
use zerocopy::little_endian::U32;

use super::access::{Bar, is_access, mask};
use super::counts::Counts;
use super::hooks::TestHooks;
use super::link::{Delivery, Link, LinkError, Submission};
use super::payload;
use super::properties::Properties;
use super::registers::{Effect, Identity};
use super::state::{DeviceState, Pending, Window};

/// A version 1 function. Accesses may come from any thread; one at a time is executed, as in a hypervisor.
#[derive(Debug)]
pub struct Device {
    properties: Properties,
    memory: Arc<dyn GuestMemory>,
    epoch: Instant,
    state: Mutex<DeviceState>,
    counts: Counts,
    longest: Longest,
    link: OnceLock<Box<dyn Link>>,
}

impl Device {
    /// Makes a device for a guest with this memory. Until it has a link ([`Device::attach`]), each call fails
    /// with [`ErrorCode::MediatorUnavailable`].
    pub fn new(properties: Properties, memory: Arc<dyn GuestMemory>) -> Arc<Self> {
        Self::with_hooks(properties, TestHooks::default(), memory)
    }

    /// Makes a device as [`Device::new`] does, with hooks for tests of guests.
    pub fn with_hooks(properties: Properties, hooks: TestHooks, memory: Arc<dyn GuestMemory>) -> Arc<Self> {
        let identity = Identity {
            pool: properties.pool.ascii(),
            priority: properties.priority as u8,
            vm_id: properties.vm_id,
            protocol: hooks.protocol.unwrap_or(vgpu_wire::registers::PROTOCOL_V1),
        };
        let state = DeviceState::new(identity);
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

    /// Returns the inlet to which a link delivers answers.
    #[must_use]
    pub fn inlet(self: &Arc<Self>) -> Inlet {
        Inlet(Arc::downgrade(self))
    }

    /// Sets the link of the device. Only the first call has an effect.
    pub fn attach(&self, link: Box<dyn Link>) {
        // A second link would be a mistake of the bus. It is ignored.
        let _ = self.link.set(link);
    }

    /// Returns the properties with which the device was made.
    #[must_use]
    pub const fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the number of accesses so far, for each BAR.
    #[must_use]
    pub fn accesses(&self) -> Accesses {
        self.counts.get()
    }

    /// Returns the duration of the longest access to a BAR so far, in microseconds.
    #[must_use]
    pub fn longest_access_us(&self) -> u64 {
        self.longest.access_us()
    }

    /// Reads `size` bytes, which is 1, 2, 4 or 8, at `offset`. Returns 0 for an access that no bus delivers.
    #[must_use]
    pub fn read(&self, bar: Bar, offset: u32, size: usize) -> u64 {
        if !is_access(offset, size) {
            return 0;
        }
        self.counts.read(bar, 1);
        let _timed = self.longest.access();
        let state = lock(&self.state);
        match bar {
            // The registers implement 4-byte accesses. A wider access becomes two, and a narrower one reads 4
            // bytes from its offset (Q1).
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

    /// Writes the low `size` bytes of `value`, 1, 2, 4 or 8, at `offset`. The effects of the write are
    /// complete when this returns, except that a submitted call is only sent or queued.
    pub fn write(&self, bar: Bar, offset: u32, size: usize, value: u64) {
        if !is_access(offset, size) {
            return;
        }
        self.counts.write(bar, 1);
        let _timed = self.longest.access();
        let mut state = lock(&self.state);
        match bar {
            Bar::Bar0 => {
                // A narrower store is widened: it misses the register, or overwrites the neighbouring bytes
                // (Q1).
                self.write_register(&mut state, offset, (value & mask(size.min(4))) as u32);
                if size == 8 {
                    self.write_register(&mut state, offset + 4, (value >> 32) as u32);
                }
            }
            Bar::Bar1 => state.bar1.store(offset, &value.to_le_bytes()[..size]),
        }
    }

    /// Reads a range of BAR1 as 8-byte accesses would, and counts those. The result is shorter if BAR1 ends
    /// within the range.
    #[must_use]
    pub fn read_block(&self, offset: u32, bytes: usize) -> Vec<u8> {
        self.counts.read(Bar::Bar1, bytes.div_ceil(8) as u64);
        lock(&self.state).bar1.load_block(offset, bytes)
    }

    /// Writes a range of BAR1 as 8-byte accesses would, and counts those. Bytes beyond the end and the status
    /// are dropped.
    pub fn write_block(&self, offset: u32, bytes: &[u8]) {
        self.counts.write(Bar::Bar1, bytes.len().div_ceil(8) as u64);
        lock(&self.state).bar1.store(offset, bytes);
    }

    fn write_register(&self, state: &mut DeviceState, offset: u32, value: u32) {
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

    /// Handles the write `SHMEM_CTRL = 1`, which registers guest pages as the window. Shows
    /// [`ErrorCode::InvalidLength`] if they are too few, and [`ErrorCode::InvalidRequest`] if the guest has
    /// no such pages.
    fn register(&self, state: &mut DeviceState) {
        // The old window is released even if the new one cannot be registered (Q9).
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

    /// Handles the write `CUDA_DOORBELL = 1`, which submits the staged call to the mediator. It does not wait
    /// for the answer.
    fn submit(&self, state: &mut DeviceState) {
        state.registers.shown.error = 0;
        state.registers.shown.clear_results();
        state.set(BUSY);
        let request_id = state.next_request;
        state.next_request = request_id.checked_add(1).unwrap_or(1);
        let staged = &state.registers.staged;
        state.pending = Some(Pending { request_id, op: staged.op, seq: staged.seq, token: staged.scratch });
        let data = match payload::fetch(state, &*self.memory, &self.properties) {
            Ok(data) => data,
            Err(why) => return state.fail(why),
        };
        let submission = self.submission(state, request_id, data);
        let unreachable = || LinkError::Unreachable(std::io::ErrorKind::NotConnected.into());
        // Deliveries lock the state, so no answer is handled before the connection of its call is known.
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

    fn submission(&self, state: &DeviceState, request_id: u32, data: Vec<u8>) -> Submission {
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
            // The length that the guest stated, although less payload may follow (Q7).
            data_len: staged.data_len.into(),
            args,
        };
        let bytes = (size_of::<Call>() + data.len()) as u32;
        let mut header = Header::new(CUDA_CALL, vm_id, request_id, bytes);
        header.pool = self.properties.pool.ascii();
        header.priority = self.properties.priority as u8;
        Submission { header, call, data }
    }

    /// Handles a result or a notice from the mediator. A result of another call than the pending one is
    /// dropped.
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
                // The end of an older connection does not affect a call that was sent on a newer one.
                if state.registers.shown.status == BUSY && state.connection == connection {
                    state.fail(ErrorCode::MediatorUnavailable);
                }
            }
        }
    }

    fn result(&self, state: &mut DeviceState, request_id: u32, outcome: Option<&Outcome>, data: &[u8]) {
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
        let delivered = payload::put(state, &*self.memory, &self.properties, pending.token, data);
        let shown = &mut state.registers.shown;
        shown.timestamp = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
        shown.response_len = 1;
        match (delivered, shown.result_status) {
            (false, _) => state.fail(ErrorCode::InvalidRequest),
            (true, 0) => state.set(DONE),
            (true, _) => state.fail(ErrorCode::Cuda),
        }
    }
}

/// A weak reference to a device, to which a link delivers answers.
#[derive(Clone, Debug)]
pub struct Inlet(Weak<Device>);

impl Inlet {
    /// Passes a delivery to the device. Returns false if the device is gone.
    pub fn deliver(&self, delivery: Delivery<'_>) -> bool {
        self.0.upgrade().map(|device| device.deliver(delivery)).is_some()
    }
}
