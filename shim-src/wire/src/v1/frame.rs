//! Frames between the device (client) and the mediator (server) on a stream socket: a [`Header`], then its payload. One call is one
//! frame each way, however long.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use super::{ARGS, PAYLOAD_MAX, RESULTS};

/// First word of every frame, call and result: `UPGV` in memory.
pub const MAGIC: u32 = 0x5647_5055;

/// [`Header::kind`]: legacy request.
pub const REQUEST: u32 = 1;
/// [`Header::kind`]: legacy response.
pub const RESPONSE: u32 = 2;
/// [`Header::kind`]: are you there?
pub const PING: u32 = 3;
/// [`Header::kind`]: yes.
pub const PONG: u32 = 4;
/// [`Header::kind`]: turned away, for now; the mediator hangs up.
pub const BUSY: u32 = 5;
/// [`Header::kind`]: turned away for good; the mediator hangs up.
pub const QUARANTINED: u32 = 6;
/// [`Header::kind`]: a call: [`Call`], then its payload.
pub const CUDA_CALL: u32 = 0x10;
/// [`Header::kind`]: its answer: [`Outcome`], then its payload.
pub const CUDA_RESULT: u32 = 0x11;

/// The most payload of a frame.
pub const PAYLOAD_BYTES_MAX: u32 = size_of::<Call>() as u32 + PAYLOAD_MAX;

wire_struct! {
    /// Head of every frame.
    pub struct Header = 24 {
        /// [`MAGIC`].
        pub magic: U32 = 0,
        /// What the frame is.
        pub kind: U32 = 4,
        /// The virtual machine.
        pub vm_id: U32 = 8,
        /// The device counts its calls; the answer says the same number.
        pub request_id: U32 = 12,
        /// ASCII of the pool.
        pub pool: u8 = 16,
        /// Priority, 0 to 2.
        pub priority: u8 = 17,
        /// Zero.
        pub reserved: [u8; 2] = 18,
        /// Bytes that follow.
        pub bytes: U32 = 20,
    }
}

wire_struct! {
    /// Head of a call.
    pub struct Call = 88 {
        /// [`MAGIC`].
        pub magic: U32 = 0,
        /// [`super::call::Op`].
        pub op: U32 = 4,
        /// The guest's number, which the answer repeats.
        pub seq: U32 = 8,
        /// [`super::owner`].
        pub owner: U32 = 12,
        /// How many arguments.
        pub num_args: U32 = 16,
        /// Bytes of payload behind.
        pub data_len: U32 = 20,
        /// The arguments; zeros behind the last.
        pub args: [U32; ARGS] = 24,
    }
}

wire_struct! {
    /// Head of an answer.
    pub struct Outcome = 88 {
        /// [`MAGIC`].
        pub magic: U32 = 0,
        /// The call's.
        pub seq: U32 = 4,
        /// `CUresult`.
        pub status: U32 = 8,
        /// How many results.
        pub num_results: U32 = 12,
        /// Bytes of payload behind.
        pub data_len: U32 = 16,
        /// Zero.
        pub reserved: U32 = 20,
        /// The results.
        pub results: [U64; RESULTS] = 24,
    }
}

/// Why bytes are no frame, or no call. The mediator hangs up on all of them, without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first word is not [`MAGIC`].
    Magic(u32),
    /// More payload than any frame has.
    Length(u32),
    /// A call shorter than its head.
    Short(usize),
    /// More than 16 arguments.
    Args(u32),
    /// The call states another length of payload than the frame has.
    Data {
        /// What the call says.
        stated: u32,
        /// What is there.
        there: usize,
    },
    /// A connection speaks for one machine, and names another.
    Machine {
        /// The one that it named first.
        first: u32,
        /// The other one.
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
    /// A frame's head.
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

    /// Checks what a peer sent. The bound on its payload is ours: hosts of version 1 take any (Q13).
    ///
    /// # Errors
    /// The bytes are no frame.
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
    /// Takes a call's frame payload apart, as the mediator checks it.
    ///
    /// # Errors
    /// The bytes are no call.
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

    /// The arguments as numbers.
    #[must_use]
    pub fn args(&self) -> [u32; ARGS] {
        self.args.map(U32::get)
    }
}

impl Outcome {
    /// Takes an answer's frame payload apart, as the device does: what is missing of the stated payload is not there.
    ///
    /// # Errors
    /// Shorter than its head.
    pub fn decode(bytes: &[u8]) -> Result<(&Self, &[u8]), FrameError> {
        let (outcome, data) = Self::ref_from_prefix(bytes).map_err(|_| FrameError::Short(bytes.len()))?;
        let length = data.len().min(outcome.data_len.get() as usize);
        Ok((outcome, &data[..length]))
    }
}
