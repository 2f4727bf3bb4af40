//! Reply slots: who has which, and how an answer is fetched.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use vgpu_wire::area::{REPLIES, REPLY_DATA_MAX, REPLY_TEXT_MAX};
use vgpu_wire::{Kind, RoundTrip};

use crate::counters::index_of;
use crate::inner::{Inner, lock};
use crate::lost::{GoneReason, Lost};
use crate::ring::{Outgoing, Tail};
use crate::session::Answer;
use crate::tracer::Awaited;
use crate::wait::Usual;

const _: () = assert!(REPLIES == u32::BITS, "the free slots are the bits of a word");

/// The slots of a session.
#[derive(Debug)]
pub(crate) struct Replies {
    /// Free slots, a bit each.
    free: Mutex<u32>,
    freed: Condvar,
    /// How long an answer of each kind usually takes.
    usual: [Usual; Kind::ALL.len()],
}

impl Replies {
    pub(crate) fn new() -> Self {
        Self {
            free: Mutex::new(u32::MAX),
            freed: Condvar::new(),
            usual: [const { Usual::new() }; Kind::ALL.len()],
        }
    }

    /// Wakes those who wait for a slot: the session is lost.
    pub(crate) fn wake_all(&self) {
        self.freed.notify_all();
    }

    fn give_back(&self, slot: u32) {
        *lock(&self.free) |= 1 << slot;
        self.freed.notify_one();
    }
}

impl Inner {
    fn take_slot(&self) -> Result<u32, Lost> {
        let mut free = lock(&self.replies.free);
        while *free == 0 {
            // More calls than slots are under way. Each of them ends, or the session does.
            let wait = self.replies.freed.wait_timeout(free, Duration::from_millis(450));
            free = wait.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            self.enter()?;
        }
        let slot = free.trailing_zeros();
        *free &= !(1 << slot);
        Ok(slot)
    }

    /// Sends a message and waits for its answer.
    pub(crate) fn call<P: RoundTrip>(
        &self,
        mut body: P,
        tail: Tail<'_>,
        reply: &mut [u8],
    ) -> Result<Answer, Lost> {
        self.enter()?;
        let slot = self.take_slot()?;
        body.set_reply(slot);
        let usual = &self.replies.usual[const { index_of(P::KIND) }];
        let answer = self.exchange(slot, &Outgoing::new(&body, tail), usual, reply);
        // The host may still write to the slot of a call that was given up; but then the session is lost, and no slot is used again.
        if answer.as_ref().map_or_else(|lost| !lost.is_final(), |_| true) {
            self.replies.give_back(slot);
        }
        answer
    }

    fn exchange(
        &self,
        slot: u32,
        message: &Outgoing<'_>,
        usual: &Usual,
        reply: &mut [u8],
    ) -> Result<Answer, Lost> {
        let number = self.post(message)?;
        // A slot holds the number of an earlier message, or 0, until the answer to this one is there.
        self.wait_until(Awaited::Answer, usual, || Ok(self.channel.ticket(slot) == number), Self::ended)?;
        let (status, bytes) = self.channel.answer(slot);
        if u64::from(bytes) > REPLY_DATA_MAX {
            return Err(self.gone(GoneReason::Nonsense));
        }
        let bytes = bytes as usize;
        if status != 0 {
            let mut text = vec![0; bytes.min(REPLY_TEXT_MAX)];
            self.channel.answer_data(slot, &mut text);
            return Ok(Answer { status, bytes: 0, why: shown(&text) });
        }
        let fit = bytes.min(reply.len());
        self.channel.answer_data(slot, &mut reply[..fit]);
        Ok(Answer { status, bytes, why: Box::default() })
    }
}

/// A host's text as it may be shown on a terminal: a host is not to steer it.
fn shown(text: &[u8]) -> Box<str> {
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

    #[test]
    fn every_slot_is_given_once() {
        let replies = Replies::new();
        let mut seen = 0u32;
        for _ in 0..REPLIES {
            let mut free = lock(&replies.free);
            let slot = free.trailing_zeros();
            *free &= !(1 << slot);
            seen |= 1 << slot;
        }
        assert_eq!(seen, u32::MAX);
        assert_eq!(*lock(&replies.free), 0);
        replies.give_back(9);
        assert_eq!(lock(&replies.free).trailing_zeros(), 9);
    }
}
