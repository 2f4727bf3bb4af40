//! A session on a device of version 1: its messages are read from the ring and executed as calls.

use vgpu_transport::parts::RegisterError;
use vgpu_transport::{GoneReason, SessionError};
use vgpu_wire::area::{ERROR_ENDED, ERROR_STICKY, reply_text};
use vgpu_wire::{Body, Message};

use crate::call::CallError;
use crate::host_session::HostSession;
use crate::mailbox::Mailbox;
use crate::return_area::ReturnArea;
use crate::status::{INVALID_CONTEXT, OUT_OF_MEMORY};
use crate::translate::Translator;

/// An attached session: what the bridge knows of it beside its objects.
#[derive(Debug)]
pub(crate) struct BridgedSession {
    /// Index of the channel, which is also the token.
    pub(crate) index: u32,
    pub(crate) returns: ReturnArea,
    pub(crate) translator: Translator,
    /// The error that ended the context. While it is set, every message fails with it.
    pub(crate) broken: Option<u32>,
    /// The message that was read last.
    pub(crate) message: Vec<u8>,
}

impl BridgedSession {
    /// Executes the message that was read last.
    pub(crate) fn execute(&mut self, mailbox: &Mailbox) -> Result<(), RegisterError> {
        let Ok(message) = Message::decode(&self.message) else {
            return Err(RegisterError::Lost(SessionError::Gone { reason: GoneReason::Nonsense }));
        };
        let executed = match self.broken {
            Some(code) => Err(CallError::Status(code)),
            None => self.translator.translate(HostSession::new(mailbox, self.index), &self.returns, &message),
        };
        match executed {
            Ok(()) => {}
            Err(CallError::Status(code)) => {
                if let Some(slot) = message.body.reply() {
                    self.returns.reply(slot, code, reply_text(failure_text(&message.body)));
                } else {
                    self.fail(self.returns.number(), code);
                }
            }
            Err(CallError::Lost(lost)) => return Err(RegisterError::Lost(lost)),
        }
        self.returns.finish();
        Ok(())
    }

    /// Stores a `CUresult` as the late error of a message. An error that ends the context ends the session.
    pub(crate) fn fail(&mut self, number: u64, code: u32) {
        let flags = if ends_context(code) {
            self.broken = Some(code);
            ERROR_STICKY | ERROR_ENDED
        } else {
            0
        };
        self.returns.fail(number, code, flags);
    }
}

/// Returns the reason that a reply states beside its error code. A host of version 1 returns none.
const fn failure_text(body: &Body) -> &'static str {
    match body {
        Body::ModuleOpen(_) | Body::ModuleLoad(_) | Body::FunctionGet(_) => {
            "refused by the driver behind a host of version 1, which tells a code alone; its mediator's log may say more"
        }
        _ => "",
    }
}

/// Converts the error of a call that any owner may make. A host without room for another owner returns
/// out-of-memory for every call, so that error becomes [`GoneReason::Owners`].
pub(crate) const fn lost_if_host_is_full(error: CallError) -> CallError {
    match error {
        CallError::Status(OUT_OF_MEMORY) => {
            CallError::Lost(SessionError::Gone { reason: GoneReason::Owners })
        }
        other => lost_if_context_died(other),
    }
}

/// Converts the error of a call whose owner the host knows. After a fault has ended the context that all
/// processes share, the host returns invalid-context to each of them (Q31), so that error becomes
/// [`GoneReason::Context`].
pub(crate) const fn lost_if_context_died(error: CallError) -> CallError {
    match error {
        CallError::Status(INVALID_CONTEXT) => {
            CallError::Lost(SessionError::Gone { reason: GoneReason::Context })
        }
        other => other,
    }
}

/// Returns whether an error ends the context, as invalid-context and the errors of kernels do. The host has
/// then reset its context, and the handles of this session are no longer valid (Q17).
const fn ends_context(code: u32) -> bool {
    matches!(code, INVALID_CONTEXT | 700 | 702 | 709 | 710 | 714..=719)
}
