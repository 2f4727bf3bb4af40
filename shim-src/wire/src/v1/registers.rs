//! Version 1's BAR0 and BAR1. Aligned 32-bit accesses only (Q1); what is not named reads 0 and ignores writes. All staging
//! registers keep their values from call to call. Names: `vgpu_protocol.h`, `cuda_protocol.h`.

/// Write 1: submits a request of the legacy path, which the CUDA registers overlap and nobody uses (Q2).
pub const DOORBELL: u32 = 0x000;
/// Read: [`IDLE`], [`BUSY`], [`DONE`] or [`ERROR`]; stays until the next doorbell or [`SHMEM_CTRL`] write (Q4).
pub const STATUS: u32 = 0x004;
/// Read: ASCII of the pool, `A` or `B`.
pub const POOL_ID: u32 = 0x008;
/// Read: priority 0 to 2.
pub const PRIORITY: u32 = 0x00c;
/// Read: why [`STATUS`] is [`ERROR`]: an [`ErrorCode`]; 0 after each doorbell.
pub const ERROR_CODE: u32 = 0x014;
/// Read and write: length of a legacy request.
pub const REQUEST_LEN: u32 = 0x018;
/// Read: 0 at the doorbell, 1 when a result has been stored, before [`STATUS`] changes.
pub const RESPONSE_LEN: u32 = 0x01c;
/// Read and write: bit 0 is kept and means nothing.
pub const IRQ_CTRL: u32 = 0x028;
/// Read: 0. No interrupt ever comes.
pub const IRQ_STATUS: u32 = 0x02c;
/// Read and write: id of a legacy request.
pub const REQUEST_ID: u32 = 0x030;
/// Read: the host's clock in µs when the last call ended, low half.
pub const TIMESTAMP_LO: u32 = 0x034;
/// Read: the high half.
pub const TIMESTAMP_HI: u32 = 0x038;
/// Read and write: the guest process's token, which names the owner of all that the call makes.
pub const SCRATCH: u32 = 0x03c;
/// First byte of the legacy request buffer, of which 64 bytes can be reached.
pub const LEGACY_REQUEST: u32 = 0x040;
/// Behind its last byte.
pub const LEGACY_REQUEST_END: u32 = 0x080;
/// Read and write: number of the call, a [`super::call::Op`].
pub const CUDA_OP: u32 = 0x080;
/// Read and write: comes back in the result's frame, and means nothing else.
pub const CUDA_SEQ: u32 = 0x084;
/// Read and write: how many arguments travel; more than 16 count as 16.
pub const CUDA_NUM_ARGS: u32 = 0x088;
/// Read and write: bytes of payload.
pub const CUDA_DATA_LEN: u32 = 0x08c;
/// Write 1: submits the call. When the write has been answered, [`STATUS`] is no longer the previous call's.
pub const CUDA_DOORBELL: u32 = 0x0a8;
/// Read and write: the first argument, 16 of 4 bytes.
pub const CUDA_ARGS: u32 = 0x0b0;
/// Read: the call's `CUresult`.
pub const RESULT_STATUS: u32 = 0x0f0;
/// Read: how many results.
pub const RESULT_NUM: u32 = 0x0f4;
/// Read: bytes of payload that came back, as the host claims.
pub const RESULT_DATA_LEN: u32 = 0x0f8;
/// Read and write: payload of up to [`super::INLINE_BYTES`].
pub const INLINE_REQUEST: u32 = 0x100;
/// Read: payload that came back, up to [`super::INLINE_BYTES`]; zeros after each doorbell.
pub const INLINE_RESPONSE: u32 = 0x500;
/// Read: 8 results of 64 bits, low half first; zeros after each doorbell.
pub const RESULTS: u32 = 0x900;
/// Read and write: guest-physical address of the shared window, low half.
pub const SHMEM_GPA_LO: u32 = 0x940;
/// Read and write: the high half.
pub const SHMEM_GPA_HI: u32 = 0x944;
/// Read and write: its size in bytes, both halves.
pub const SHMEM_SIZE: u32 = 0x948;
/// Write [`SHMEM_REGISTER`] or [`SHMEM_RELEASE`]; reads 1 while a window is registered. Changes [`STATUS`] (Q4).
pub const SHMEM_CTRL: u32 = 0x94c;

/// [`SHMEM_CTRL`]: the range in the three registers becomes the function's one window. If it fails, there is none (Q9).
pub const SHMEM_REGISTER: u32 = 1;
/// [`SHMEM_CTRL`]: no window. Leaves [`ERROR_CODE`] as it was.
pub const SHMEM_RELEASE: u32 = 0;

/// What is always written to a doorbell.
pub const RING: u32 = 1;

/// [`STATUS`]: no call yet.
pub const IDLE: u32 = 0;
/// [`STATUS`]: a call is on its way.
pub const BUSY: u32 = 1;
/// [`STATUS`]: the call is done, its `CUresult` is 0.
pub const DONE: u32 = 2;
/// [`STATUS`]: it is not; [`ERROR_CODE`] says why.
pub const ERROR: u32 = 3;

/// All that every version 1 device has: basic, CUDA remoting, BAR1, shared window.
pub const CAPABILITIES: u32 = crate::registers::CAP_BASIC
    | crate::registers::CAP_CUDA
    | crate::registers::CAP_BAR1
    | crate::registers::CAP_SHMEM;

/// BAR1: where payload for the host begins.
pub const BAR1_TO_HOST: u32 = 0;
/// BAR1: where payload for the guest begins.
pub const BAR1_TO_GUEST: u32 = 0x80_0000;
/// BAR1: reads [`STATUS`], also where payload lies below (Q3); the low half of a load of 8 bytes that ends in it is 0 (Q28); not brought up to date when a send fails (Q5).
pub const BAR1_STATUS: u32 = 0xff_fffc;

/// [`ERROR_CODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// The window's address cannot be mapped or read, or the mediator's frame was too short.
    InvalidRequest = 1,
    /// No place for the payload.
    RequestTooLarge = 2,
    /// The mediator cannot be reached, or hung up.
    MediatorUnavailable = 3,
    /// Never said by a device; a guest's own.
    Timeout = 4,
    /// The call's `CUresult` is not 0: `RESULT_STATUS` has it. Ordinary for queries.
    Cuda = 5,
    /// Never used.
    InvalidPool = 6,
    /// Legacy path only.
    QueueFull = 7,
    /// Never used: a call that the host does not know ends in [`ErrorCode::Cuda`] with 801.
    UnsupportedOp = 8,
    /// A window below [`super::WINDOW_MIN_BYTES`], or an empty legacy request.
    InvalidLength = 9,
    /// The mediator turned the call away, for now: a virtual machine's rate is limited (Q23).
    RateLimited = 0x0a,
    /// The mediator turned the call away, until an administrator of the host changes that.
    Quarantined = 0x0b,
}

impl TryFrom<u32> for ErrorCode {
    type Error = u32;

    fn try_from(value: u32) -> Result<Self, u32> {
        Ok(match value {
            1 => Self::InvalidRequest,
            2 => Self::RequestTooLarge,
            3 => Self::MediatorUnavailable,
            4 => Self::Timeout,
            5 => Self::Cuda,
            6 => Self::InvalidPool,
            7 => Self::QueueFull,
            8 => Self::UnsupportedOp,
            9 => Self::InvalidLength,
            0x0a => Self::RateLimited,
            0x0b => Self::Quarantined,
            other => return Err(other),
        })
    }
}
