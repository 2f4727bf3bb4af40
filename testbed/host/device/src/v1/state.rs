//! What a device of version 1 remembers between accesses: its registers, BAR1, the window, and the call that
//! is on its way.

use vgpu_wire::v1::INLINE_BYTES;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers::{BUSY, ERROR, ErrorCode};

use super::bar1::Bar1;
use super::registers::{Identity, Registers};

/// Calls whose late answers are taken though another is pending.
const BOOTSTRAP: [Op; 6] =
    [Op::Init, Op::GetGpuInfo, Op::DeviceGetCount, Op::DeviceGet, Op::PrimaryCtxRetain, Op::CtxSetCurrent];
/// How much older such an answer may be.
const LAG_MOST: u32 = 4;

/// Guest pages that are registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) address: u64,
    /// Bytes of each half.
    pub(super) half: u32,
    /// `SCRATCH` at that time.
    pub(super) token: u32,
}

/// The call that is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) request_id: u32,
    pub(super) op: u32,
    pub(super) seq: u32,
    pub(super) token: u32,
}

/// What an access changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) registers: Registers,
    pub(super) bar1: Bar1,
    pub(super) window: Option<Window>,
    pub(super) pending: Option<Pending>,
    /// By which the newest call went.
    pub(super) connection: u64,
    pub(super) next_request: u32,
}

impl State {
    /// A device that has just been made.
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            registers: Registers::new(identity),
            bar1: Bar1::new(),
            window: None,
            pending: None,
            connection: 0,
            next_request: 1,
        }
    }

    /// A new status, in BAR0 and in BAR1.
    pub(super) fn set(&mut self, status: u32) {
        self.registers.shown.status = status;
        self.bar1.show(status);
    }

    /// The call, or what was asked, has failed.
    pub(super) fn fail(&mut self, why: ErrorCode) {
        self.registers.shown.error = why as u32;
        self.set(ERROR);
    }

    /// The mediator does not take the call. BAR1 goes on saying that it is on its way (Q5).
    pub(super) fn unsent(&mut self) {
        self.registers.shown.error = ErrorCode::MediatorUnavailable as u32;
        self.registers.shown.status = ERROR;
    }

    /// The guest's pages are registered no more.
    pub(super) fn drop_window(&mut self) {
        self.window = None;
        self.registers.shown.window = false;
    }

    /// Whether an answer to an older call is taken for the pending one.
    pub(super) fn takes_late(&self, pending: Pending, request_id: u32, seq: u32) -> bool {
        let lag = pending.request_id.wrapping_sub(request_id);
        self.registers.shown.status == BUSY
            && BOOTSTRAP.iter().any(|op| *op as u32 == pending.op)
            && seq == pending.seq
            && (1..=LAG_MOST).contains(&lag)
    }

    /// `DOORBELL = 1`: nothing that runs uses the legacy path, which the CUDA registers overlap (Q2), and no
    /// mediator is asked.
    pub(super) fn legacy(&mut self) {
        self.registers.shown.clear_results();
        self.fail(match self.registers.staged.legacy_len {
            0 => ErrorCode::InvalidLength,
            1..=INLINE_BYTES => ErrorCode::UnsupportedOp,
            _ => ErrorCode::RequestTooLarge,
        });
    }
}
