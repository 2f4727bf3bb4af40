//! A call with its payload, and how it can fail.

use std::io;
use std::ptr::NonNull;

use vgpu_wire::v1::RESULTS;
use vgpu_wire::v1::call::Op;

use crate::registers::RegisterError;
use crate::session_error::{GoneReason, SessionError};

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The host's `CUresult`.
    Status(u32),
    /// The session cannot go on.
    Lost(SessionError),
}

impl From<GoneReason> for Failure {
    fn from(reason: GoneReason) -> Self {
        Self::Lost(SessionError::Gone { reason })
    }
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Forked => Self::Lost(SessionError::Forked),
            RegisterError::Lost(lost) => Self::Lost(lost),
            RegisterError::Closed(_) | RegisterError::TimedOut => GoneReason::Socket.into(),
            RegisterError::Refused(_) => GoneReason::Nonsense.into(),
        }
    }
}

impl From<Failure> for RegisterError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost(lost) => Self::Lost(lost),
            Failure::Status(code) => Self::Refused(code),
        }
    }
}

impl From<io::Error> for Failure {
    /// An error of the lock file or the file of owners.
    fn from(_: io::Error) -> Self {
        Self::Lost(SessionError::NotAttached { reason: "the file that says whose turn it is cannot be used" })
    }
}

/// The payload of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes that are copied into the window or registers.
    Bytes(&'a [u8]),
    /// Memory that must not be referred to as a slice. Readable for that many bytes, by promise of whoever
    /// made this.
    Memory(*const u8, usize),
}

impl Payload<'_> {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Memory(_, bytes) => *bytes,
        }
    }

    /// Address of the first byte.
    pub(super) fn start(&self) -> *const u8 {
        match self {
            Self::Bytes(bytes) => bytes.as_ptr(),
            Self::Memory(start, _) => *start,
        }
    }

    /// Copies bytes from `at` on to `to`, as many as there are and fit. Returns how many.
    pub(super) fn copy(&self, at: usize, to: &mut [u8]) -> usize {
        let bytes = self.len().saturating_sub(at).min(to.len());
        // SAFETY: `at` is no more than the length, within which the start is readable.
        let from = unsafe { self.start().add(at.min(self.len())) };
        // SAFETY: readable for the rest of the length, as whoever made this promised; `to` is private.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), bytes) };
        bytes
    }
}

/// A call of the version 1 protocol, before it is staged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) op: Op,
    pub(crate) args: &'a [u32],
    pub(crate) payload: Payload<'a>,
    /// The payload may be padded to travel through the window: bytes behind it do no harm.
    pub(crate) pads: bool,
    /// Where the answer's payload is copied, and how many bytes of it must come. The memory is writable for
    /// so many.
    pub(crate) back: Option<(NonNull<u8>, usize)>,
    /// Number of results to fetch.
    pub(crate) results: usize,
}

impl<'a> Call<'a> {
    /// A call without payload or results.
    pub(crate) const fn new(op: Op, args: &'a [u32]) -> Self {
        Self { op, args, payload: Payload::Bytes(&[]), pads: false, back: None, results: 0 }
    }

    /// The call, with results.
    pub(crate) const fn results(self, results: usize) -> Self {
        Self { results, ..self }
    }

    /// The call, with a payload that may be padded.
    pub(crate) const fn padded(self, payload: Payload<'a>) -> Self {
        Self { payload, pads: true, ..self }
    }
}

/// Results of a call, zeros where none were wanted.
pub(crate) type Results = [u64; RESULTS];
