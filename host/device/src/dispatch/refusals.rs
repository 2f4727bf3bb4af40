//! Messages that are not carried out although the session continues: the answers to them, and the later
//! messages that they excuse. This is used where messages are checked, and again in a worker process, whose
//! executor refuses messages for reasons of its own.

use vgpu_wire::{Body, Kind};

use crate::charges::charge::OUT_OF_MEMORY;
use crate::dispatch::check;
use crate::dispatch::handles::{self, HandleKind};
use crate::executor::{SessionError, Work};
use crate::session::host::SessionHost;
use crate::session::return_area::{FailureReason, LateError};
use crate::session::violation::Violation;

/// `CUDA_ERROR_INVALID_HANDLE`, for a message that names a handle whose creation was refused.
const INVALID_HANDLE: u32 = 400;

/// Refuses messages of one session, and remembers which kinds of handles were refused.
#[derive(Debug)]
pub struct Refusals {
    host: SessionHost,
    /// Whether a handle of each kind was ever refused.
    refused: [bool; HandleKind::COUNT],
}

impl Refusals {
    /// Makes the refusals of a new session.
    #[must_use]
    pub fn new(host: SessionHost) -> Self {
        Self { host, refused: [false; HandleKind::COUNT] }
    }

    /// Returns whether a handle of each kind was ever refused.
    pub(crate) const fn save(&self) -> [bool; HandleKind::COUNT] {
        self.refused
    }

    /// Takes over what a saved session was refused.
    pub(crate) const fn restore(host: SessionHost, refused: [bool; HandleKind::COUNT]) -> Self {
        Self { host, refused }
    }

    /// Remembers that the handle which the message would have made does not exist. Later messages that name
    /// it do not end the session.
    pub(crate) fn excuse_users(&mut self, body: &Body) {
        if let Some((minted, ..)) = handles::made(body) {
            self.refused[minted as usize] = true;
        }
    }

    /// Refuses a message. Its answer is `code`, or a late error if it has no answer. The session continues.
    pub fn refuse(&mut self, work: &Work<'_>, code: u32, why: &str) {
        self.excuse_users(&work.message.body);
        let (session, number, kind) = (self.host.session(), work.number, work.message.body.kind().name());
        self.host.log(0, || tracing::warn!(session, number, kind, code, "refused: {why}"));
        if let Some(to) = work.reply_to() {
            self.host.refuse(to, code, why);
        } else {
            let why = FailureReason { reason: why, ..FailureReason::default() };
            self.host.fail_because(LateError { code, sticky: false, message: number }, &why);
        }
        if let Some(mark) = check::mark_of(&work.message.body) {
            self.host.signal(mark);
        }
    }

    /// Returns the code and the reason for refusing a message that an executor did not carry out, or an error
    /// if the session ends.
    pub fn judge(&self, work: &Work<'_>, error: SessionError) -> Result<(u32, String), SessionError> {
        match error {
            SessionError::Violation(violation) if self.is_excused(work.message.body.kind(), &violation) => {
                Ok((INVALID_HANDLE, format!("{violation}, for it was refused")))
            }
            SessionError::OutOfMemory(why) => Ok((OUT_OF_MEMORY, why)),
            error => Err(error),
        }
    }

    /// Excuses a join that failed if it named a stream whose creation was refused. The guest then gets a late
    /// error.
    pub fn excuse_join(&self, number: u64, error: SessionError) -> Result<(), SessionError> {
        match error {
            SessionError::Violation(violation) if self.excuses(&violation) => {
                self.host.fail(LateError { code: INVALID_HANDLE, sticky: false, message: number });
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Returns whether a message names a handle that was refused before. For the launch of a graph only the
    /// graph itself counts, because the launch starts node by node and its rest cannot be refused.
    fn is_excused(&self, kind: Kind, violation: &Violation) -> bool {
        let graph = matches!(violation, Violation::Handle { what: "graph", .. });
        self.excuses(violation) && (kind != Kind::GraphLaunch || graph)
    }

    /// Returns whether a violation consists in naming a handle that may have been refused.
    fn excuses(&self, violation: &Violation) -> bool {
        let Violation::Handle { what, state: Violation::UNKNOWN, .. } = violation else { return false };
        HandleKind::named(what).is_some_and(|minted| self.refused[minted as usize])
    }
}
