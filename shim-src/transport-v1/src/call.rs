//! A call of version 1 with its payload, and how it can fail.

use std::io;
use std::ptr::NonNull;

use vgpu_transport::parts::RegisterError;
use vgpu_transport::{GoneReason, SessionError};
use vgpu_wire::v1::RESULTS;
use vgpu_wire::v1::call::Op;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// The host executed the call and returned this `CUresult`.
    Status(u32),
    /// The session is lost.
    Lost(SessionError),
}

impl From<GoneReason> for CallError {
    fn from(reason: GoneReason) -> Self {
        Self::Lost(SessionError::Gone { reason })
    }
}

impl From<RegisterError> for CallError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Forked => Self::Lost(SessionError::Forked),
            RegisterError::Lost(lost) => Self::Lost(lost),
            RegisterError::Closed(_) | RegisterError::TimedOut => GoneReason::Socket.into(),
            RegisterError::Refused(_) => GoneReason::Nonsense.into(),
        }
    }
}

impl From<CallError> for RegisterError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Lost(lost) => Self::Lost(lost),
            CallError::Status(code) => Self::Refused(code),
        }
    }
}

impl From<io::Error> for CallError {
    /// Converts an error of the lock file or the file of owners.
    fn from(_: io::Error) -> Self {
        Self::Lost(SessionError::NotAttached { reason: "the file that says whose turn it is cannot be used" })
    }
}

/// The payload of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes in memory that only this process writes.
    Bytes(&'a [u8]),
    /// Start and length of memory to which no reference may exist. The creator of the value promises that the
    /// memory is readable.
    Memory(*const u8, usize),
}

impl Payload<'_> {
    /// Returns the length of the payload in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Memory(_, bytes) => *bytes,
        }
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> *const u8 {
        match self {
            Self::Bytes(bytes) => bytes.as_ptr(),
            Self::Memory(start, _) => *start,
        }
    }

    /// Copies the bytes from offset `at` on, until the payload ends or `to` is full. Returns the number of
    /// bytes copied.
    pub(crate) fn copy_to(&self, at: usize, to: &mut [u8]) -> usize {
        let bytes = self.len().saturating_sub(at).min(to.len());
        // SAFETY: `at` is no more than the length, within which the start is readable.
        let from = unsafe { self.start().add(at.min(self.len())) };
        // SAFETY: readable for the rest of the length, as whoever made this promised; `to` is private.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), bytes) };
        bytes
    }
}

/// A call of the version 1 protocol, before its registers are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) op: Op,
    pub(crate) args: &'a [u32],
    pub(crate) payload: Payload<'a>,
    /// Whether a short payload may be padded, so that the window can carry it. The host ignores the bytes
    /// after it.
    pub(crate) pads: bool,
    /// Address and exact length in bytes of the memory that receives the answer's payload. It is writable.
    pub(crate) back: Option<(NonNull<u8>, usize)>,
    /// Number of results to read, at most [`RESULTS`].
    pub(crate) results: usize,
}

impl<'a> Call<'a> {
    /// Creates a call without payload or results.
    pub(crate) const fn new(op: Op, args: &'a [u32]) -> Self {
        Self { op, args, payload: Payload::Bytes(&[]), pads: false, back: None, results: 0 }
    }

    /// Adds the number of results to read.
    pub(crate) const fn with_results(self, results: usize) -> Self {
        Self { results, ..self }
    }

    /// Adds a payload that may be padded.
    pub(crate) const fn with_padded_payload(self, payload: Payload<'a>) -> Self {
        Self { payload, pads: true, ..self }
    }
}

/// Results of a call. Those that were not read are 0.
pub(crate) type Results = [u64; RESULTS];
