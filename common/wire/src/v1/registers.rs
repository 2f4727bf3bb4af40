//! Registers of version 1 in BAR0, and offsets in BAR1. Accesses must be aligned and 32 bits wide (Q1); other
//! offsets read 0 and ignore writes. All staging registers keep their values from call to call. Names:
//! `vgpu_protocol.h`, `cuda_protocol.h`.

/// Write 1: submits a request of the legacy path, which the CUDA registers overlap and nobody uses (Q2).
pub const DOORBELL: u32 = 0x000;
/// Read: state of the call, [`IDLE`], [`BUSY`], [`DONE`] or [`ERROR`]. It stays until the next doorbell or
/// the next write of [`SHMEM_CTRL`] (Q4).
pub const STATUS: u32 = 0x004;
/// Read: name of the pool as one ASCII letter, `A` or `B`.
pub const POOL_ID: u32 = 0x008;
/// Read: priority of the virtual machine: 0 low, 1 medium, 2 high.
pub const PRIORITY: u32 = 0x00c;
/// Read: an [`ErrorCode`] that says why [`STATUS`] is [`ERROR`]; 0 after each doorbell.
pub const ERROR_CODE: u32 = 0x014;
/// Read and write: length in bytes of a legacy request.
pub const REQUEST_LEN: u32 = 0x018;
/// Read: 0 after a doorbell, and 1 once the results are stored, just before [`STATUS`] changes.
pub const RESPONSE_LEN: u32 = 0x01c;
/// Read and write: bit 0 is kept and has no effect.
pub const IRQ_CTRL: u32 = 0x028;
/// Read: 0, because the device raises no interrupts.
pub const IRQ_STATUS: u32 = 0x02c;
/// Read and write: number of a legacy request.
pub const REQUEST_ID: u32 = 0x030;
/// Read: when the last call ended, in microseconds of the host's clock, low half.
pub const TIMESTAMP_LO: u32 = 0x034;
/// Read: high half of [`TIMESTAMP_LO`].
pub const TIMESTAMP_HI: u32 = 0x038;
/// Read and write: token of the guest process, which owns all objects that the call creates.
pub const SCRATCH: u32 = 0x03c;
/// Offset of the legacy request buffer, of which 64 bytes can be reached.
pub const LEGACY_REQUEST: u32 = 0x040;
/// Offset of the end of the legacy request buffer.
pub const LEGACY_REQUEST_END: u32 = 0x080;
/// Read and write: number of the call, a [`super::call::Op`].
pub const CUDA_OP: u32 = 0x080;
/// Read and write: number that the guest gives the call, which the result's frame repeats.
pub const CUDA_SEQ: u32 = 0x084;
/// Read and write: number of arguments that the device sends; more than 16 count as 16.
pub const CUDA_NUM_ARGS: u32 = 0x088;
/// Read and write: length of the payload in bytes.
pub const CUDA_DATA_LEN: u32 = 0x08c;
/// Write 1: submits the call. Once the write has been answered, [`STATUS`] is that of this call.
pub const CUDA_DOORBELL: u32 = 0x0a8;
/// Read and write: the first of 16 arguments of 4 bytes.
pub const CUDA_ARGS: u32 = 0x0b0;
/// Read: `CUresult` of the call.
pub const RESULT_STATUS: u32 = 0x0f0;
/// Read: number of results, as the host states it.
pub const RESULT_NUM: u32 = 0x0f4;
/// Read: length in bytes of the payload that came back, as the host states it.
pub const RESULT_DATA_LEN: u32 = 0x0f8;
/// Read and write: payload of up to [`super::INLINE_BYTES`] bytes for the host.
pub const INLINE_REQUEST: u32 = 0x100;
/// Read: payload of up to [`super::INLINE_BYTES`] bytes that came back; zeros after each doorbell.
pub const INLINE_RESPONSE: u32 = 0x500;
/// Read: 8 results of 64 bits, low half first; zeros after each doorbell.
pub const RESULTS: u32 = 0x900;
/// Read and write: guest-physical address of the shared window, low half.
pub const SHMEM_GPA_LO: u32 = 0x940;
/// Read and write: high half of [`SHMEM_GPA_LO`].
pub const SHMEM_GPA_HI: u32 = 0x944;
/// Read and write: length of the shared window in bytes, both halves together.
pub const SHMEM_SIZE: u32 = 0x948;
/// Write: [`SHMEM_REGISTER`] or [`SHMEM_RELEASE`], which also changes [`STATUS`] (Q4). Read: 1 while a window
/// is registered.
pub const SHMEM_CTRL: u32 = 0x94c;

/// [`SHMEM_CTRL`]: the range in the three registers becomes the function's only window. If that fails, the
/// function has none (Q9).
pub const SHMEM_REGISTER: u32 = 1;
/// [`SHMEM_CTRL`]: the function has no window any more. [`ERROR_CODE`] stays as it was.
pub const SHMEM_RELEASE: u32 = 0;

/// The value to write to a doorbell; others are ignored.
pub const RING: u32 = 1;

/// [`STATUS`]: no call has been submitted yet.
pub const IDLE: u32 = 0;
/// [`STATUS`]: a call is in progress.
pub const BUSY: u32 = 1;
/// [`STATUS`]: the call has completed with `CUresult` 0.
pub const DONE: u32 = 2;
/// [`STATUS`]: the call has failed; [`ERROR_CODE`] says why.
pub const ERROR: u32 = 3;

/// Capabilities that every version 1 device reports: basic, CUDA remoting, BAR1, shared window.
pub const CAPABILITIES: u32 = crate::registers::CAP_BASIC
    | crate::registers::CAP_CUDA
    | crate::registers::CAP_BAR1
    | crate::registers::CAP_SHMEM;

/// Offset in BAR1 of payload for the host.
pub const BAR1_TO_HOST: u32 = 0;
/// Offset in BAR1 of payload for the guest.
pub const BAR1_TO_GUEST: u32 = 0x80_0000;
/// Offset in BAR1 of a copy of [`STATUS`], which hides payload that lies there (Q3). In a load of 8 bytes
/// that ends with it, the low half reads 0 (Q28). The device does not update it when a send to the mediator
/// fails (Q5).
pub const BAR1_STATUS: u32 = 0xff_fffc;

register_enum! {
    /// Values of [`ERROR_CODE`].
    pub enum ErrorCode {
        /// The window's address cannot be mapped or read, or the mediator's frame was too short.
        InvalidRequest = 1,
        /// A payload of this length fits none of the places.
        RequestTooLarge = 2,
        /// The mediator cannot be reached, or closed the connection.
        MediatorUnavailable = 3,
        /// Guests report their own timeouts by it; no device sets it.
        Timeout = 4,
        /// The call's `CUresult` is not 0; [`RESULT_STATUS`] has it. Ordinary for queries.
        Cuda = 5,
        /// Defined by the headers; no device sets it.
        InvalidPool = 6,
        /// Only the legacy path sets it.
        QueueFull = 7,
        /// Defined by the headers; a call that the host does not know ends in [`ErrorCode::Cuda`] with 801.
        UnsupportedOp = 8,
        /// The window is shorter than [`super::WINDOW_MIN_BYTES`], or a legacy request is empty.
        InvalidLength = 9,
        /// The mediator rejected the call because the virtual machine's rate is limited (Q23). It may be
        /// tried again.
        RateLimited = 0x0a,
        /// The mediator rejects all calls of the virtual machine until an administrator of the host changes
        /// that.
        Quarantined = 0x0b,
    }
}
