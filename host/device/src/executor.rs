//! The interface of executors. A session may be in another process: its input is the bytes of checked
//! messages, and its output are completions ([`SessionHost`]), which may come later and from any thread. Such
//! an executor is told of the session's grants ([`Session::granted`]), refuses messages in their order
//! ([`Session::refuse_in_order`]), and reports its own progress ([`Session::progress`]).

use std::sync::Arc;

use serde_json::Value;
use vgpu_wire::Message;
use vgpu_wire::facts::DeviceFacts;

use crate::charges::charge::OverLimit;
use crate::profile::Profile;
use crate::saved::descriptors::KeptDescriptors;
use crate::saved::error::{NotSaved, RestoreError};
use crate::saved::state::RetiredState;
use crate::session::host::{RetiredMemory, SessionHost};
use crate::session::register_page::MemoryInUse;
use crate::session::remote::SharedRange;
use crate::session::return_area::ReplyTo;
use crate::session::violation::Violation;

/// Reason for which a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The executor has reached its number of sessions.
    #[error("open another session: no room")]
    NoRoom,
    /// The session cannot be opened for another reason.
    #[error("open a session: {0}")]
    Failed(String),
}

/// Reason for which a session does not carry a message out. Only `OutOfMemory` and `Paused` let the session go
/// on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The guest broke the contract in a way that only the executor can see.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The session would exceed a limit, or the host has no memory. The message has no effect, the guest gets
    /// an out-of-memory error, and the session continues.
    #[error("{0}")]
    OutOfMemory(String),
    /// The executor lost the session, such as by the death of a worker process.
    #[error("the executor lost the session: {0}")]
    Lost(String),
    /// The device is being paused ([`SessionHost::pausing`]), and the message would have to wait. It has no
    /// effect yet. After the pause it is passed again.
    #[error("the device is paused")]
    Paused,
}

impl From<OverLimit> for SessionError {
    fn from(over: OverLimit) -> Self {
        Self::OutOfMemory(over.to_string())
    }
}

/// Carries out the messages of sessions, on a GPU or in software.
pub trait Executor: Send + Sync {
    /// Returns the name of the executor: "soft", "null" or "cuda".
    fn name(&self) -> &'static str;

    /// Returns the facts of the GPU. They never change, and reading them needs no GPU context.
    fn facts(&self) -> DeviceFacts;

    /// Returns the number of bytes of device memory that all sessions use.
    fn allocated(&self) -> u64;

    /// Returns the unit in which the executor takes device memory, in bytes. An allocation takes a whole
    /// number of units.
    fn memory_unit(&self) -> u64 {
        1
    }

    /// Returns the number of bytes of device memory that each context costs, as far as they are charged.
    fn context_bytes(&self) -> u64 {
        0
    }

    /// Returns the number of bytes of images that are kept for later sessions and charged to none.
    fn kept_image_bytes(&self) -> u64 {
        0
    }

    /// Returns the number of bytes of host and device memory that worker processes hold for sessions.
    /// Sessions of this process are not charged for them.
    fn charged_in_workers(&self) -> u64 {
        0
    }

    /// Returns how many worker processes were started and how many run, or `None` if the executor has none.
    fn workers(&self) -> Option<WorkerCount> {
        None
    }

    /// Returns the profile of a session, or `None` if the executor keeps none or has no such session.
    fn profile(&self, session: u32) -> Option<Profile> {
        let _ = session;
        None
    }

    /// Returns unused memory to the system. It is called after a session has ended and freed everything that
    /// it held.
    fn tidy(&self) {}

    /// Begins or ends a pause of the device. Sessions that wait for the executor stop waiting in a pause, as
    /// [`SessionError::Paused`] says.
    fn set_pausing(&self, pausing: bool) {
        let _ = pausing;
    }

    /// Returns the executor's own state, without that of its sessions. All sessions are at a boundary between
    /// two messages. By default sessions cannot be saved.
    fn save(&self) -> Result<Value, NotSaved> {
        Err(NotSaved::InProcess)
    }

    /// Checks the executor's saved state.
    fn check(&self, state: &Value) -> Result<(), RestoreError> {
        let _ = state;
        Err(RestoreError::Executor { executor: self.name(), source: NotSaved::InProcess })
    }

    /// Takes over the executor's saved state. It is called once, before any session is opened or restored.
    fn restore(&self, state: &Value) -> Result<(), RestoreError> {
        self.check(state)
    }

    /// Checks the saved state of a session whose newest message is `number`, without side effects. Returns
    /// what the session claims for itself alone.
    fn check_session(&self, number: u64, state: &Value) -> Result<SessionClaims, RestoreError> {
        let _ = (number, state);
        Err(RestoreError::Executor { executor: self.name(), source: NotSaved::InProcess })
    }

    /// Restores a session that [`Session::save`] described. `host` has the session's shared memory already.
    fn restore_session(
        &self,
        host: SessionHost,
        state: &Value,
        descriptors: &mut KeptDescriptors,
    ) -> Result<Box<dyn Session>, RestoreError> {
        let _ = (host, state, descriptors);
        Err(RestoreError::Executor { executor: self.name(), source: NotSaved::InProcess })
    }

