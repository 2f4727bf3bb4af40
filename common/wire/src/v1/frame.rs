//! Frames between the device (client) and the mediator (server) on a stream socket: a [`Header`], then its
//! payload. One call is one frame each way, however long.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use super::{ARGS, PAYLOAD_MAX, RESULTS};

/// First word of every frame, call and result: the text `UPGV` in memory order.
pub const MAGIC: u32 = 0x5647_5055;

/// [`Header::kind`]: a request of the legacy path.
pub const REQUEST: u32 = 1;
/// [`Header::kind`]: the answer to a request of the legacy path.
pub const RESPONSE: u32 = 2;
/// [`Header::kind`]: asks whether the peer is alive. The answer is [`PONG`].
pub const PING: u32 = 3;
/// [`Header::kind`]: the answer to [`PING`].
pub const PONG: u32 = 4;
/// [`Header::kind`]: the virtual machine has exceeded its rate; the call may be made again. The mediator
/// closes the connection.
pub const BUSY: u32 = 5;
/// [`Header::kind`]: the mediator rejects every call of the virtual machine until an administrator lifts the
/// quarantine. The mediator closes the connection.
pub const QUARANTINED: u32 = 6;
/// [`Header::kind`]: a call. The payload is a [`Call`] and the call's own payload.
pub const CUDA_CALL: u32 = 0x10;
/// [`Header::kind`]: the answer to a call. The payload is an [`Outcome`] and the payload that comes back.
pub const CUDA_RESULT: u32 = 0x11;

/// Maximum length in bytes of a frame's payload.
pub const PAYLOAD_BYTES_MAX: u32 = size_of::<Call>() as u32 + PAYLOAD_MAX;

wire_struct! {
    /// Header of every frame.
    pub struct Header = 24 {
        /// [`MAGIC`], by which a peer recognises a frame.
        pub magic: U32 = 0,
        /// Kind of the frame, one of the constants above.
        pub kind: U32 = 4,
        /// Number of the virtual machine that the device belongs to.
        pub vm_id: U32 = 8,
        /// Number that the device gives each call; the answer repeats it.
        pub request_id: U32 = 12,
        /// Name of the pool as one ASCII letter, `A` or `B`.
        pub pool: u8 = 16,
        /// Priority of the virtual machine: 0 low, 1 medium, 2 high.
        pub priority: u8 = 17,
        /// Reserved, zeros.
        pub reserved: [u8; 2] = 18,
        /// Length in bytes of the payload that follows.
        pub bytes: U32 = 20,
    }
}

wire_struct! {
    /// Header of a call.
    pub struct Call = 88 {
        /// [`MAGIC`], as in the frame's header.
        pub magic: U32 = 0,
        /// Number of the call, a [`super::call::Op`].
        pub op: U32 = 4,
        /// Number that the guest gave the call; the answer repeats it.
        pub seq: U32 = 8,
        /// Owner of the objects that the call creates, see [`super::owner`].
        pub owner: U32 = 12,
        /// Number of arguments, at most [`ARGS`].
        pub num_args: U32 = 16,
        /// Length in bytes of the payload that follows.
        pub data_len: U32 = 20,
        /// The arguments, and zeros after the last.
        pub args: [U32; ARGS] = 24,
    }
}

wire_struct! {
    /// Header of an answer.
    pub struct Outcome = 88 {
        /// [`MAGIC`], as in the frame's header.
        pub magic: U32 = 0,
        /// [`Call::seq`] of the call that is answered.
        pub seq: U32 = 4,
        /// `CUresult` of the call.
        pub status: U32 = 8,
        /// Number of results.
        pub num_results: U32 = 12,
        /// Length in bytes of the payload that follows.
        pub data_len: U32 = 16,
        /// Reserved, zero.
        pub reserved: U32 = 20,
        /// The results, of which [`Self::num_results`] mean something.
        pub results: [U64; RESULTS] = 24,
    }
}

