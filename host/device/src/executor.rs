//! What carries messages out. The traits are shaped so that a session can live in another process:
//! what goes in is bytes of checked messages, what comes out are completions ([`SessionHost`]), which
//! may come later and from any thread. Such an executor is told of what the session is granted
//! ([`Session::granted`]), refuses in the order of its messages ([`Session::refuse_in_order`]), and says
//! itself how far it has come ([`Session::progress`]).

use std::sync::Arc;

use vgpu_wire::Message;
use vgpu_wire::facts::DeviceFacts;

use crate::charges::charge::OverLimit;
use crate::profile::Profile;
use crate::session::host::{Retired, SessionHost};
use crate::session::published::MemoryInUse;
use crate::session::remote::SharedRange;
use crate::session::return_area::ReplyTo;
use crate::session::violation::Violation;

/// Why a session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// There are as many sessions as there can be.
    #[error("open another session: no room")]
    NoRoom,
    /// Anything else.
    #[error("open a session: {0}")]
    Failed(String),
}

/// Why a session ends while it carries out messages.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The guest broke the contract in a way that only the executor can see.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The session would have more than it may, or the host has no memory. The message is not carried out, as
    /// if it had never been sent; the guest gets out-of-memory, and the session goes on.
    #[error("{0}")]
    OutOfMemory(String),
    /// The executor lost the session, such as by the death of a worker process.
    #[error("the executor lost the session: {0}")]
    Lost(String),
}

impl From<OverLimit> for SessionError {
    fn from(over: OverLimit) -> Self {
        Self::OutOfMemory(over.to_string())
    }
}

/// A GPU, or what stands for one.
pub trait Executor: Send + Sync {
    /// A word for it: "soft", "null", "cuda".
    fn name(&self) -> &'static str;

    /// What the device says of itself. The same for the life of the executor; needs no GPU context.
    fn facts(&self) -> DeviceFacts;

    /// Device memory in use, of all sessions, in bytes.
    fn allocated(&self) -> u64;

    /// Unit in which the executor takes device memory, in bytes. An allocation takes a whole number of units.
    fn memory_unit(&self) -> u64 {
        1
    }

    /// Bytes of images that are kept for later sessions and charged to none.
    fn kept_image_bytes(&self) -> u64 {
        0
    }

    /// Bytes of host and device memory that processes of the executor's own hold for sessions, beside what
    /// sessions are charged here.
    fn charged_elsewhere(&self) -> u64 {
        0
    }

    /// Worker processes that were started, and those that have not ended; `None` for an executor without any.
    fn workers(&self) -> Option<WorkerCount> {
        None
    }

    /// Where the time of a session's work went; `None` where the executor does not count, or has no such
    /// session.
    fn profile(&self, session: u32) -> Option<Profile> {
        let _ = session;
        None
    }

    /// A session has ended, and all that it had is free: the moment to give memory back to the system.
    fn tidy(&self) {}

    /// Begins a session. Cheap: guests attach just to look. What is dear, such as a GPU context, is
    /// taken by the first message that needs it.
    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError>;
}

impl MemoryInUse for Arc<dyn Executor> {
    fn bytes(&self) -> u64 {
        self.allocated()
    }
}

/// Worker processes of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCount {
    /// Started since the device started.
    pub started: u64,
    /// Of these, processes that have not been reaped.
    pub running: u64,
}

/// How many messages a session has carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All up to this number. The session's thread stores it for the guest to read.
    Upto(u64),
    /// The session stores it in the return area itself, from the process that carries messages out.
    ByItself,
}

/// One message for an executor, checked as far as it can be without the executor's own state.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The message's number in its session, in full.
    pub number: u64,
    /// The message.
    pub message: Message<'a>,
    /// The records of `GraphDefine` and `GraphUpdate`, walked and found good, in private memory; else the
    /// message's tail.
    pub payload: &'a [u8],
    /// The message as it came, padding included, in private memory: for an executor that passes it on.
    /// A join in its header has been handed over already.
    pub bytes: &'a [u8],
}

impl Work<'_> {
    /// Where to answer, for kinds that are answered.
    #[must_use]
    pub fn reply_to(&self) -> Option<ReplyTo> {
        self.message.body.reply().map(|slot| ReplyTo::new(slot, self.number))
    }
}

/// An executor's side of a session. Dropping it ends the session: when drop returns, all it held is
/// freed and nothing of it touches the window or its [`SessionHost`] any more.
pub trait Session: Send {
    /// Takes a message. Kinds that concern the session alone do not come here, nor does `Join`
    /// ([`Session::join`]) but as a graph's node, where it does nothing. Messages come in the order of the
    /// ring, from one thread. An executor that works behind the caller's back returns when it has taken the
    /// message and no longer needs its bytes; spans of the window are resolved ([`SessionHost::piece`])
    /// before it returns.
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError>;

    /// Later messages of the session, on any stream, start after what `stream` has been given so far
    /// ([`vgpu_wire::JOIN_ALL`]: every stream). Comes before the message that carries the flag.
    fn join(&mut self, stream: u32) -> Result<(), SessionError>;

    /// How many messages may be carried out before the guest is told that they are done. 1 where
    /// a message takes longer than to say so.
    fn batch(&self) -> u32 {
        1
    }

    /// Shared memory that later messages may name is the session's. Comes before the guest learns of it.
    fn granted(&mut self, range: SharedRange) -> Result<(), SessionError> {
        let _ = range;
        Ok(())
    }

    /// Refuses a message that the device does not let through, with a `CUresult` and the reason as text, in
    /// its place among the others. False: the session has carried out all earlier messages, or has none, and
    /// the device stores the refusal.
    fn refuse_in_order(&mut self, work: &Work<'_>, code: u32, why: &str) -> Result<bool, SessionError> {
        let _ = (work, code, why);
        Ok(false)
    }

    /// All messages up to `number` have been handed over, and no other follows at once: what was put by to go
    /// together goes now. Answers how many the guest may be told are carried out.
    fn progress(&mut self, number: u64) -> Progress {
        Progress::Upto(number)
    }

    /// Window memory that the guest has given back. It is another's when `memory` is dropped, so this
    /// happens only when no earlier work refers to it: at once in an executor that works in `execute`.
    fn retire(&mut self, memory: Retired) {
        drop(memory);
    }
}
