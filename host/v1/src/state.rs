//! The state of a version 1 device between accesses: registers, BAR1, the window, and the pending call.

use vgpu_device::Awake;
use vgpu_wire::v1::INLINE_BYTES;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers::{BUSY, ERROR, ErrorCode};

use super::bar1::Bar1;
use super::registers::{Identity, Registers};

/// Operations of a guest's start whose late answers are accepted although another call is pending.
const BOOTSTRAP: [Op; 6] =
    [Op::Init, Op::GetGpuInfo, Op::DeviceGetCount, Op::DeviceGet, Op::PrimaryCtxRetain, Op::CtxSetCurrent];
/// Largest number of calls by which a late answer that is accepted may be older than the pending call.
const LAG_MOST: u32 = 4;

/// The registered window in the guest's pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) address: u64,
    /// Size of each half in bytes.
    pub(super) half: u32,
    /// Value of `SCRATCH` at the time of registration.
    pub(super) token: u32,
}

/// The call whose answer the device waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) request_id: u32,
    pub(super) op: u32,
    pub(super) seq: u32,
    pub(super) token: u32,
}

/// All state that an access can change.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub(super) registers: Registers,
    pub(super) bar1: Bar1,
    pub(super) window: Option<Window>,
    pub(super) pending: Option<Pending>,
    /// Number of the connection on which the newest call was sent.
    pub(super) connection: u64,
    pub(super) next_request: u32,
    /// Counts a working thread of this machine while the status is `BUSY`. Whoever executes the call needs a
    /// processor, which a thread that spins for the guest's next access would take.
    working: Option<Awake>,
}

impl DeviceState {
    /// Returns the state of a new device.
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            registers: Registers::new(identity),
            bar1: Bar1::new(),
            window: None,
            pending: None,
            connection: 0,
            next_request: 1,
            working: None,
        }
    }

    /// Shows a status, in BAR0 and in BAR1.
    pub(super) fn set(&mut self, status: u32) {
        self.set_in_bar0(status);
        self.bar1.show(status);
    }

    fn set_in_bar0(&mut self, status: u32) {
        self.registers.shown.status = status;
        if status == BUSY {
            self.working.get_or_insert_with(Awake::start);
        } else {
            self.working = None;
        }
    }

    /// Shows status `ERROR` with this code, because the call or another request has failed.
    pub(super) fn fail(&mut self, why: ErrorCode) {
        self.registers.shown.error = why as u32;
        self.set(ERROR);
    }

    /// Shows that the mediator did not accept the call. BAR1 still shows the call as busy (Q5).
    pub(super) fn unsent(&mut self) {
        self.registers.shown.error = ErrorCode::MediatorUnavailable as u32;
        self.set_in_bar0(ERROR);
    }

    /// Releases the window, if one is registered. Later payloads are inline or in BAR1.
    pub(super) fn drop_window(&mut self) {
        self.window = None;
        self.registers.shown.window = false;
    }

    /// Returns whether the answer to an older call is accepted as that of the pending one.
    pub(super) fn takes_late(&self, pending: Pending, request_id: u32, seq: u32) -> bool {
        let lag = pending.request_id.wrapping_sub(request_id);
        self.registers.shown.status == BUSY
            && BOOTSTRAP.iter().any(|op| *op as u32 == pending.op)
            && seq == pending.seq
            && (1..=LAG_MOST).contains(&lag)
    }

    /// Handles `DOORBELL = 1`, the legacy path, which the CUDA registers overlap (Q2). No existing guest uses
    /// it, and no mediator takes part.
    pub(super) fn legacy(&mut self) {
        self.registers.shown.clear_results();
        self.fail(match self.registers.staged.legacy_len {
            0 => ErrorCode::InvalidLength,
            1..=INLINE_BYTES => ErrorCode::UnsupportedOp,
            _ => ErrorCode::RequestTooLarge,
        });
    }
}