    /// Ends what is left of a saved session that cannot be restored: when this returns, nothing accesses its
    /// memory any more.
    fn abandon_session(&self, state: &Value) {
        let _ = state;
    }

    /// Opens a session. This is cheap, because guests attach only to read the facts. Expensive objects, such
    /// as a GPU context, are made by the first message that needs them.
    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError>;
}

impl MemoryInUse for Arc<dyn Executor> {
    fn bytes(&self) -> u64 {
        self.allocated()
    }
}

/// Memory and process that a saved session has, and that no other session of the device may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionClaims {
    /// Shared memory that the session has freed and its work may still access.
    pub retired: Vec<RetiredState>,
    /// Process id of its worker, if it has one.
    pub process: Option<u32>,
}

/// Worker processes of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCount {
    /// Number of processes started since the device started.
    pub started: u64,
    /// Number of these that have not been reaped.
    pub running: u64,
}

/// The number of messages that a session has carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All messages up to this number are carried out. The session's thread stores the number for the guest.
    Upto(u64),
    /// The process that carries out messages stores the progress in the return area itself.
    ByItself,
}

/// One message for an executor, checked as far as it can be without the executor's own state.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Number of the message in its session, in full width.
    pub number: u64,
    /// Message with its decoded body.
    pub message: Message<'a>,
    /// Checked records of `GraphDefine` and `GraphUpdate` in private memory. For other kinds, the message's
    /// tail.
    pub payload: &'a [u8],
    /// Whole message with its padding, in private memory, for an executor that passes it on. The executor has
    /// already been told of a join in its header.
    pub bytes: &'a [u8],
}

impl Work<'_> {
    /// Returns the reply slot, for kinds that have an answer.
    #[must_use]
    pub fn reply_to(&self) -> Option<ReplyTo> {
        self.message.body.reply().map(|slot| ReplyTo::new(slot, self.number))
    }
}

/// An executor's side of a session. Dropping it ends the session: when `drop` returns, everything that the
/// session held is freed, and nothing accesses the window or its [`SessionHost`] any more.
pub trait Session: Send {
    /// Carries out a message. Kinds that concern the session alone do not arrive here, nor does `Join`
    /// ([`Session::join`]) except as a graph's node, where it does nothing. Messages arrive in the order of
    /// the ring, from one thread. An executor that works asynchronously returns when it no longer needs the
    /// bytes of the message. It resolves spans of the window ([`SessionHost::piece`]) before it returns.
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError>;

    /// Orders later messages of the session, on any stream, after the work that was submitted to `stream` so
    /// far ([`vgpu_wire::JOIN_ALL`] means every stream). It is called before the message that carries the
    /// flag.
    fn join(&mut self, stream: u32) -> Result<(), SessionError>;

    /// Returns the number of messages that may be carried out before the guest is told of progress. It is 1
    /// if a message takes longer than telling the guest.
    fn batch(&self) -> u32 {
        1
    }

    /// Grants the session shared memory that later messages may name. It is called before the guest learns of
    /// it.
    fn granted(&mut self, range: SharedRange) -> Result<(), SessionError> {
        let _ = range;
        Ok(())
    }

    /// Refuses a message that the device does not accept, with a `CUresult` and the reason as text, in its
    /// order among the others. Returns false if the session has carried out all earlier messages, or has
    /// none; the device then stores the refusal.
    fn refuse_in_order(&mut self, work: &Work<'_>, code: u32, why: &str) -> Result<bool, SessionError> {
        let _ = (work, code, why);
        Ok(false)
    }

    /// Submits work that was deferred to be submitted together. It is called between two batches of messages
    /// ([`Session::batch`]), and when no message follows number `number` at once. Returns the number of
    /// messages that the guest may be told are carried out.
    fn progress(&mut self, number: u64) -> Progress {
        Progress::Upto(number)
    }

    /// Asks for a call of [`SessionHost::report_complete`] with `number` once all work of earlier messages is
    /// complete. Work that waits for the guest, behind a held stream, does not count. Returns true if all is
    /// complete already; nothing is called then.
    fn settle(&mut self, number: u64) -> Result<bool, SessionError> {
        let _ = number;
        Ok(true)
    }

    /// Describes the session at a boundary between two messages, and adds the descriptors that it needs. The
    /// session changes nothing of it until [`Session::resume`] is called.
    fn save(&mut self, descriptors: &mut KeptDescriptors) -> Result<Value, NotSaved> {
        let _ = descriptors;
        Err(NotSaved::InProcess)
    }

    /// Resumes the session after a pause of the device, whether it was saved or not, and after a restore. The
    /// default does nothing.
    fn resume(&mut self) -> Result<(), SessionError> {
        Ok(())
    }

    /// Takes shared memory that the guest has freed: a range of the window or a segment of guest pages. It
    /// becomes available when `memory` is dropped, which must not happen before all earlier work that refers
    /// to it has completed.
    fn retire(&mut self, memory: RetiredMemory) {
        drop(memory);
    }
}
