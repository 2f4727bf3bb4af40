//! Why a device cannot be paused, and why a saved state cannot be restored.

use std::fmt::Display;
use std::io;

use crate::charges::charge::OverLimit;
use crate::memory::window::WindowError;

/// Number of the form in which this program writes a device's state. It changes with every change of the
/// form.
pub const STATE_VERSION: u32 = 1;

/// Length of the longest state in bytes. Only sessions whose graphs have millions of nodes that copy need
/// more; they cannot be restored.
pub const STATE_MAX: usize = 1 << 30;

/// Reason for which an executor or a session cannot be saved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSaved {
    /// The sessions would end with the process.
    #[error(
        "its sessions are in the device's own process, and only sessions in worker processes can be saved"
    )]
    InProcess,
    /// The session will end by itself in a moment.
    #[error("it is ending")]
    Ending,
    /// Pages of the guest that the session has registered are no longer the guest's memory there.
    #[error("guest pages at {0:#x}, which it has registered, are other memory now")]
    Pages(u64),
    /// The process has no room for more descriptors.
    #[error("copy a descriptor: {0}")]
    Descriptor(String),
}

/// Reason for which a device is not paused. All sessions go on then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PauseError {
    /// The device is paused.
    #[error("pause the device: it is paused already")]
    Paused,
    /// The executor's sessions cannot be saved.
    #[error("pause the device with the executor {executor}: {source}")]
    Executor {
        /// Name of the executor.
        executor: &'static str,
        /// The executor's reason.
        source: NotSaved,
    },
    /// A session cannot be saved.
    #[error("save session {session}: {source}")]
    Session {
        /// Number of the session.
        session: u32,
        /// The session's reason.
        source: NotSaved,
    },
    /// Sessions have not come to a boundary between two messages: they are ending, or wait for a worker
    /// process that does not read its socket. A later try may succeed.
    #[error("pause the device: sessions {0:?} did not stop in time")]
    Busy(Vec<u32>),
}

/// Reason for which a saved state cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The state is longer than any that is written.
    #[error("the saved state has {0} bytes, more than {STATE_MAX}")]
    Size(usize),
    /// The state is not JSON, or lacks a field, or has one too many.
    #[error("the saved state cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// The state has a form that this program does not read.
    #[error("the saved state has version {0}, and this program reads version {STATE_VERSION}")]
    Version(u32),
    /// A field has a value that it cannot have in this device.
    #[error("the saved {field} cannot be {value}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: String,
    },
    /// The state of a session cannot be restored.
    #[error("session {session}: {source}")]
    Session {
        /// Number of the session.
        session: u32,
        /// The reason.
        source: Box<Self>,
    },
    /// The executor restores no sessions.
    #[error("the executor {executor} restores no sessions: {source}")]
    Executor {
        /// Name of the executor.
        executor: &'static str,
        /// The executor's reason.
        source: NotSaved,
    },
    /// A descriptor that the state names was not inherited.
    #[error("the descriptor {0} is missing")]
    NoDescriptor(String),
    /// Two descriptors have the same name.
    #[error("there are two descriptors {0}")]
    TwoDescriptors(String),
    /// A descriptor is not what its name says.
    #[error("the descriptor {name} cannot be used")]
    Descriptor {
        /// Name of the descriptor.
        name: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// What a session held exceeds its limits now.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// Memory that a session shares with its guest cannot be mapped.
    #[error("map memory of a session")]
    Map(#[from] WindowError),
    /// The device cannot be made.
    #[error("{0}")]
    Device(String),
}

impl RestoreError {
    /// Returns the error for a field with an impossible value.
    pub fn field(field: &'static str, value: impl Display) -> Self {
        Self::Field { field, value: value.to_string() }
    }

    /// Adds the number of the session.
    pub(crate) fn of(self, session: u32) -> Self {
        Self::Session { session, source: Box::new(self) }
    }
}

/// Refuses a field unless `possible`.
pub(crate) fn require(possible: bool, field: &'static str, value: impl Display) -> Result<(), RestoreError> {
    if possible { Ok(()) } else { Err(RestoreError::field(field, value)) }
}
