//! A session on a device of version 1: its messages are taken from the ring and executed as calls.

use vgpu_wire::area::{ERROR_ENDED, ERROR_STICKY, reply_text};
use vgpu_wire::{Body, Message};

use crate::registers::RegisterError;
use crate::session_error::{GoneReason, SessionError};
use crate::status::{INVALID_CONTEXT, OUT_OF_MEMORY};

use super::call::Failure;
use super::host::Host;
use super::mailbox::Mailbox;
use super::returns::Returns;
use super::translate::Translator;

/// An attached session, as the bridge has it.
#[derive(Debug)]
pub(super) struct Session {
    /// Index of the channel, which is also the token.
    pub(super) index: u32,
    pub(super) returns: Returns,
    pub(super) translator: Translator,
    /// The error that broke the session: nothing is executed any more.
    pub(super) broken: Option<u32>,
    pub(super) message: Vec<u8>,
}

impl Session {
    /// Executes the message that was taken last.
    pub(super) fn translate(&mut self, mailbox: &Mailbox) -> Result<(), RegisterError> {
        let Ok(message) = Message::decode(&self.message) else {
            return Err(RegisterError::Lost(SessionError::Gone { reason: GoneReason::Nonsense }));
        };
        let carried = match self.broken {
            Some(code) => Err(Failure::Status(code)),
            None => self.translator.translate(Host::new(mailbox, self.index), &self.returns, &message),
        };
        match carried {
            Ok(()) => {}
            Err(Failure::Status(code)) => {
                if let Some(slot) = message.body.reply() {
                    self.returns.reply(slot, code, reply_text(why_not(&message.body)));
                } else {
                    self.fail(self.returns.number(), code);
                }
            }
            Err(Failure::Lost(lost)) => return Err(RegisterError::Lost(lost)),
        }
        self.returns.finish();
        Ok(())
    }

    /// Stores an error as that of a message.
    pub(super) fn fail(&mut self, number: u64, code: u32) {
        let flags = if ends(code) {
            self.broken = Some(code);
            ERROR_STICKY | ERROR_ENDED
        } else {
            0
        };
        self.returns.fail(number, code, flags);
    }
}

/// Why a call failed. A host of version 1 gives a code and no words, so the guest's own say where there may
/// be some.
const fn why_not(body: &Body) -> &'static str {
    match body {
        Body::ModuleOpen(_) | Body::ModuleLoad(_) | Body::FunctionGet(_) => {
            "refused by the driver behind a host of version 1, which tells a code alone; its mediator's log may say more"
        }
        _ => "",
    }
}

/// What the failure of a call that any owner may make says of the host. An owner for which it has no room
/// gets out-of-memory for everything.
pub(super) const fn of_host(failure: Failure) -> Failure {
    match failure {
        Failure::Status(OUT_OF_MEMORY) => Failure::Lost(SessionError::Gone { reason: GoneReason::Owners }),
        other => lost_context(other),
    }
}

/// The same for a call of an owner for whom there is room. Once a fault has ended the context that all share,
/// every process gets invalid-context (Q31).
pub(super) const fn lost_context(failure: Failure) -> Failure {
    match failure {
        Failure::Status(INVALID_CONTEXT) => Failure::Lost(SessionError::Gone { reason: GoneReason::Context }),
        other => other,
    }
}

/// Whether an error ends the context: invalid-context and those of kernels. The host has reset
/// it then, and the handles of this session name nothing (Q17).
const fn ends(code: u32) -> bool {
    matches!(code, INVALID_CONTEXT | 700 | 702 | 709 | 710 | 714..=719)
}