/// Why bytes are not a frame or a call. The mediator closes the connection without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first word is this one and not [`MAGIC`].
    Magic(u32),
    /// The frame states this many bytes of payload, more than [`PAYLOAD_BYTES_MAX`].
    Length(u32),
    /// The payload has this many bytes, fewer than a [`Call`].
    Short(usize),
    /// The call states this many arguments, more than [`ARGS`].
    Args(u32),
    /// The call states another length of payload than the frame has.
    Data {
        /// Length in bytes that the call states.
        stated: u32,
        /// Length in bytes of the payload after the call's header.
        there: usize,
    },
    /// A frame names another virtual machine than earlier frames of its connection.
    Machine {
        /// Number of the machine that the connection named first.
        first: u32,
        /// Number of the machine that this frame names.
        then: u32,
    },
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Magic(magic) => write!(f, "a frame begins with {magic:#010x}"),
            Self::Length(bytes) => write!(f, "a frame states {bytes} bytes of payload"),
            Self::Short(bytes) => write!(f, "a call of {bytes} bytes is shorter than its head"),
            Self::Args(args) => write!(f, "a call states {args} arguments"),
            Self::Data { stated, there } => {
                write!(f, "a call states {stated} bytes of payload, {there} are there")
            }
            Self::Machine { first, then } => {
                write!(f, "a connection of machine {first} names machine {then}")
            }
        }
    }
}

impl core::error::Error for FrameError {}

impl Header {
    /// Creates the header of a frame with `bytes` bytes of payload, in pool `A` with medium priority.
    #[must_use]
    pub const fn new(kind: u32, vm_id: u32, request_id: u32, bytes: u32) -> Self {
        Self {
            magic: U32::new(MAGIC),
            kind: U32::new(kind),
            vm_id: U32::new(vm_id),
            request_id: U32::new(request_id),
            pool: b'A',
            priority: 1,
            reserved: [0; 2],
            bytes: U32::new(bytes),
        }
    }

    /// Checks the header that a peer sent. The limit on its payload is this crate's: hosts of version 1
    /// accept any length (Q13).
    ///
    /// # Errors
    /// Returns [`FrameError::Magic`] or [`FrameError::Length`].
    pub fn check(&self) -> Result<(), FrameError> {
        if self.magic != MAGIC {
            return Err(FrameError::Magic(self.magic.get()));
        }
        if self.bytes > PAYLOAD_BYTES_MAX {
            return Err(FrameError::Length(self.bytes.get()));
        }
        Ok(())
    }
}

impl Call {
    /// Splits a frame's payload into the call and its own payload, with the checks of the mediator.
    ///
    /// # Errors
    /// Returns [`FrameError::Short`], [`FrameError::Magic`], [`FrameError::Args`] or [`FrameError::Data`].
    pub fn decode(bytes: &[u8]) -> Result<(&Self, &[u8]), FrameError> {
        let (call, data) = Self::ref_from_prefix(bytes).map_err(|_| FrameError::Short(bytes.len()))?;
        if call.magic != MAGIC {
            return Err(FrameError::Magic(call.magic.get()));
        }
        if call.num_args.get() as usize > ARGS {
            return Err(FrameError::Args(call.num_args.get()));
        }
        if call.data_len.get() as usize != data.len() {
            return Err(FrameError::Data { stated: call.data_len.get(), there: data.len() });
        }
        Ok((call, data))
    }

    /// Returns the arguments in the machine's byte order.
    #[must_use]
    pub fn args(&self) -> [u32; ARGS] {
        self.args.map(U32::get)
    }
}

impl Outcome {
    /// Splits a frame's payload into the outcome and its own payload, as the device does: a payload shorter
    /// than stated is returned as it is.
    ///
    /// # Errors
    /// Returns [`FrameError::Short`] if the bytes are fewer than an outcome has.
    pub fn decode(bytes: &[u8]) -> Result<(&Self, &[u8]), FrameError> {
        let (outcome, data) = Self::ref_from_prefix(bytes).map_err(|_| FrameError::Short(bytes.len()))?;
        let length = data.len().min(outcome.data_len.get() as usize);
        Ok((outcome, &data[..length]))
    }
}
