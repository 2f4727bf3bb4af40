//! Why a session cannot be opened.

use std::io;

use thiserror::Error;
use vgpu_wire::registers::Refusal;

use crate::addresses::AddressRefusal;
use crate::open_error::OpenError;
use crate::registers::RegisterError;
use crate::session_error::{GoneReason, SessionError};

/// Why a session cannot be opened.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The wire versions of device and program differ.
    #[error(
        "the device speaks wire version {}.{}, this program {}.{}",
        host >> 16, host & 0xffff, guest >> 16, guest & 0xffff
    )]
    Version {
        /// Wire version of this program, major in the upper half.
        guest: u32,
        /// Wire version of the device, major in the upper half.
        host: u32,
    },
    /// The wire versions are equal, but the message tables differ.
    #[error(
        "device and program are different builds of wire version {}.{}: message table {host:#018x} there, {guest:#018x} here",
        version >> 16, version & 0xffff
    )]
    Digest {
        /// Wire version of both sides.
        version: u32,
        /// Digest of this program's message table.
        guest: u64,
        /// Digest of the device's message table.
        host: u64,
    },
    /// Every channel belongs to a living process.
    #[error("all {channels} channels of the device are in use")]
    NoChannel {
        /// Number of channels of the device.
        channels: u32,
    },
    /// A file of the function that only a session needs cannot be opened or mapped.
    #[error("failed to open what a session needs")]
    Open(#[source] OpenError),
    /// The lock file cannot be locked.
    #[error("failed to lock a channel")]
    Lock(#[source] io::Error),
    /// The host refused the attach for this reason.
    #[error("the host refused the session: {}", told(*.0))]
    Refused(Refusal),
    /// The host refused for a reason that this program does not know.
    #[error("the host refused the session for the unknown reason {0}")]
    RefusedStrangely(u32),
    /// The host answered the greeting with this error.
    #[error("the host answered the greeting with error {0}")]
    Greeting(u32),
    /// What the device wrote at attach contradicts the contract.
    #[error("the device contradicts the contract: {0}")]
    Strange(&'static str),
    /// The function's device addresses cannot be reserved in this process.
    #[error("this process cannot use the device")]
    Addresses(#[from] AddressRefusal),
    /// The session was lost while it was opened.
    #[error("failed to greet the host")]
    Lost(#[source] SessionError),
    /// The registers read all ones, so the device is gone.
    #[error("failed to attach: the device is gone")]
    Gone,
}

const fn told(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Version => "its wire version is another one",
        Refusal::Digest => "its message table is another one",
        Refusal::NoRoom => "it has no room for one more",
        Refusal::ReturnArea => "it cannot reach the return area",
        Refusal::Violation => "this program broke the contract",
        Refusal::Executor => "its executor is not ready",
        Refusal::Busy => "the channel's last session is still ending",
    }
}

impl From<RegisterError> for AttachError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Forked => Self::Lost(SessionError::Forked),
            RegisterError::Lost(lost) => Self::Lost(lost),
            RegisterError::Refused(_) => Self::Strange("it refused a register access"),
            RegisterError::Closed(_) | RegisterError::TimedOut => Self::Gone,
        }
    }
}

impl AttachError {
    /// Converts the error to that of a session whose first message attaches it.
    pub(crate) fn into_lost(self) -> SessionError {
        match self {
            Self::Lost(lost) => lost,
            Self::Gone => SessionError::Gone { reason: GoneReason::Socket },
            Self::NoChannel { .. } => SessionError::NotAttached { reason: "all its channels are in use" },
            Self::Open(_) => SessionError::NotAttached { reason: "its window cannot be opened" },
            Self::Lock(_) => SessionError::NotAttached { reason: "no channel could be locked" },
            Self::Refused(refusal) => SessionError::NotAttached { reason: told(refusal) },
            Self::Version { .. } | Self::Digest { .. } => {
                SessionError::NotAttached { reason: told(Refusal::Version) }
            }
            Self::RefusedStrangely(_) => {
                SessionError::NotAttached { reason: "the host refuses without a known reason" }
            }
            Self::Greeting(_) => SessionError::NotAttached { reason: "the host did not return the greeting" },
            Self::Strange(reason) => SessionError::NotAttached { reason },
            Self::Addresses(refusal) => SessionError::Addresses(refusal),
        }
    }
}
