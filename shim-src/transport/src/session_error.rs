//! Errors of sessions, and errors that the host reports late. [`crate::link`] and [`crate::late_errors`]
//! detect them.

use thiserror::Error;

use crate::addresses::AddressRefusal;

/// Why a session cannot be used. Everything but [`SessionError::Misuse`] is final: every later call returns
/// the same.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SessionError {
    /// The device is gone.
    #[error("the device is gone: {reason}")]
    Gone {
        /// Evidence that the device is gone.
        reason: GoneReason,
    },
    /// The host ended the session. Returned by a wait, it may also be a sticky error that ended its work.
    #[error("the host ended the session with error {code} at message {message}")]
    Ended {
        /// `CUresult` of the error, never 0.
        code: u32,
        /// Number of the message that caused the error.
        message: u64,
    },
    /// [`crate::Session::close`] was called.
    #[error("the session is closed")]
    Closed,
    /// This process is a forked child of the one that owns the session.
    #[error("the session belongs to the parent of this forked process")]
    Forked,
    /// The session attaches with its first message, and the attach failed.
    #[error("the device does not take this process: {reason}")]
    NotAttached {
        /// Why the device refused the session.
        reason: &'static str,
    },
    /// The session attaches with its first message, and its function's device addresses cannot be reserved in
    /// this process.
    #[error("this process cannot use the device: {0}")]
    Addresses(AddressRefusal),
    /// The caller requested an impossible operation: a message longer than `area::MESSAGE_MAX`, or a word
    /// that does not exist. The session continues; nothing was sent.
    #[error("{what}")]
    Misuse {
        /// Description of the mistake.
        what: &'static str,
    },
}

impl SessionError {
    /// Returns the `CUresult` to report: 46 (device unavailable) when the device is gone or this process
    /// cannot use it, the host's code when it ended the session, 4 (deinitialized) when closed, 3 (not
    /// initialized) in a forked child, 1 (invalid value) for misuse.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::Gone { .. } | Self::NotAttached { .. } | Self::Addresses(_) => 46,
            Self::Ended { code, .. } => *code,
            Self::Closed => 4,
            Self::Forked => 3,
            Self::Misuse { .. } => 1,
        }
    }

    /// Returns whether every later call of the session fails in the same way.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        !matches!(self, Self::Misuse { .. })
    }
}

/// Evidence that a device is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GoneReason {
    /// The register socket was closed by its other end.
    #[error("its register socket is closed")]
    Socket,
    /// Registers read all ones.
    #[error("its registers read all ones")]
    AllOnes,
    /// The device was restarted since the session was opened.
    #[error("it was started anew")]
    Generation,
    /// The channel no longer belongs to this session: the lock was lost and another process took it.
    #[error("another process has this session's channel")]
    Channel,
    /// The device wrote values that contradict the contract.
    #[error("what it wrote contradicts the contract")]
    Nonsense,
    /// The device exists, but the mediator behind it has ended, and this process has lost its objects.
    #[error("the mediator on its host is gone")]
    Mediator,
    /// A fault of some process has ended the context that all processes of all machines share on a host of
    /// version 1.
    #[error("a fault has ended its host's GPU context, and its mediator makes no other")]
    Context,
    /// The host of version 1 has no room for another owner.
    #[error("all owners that its host has room for, 64 on hosts that exist, are in use")]
    Owners,
    /// The mediator rejects all calls of this virtual machine.
    #[error("its host has quarantined this virtual machine")]
    Quarantined,
}

/// An error that the host reported after the call that caused it had returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateError {
    /// `CUresult` of the error, never 0.
    pub code: u32,
    /// Whether every later call reports the error too.
    pub sticky: bool,
    /// Whether the host ended the session.
    pub ended: bool,
    /// Number of the message that caused the error; 0 if none did.
    pub message: u64,
}

impl LateError {
    /// Converts the loss of a session, which is a sticky error too.
    pub(crate) fn of_lost(lost: SessionError) -> Self {
        let message = if let SessionError::Ended { message, .. } = lost { message } else { 0 };
        Self { code: lost.code(), sticky: true, ended: true, message }
    }
}

/// `CUDA_ERROR_UNKNOWN`, reported for a code that the host must not send.
const UNKNOWN: u32 = 999;

/// Returns a code from the host as it is reported: never 0, which would be success.
pub fn known(code: u32) -> u32 {
    if code == 0 { UNKNOWN } else { code }
}
