//! Calls: messages that the host answers, each in a reply slot.

use vgpu_pace::WaitEstimate;
use vgpu_wire::area::{REPLY_DATA_MAX, REPLY_TEXT_MAX};
use vgpu_wire::{Kind, RoundTrip};

use crate::counters::index_of;
use crate::link::Link;
use crate::outgoing::{Outgoing, Tail};
use crate::session_error::{GoneReason, SessionError};
use crate::submission::Submission;
use crate::tracer::Awaited;
use crate::wait::wait_until;

/// The host's reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Result of the call, a `CUresult`.
    pub status: u32,
    /// Number of bytes of data that the host sent. The caller's buffer holds as many of them as fit. 0 if the
    /// call failed.
    pub bytes: usize,
    /// Reason why the call failed, as the host states it on one line; empty if it states none.
    pub why: Box<str>,
}

/// State of a session's outstanding calls.
#[derive(Debug)]
pub(crate) struct Replies {
    /// Estimate of the time until the reply to each kind.
    usual: [WaitEstimate; Kind::ALL.len()],
}

impl Replies {
    pub(crate) fn new() -> Self {
        Self { usual: [const { WaitEstimate::new() }; Kind::ALL.len()] }
    }

    /// Sends a message and waits for its reply. The data is copied to `reply`, truncated to its length.
    pub(crate) fn call<P: RoundTrip>(
        &self,
        link: &Link,
        submission: &Submission,
        mut body: P,
        tail: Tail<'_>,
        reply: &mut [u8],
    ) -> Result<Answer, SessionError> {
        link.enter()?;
        let slot = link.reply_slots.acquire(|| link.enter())?;
        body.set_reply(slot);
        let usual = &self.usual[const { index_of(P::KIND) }];
        let answer = exchange(link, submission, slot, &Outgoing::new(&body, tail), usual, reply);
        // The host may still write to the slot of a call that was given up, but then the session is lost, and
        // no slot is used again.
        if answer.as_ref().map_or_else(|lost| !lost.is_final(), |_| true) {
            link.reply_slots.release(slot);
        }
        answer
    }
}

fn exchange(
    link: &Link,
    submission: &Submission,
    slot: u32,
    message: &Outgoing<'_>,
    usual: &WaitEstimate,
    reply: &mut [u8],
) -> Result<Answer, SessionError> {
    let number = submission.send(link, message)?;
    // Until the reply is stored, the slot holds 0 or the number of an earlier message.
    wait_until(link, Awaited::Answer, usual, || Ok(link.channel.ticket(slot) == number), Link::ended)?;
    let (status, bytes) = link.channel.answer(slot);
    if u64::from(bytes) > REPLY_DATA_MAX {
        return Err(link.gone(GoneReason::Nonsense));
    }
    let bytes = bytes as usize;
    if status != 0 {
        let mut text = vec![0; bytes.min(REPLY_TEXT_MAX)];
        link.channel.answer_data(slot, &mut text);
        return Ok(Answer { status, bytes: 0, why: shown(&text) });
    }
    let fit = bytes.min(reply.len());
    link.channel.answer_data(slot, &mut reply[..fit]);
    Ok(Answer { status, bytes, why: Box::default() })
}

/// Returns a host's text without characters that control a terminal.
pub(crate) fn shown(text: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(text);
    text.trim().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_text_does_not_steer_a_terminal() {
        assert_eq!(&*shown(b"line 3:\x1b[2J wrong\n\0\xff"), "line 3: [2J wrong  \u{fffd}");
        assert_eq!(&*shown(b""), "");
    }
}
