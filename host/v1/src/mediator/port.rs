//! An owner's session with the executor. Messages of version 2 are built here, checked as a guest's are, and
//! waited for.
//!
//! The session has an area of a private window in place of a guest's channel, so that replies, words and
//! errors are returned in the usual way. There is no ring, because each message is executed at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::thread::futex;
use vgpu_device::{ExecutorError, LocalSession, SessionError, SessionHost};
use vgpu_wire::area;
use vgpu_wire::body::session::Hello;
use vgpu_wire::body::stream::Signal;
use vgpu_wire::v1::call::{EVENTS_MAX, STREAMS_MAX};
use vgpu_wire::{Header, JOIN_ALL, Mark, Message, Payload, RoundTrip, Span, padded};
use zerocopy::{FromBytes, IntoBytes};

use super::slots::{PayloadSlot, PayloadSlots, SLOT_BYTES};
use super::status;

/// Largest payload of a message in bytes. A longer payload is passed through the window.
const INLINE_MOST: usize = 32 << 10;
/// Reply slot of all messages. One is enough, because one message is answered at a time.
const SLOT: u32 = 0;
/// Completion word of synchronizes, of which an owner has one at a time.
const SYNC_WORD: u32 = 1;
/// Completion word of copies, of which an owner has one at a time.
pub(super) const COPY_WORD: u32 = 1000;
/// First completion word of events. Each event has one, by its index.
const EVENT_WORD: u32 = 2;
/// Largest number of streams that can have a query at the same time: those that an owner may have, and the
/// default stream.
pub(super) const QUERIES_MAX: usize = STREAMS_MAX + 1;
const _: () = assert!(Port::query_word(QUERIES_MAX as u32) <= area::WORDS, "every query has a word");
/// Number of polls of a wait before it sleeps.
const LOOKS: u32 = 2000;

/// The session of an owner, as the calls of version 1 use it.
pub(super) struct Port {
    session: LocalSession,
    slots: Arc<PayloadSlots>,
    /// Memory for the long payload of the current call. It is declared after the session, and so dropped
    /// later, because a lost session may still use it.
    slot: Option<PayloadSlot>,
    /// The newest value requested of each completion word, by the word's number.
    words: Vec<u64>,
    /// Number of the message that caused the newest late error that a call has reported.
    told: u64,
    /// Number of messages so far, without the marks of synchronizes and queries.
    given: u64,
    /// Whether the session is lost and can no longer be used.
    dead: bool,
    bytes: Vec<u8>,
}

impl Port {
    /// Greets the executor in a session that has just been opened.
    pub(super) fn open(session: LocalSession, slots: Arc<PayloadSlots>) -> Result<Self, ExecutorError> {
        let words = vec![0; area::WORDS as usize];
        let mut port =
            Self { session, slots, slot: None, words, told: 0, given: 0, dead: false, bytes: Vec::new() };
        port.ask(Hello { reply: SLOT, process: 0, reserved: 0 }, &[])
            .map_err(|code| ExecutorError::Failed(format!("a greeting was answered with {code}")))?;
        Ok(port)
    }

    pub(super) const fn host(&self) -> &SessionHost {
        self.session.host()
    }

    /// Returns whether the session is lost, with all its objects.
    pub(super) const fn is_dead(&self) -> bool {
        self.dead
    }

    /// Sends a message to the executor, which handles it before this returns. An error means that the session
    /// is lost.
    fn submit<P: Payload>(&mut self, body: &P, tail: &[u8]) -> Result<(), u32> {
        if self.dead {
            return Err(status::UNKNOWN);
        }
        let used = size_of::<Header>() + size_of_val(body) + tail.len();
        let total = padded(used as u64) as usize;
        let header = Header {
            kind: P::KIND as u16,
            flags: 0,
            bytes: total as u32,
            number: self.session.number() as u32 + 1,
            join: 0,
        };
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body.as_bytes());
        bytes.extend_from_slice(tail);
        bytes.resize(total, 0);
        debug_assert!(Message::decode(bytes).is_ok(), "messages are built right");
        self.session.dispatch(bytes).map_err(|error| {
            let kind = P::KIND.name();
            if let SessionError::Violation(violation) = &error {
                // The version 1 call was checked, so a violation is a bug of this mediator.
                tracing::error!(kind, "an owner's session ends: {violation}");
            } else {
                tracing::warn!(kind, "an owner's session ends: {error}");
            }
            self.dead = true;
            status::UNKNOWN
        })
    }

    /// Returns the number of messages that the session was given, without the marks of synchronizes and
    /// queries.
    pub(super) const fn given(&self) -> u64 {
        self.given
    }

    /// Sends a message that has no answer. An error of the work is reported by [`Port::check_errors`].
    pub(super) fn send<P: Payload>(&mut self, body: &P, tail: &[u8]) -> Result<(), u32> {
        self.given += 1;
        self.submit(body, tail)
    }

    /// Sends a message and waits for its answer. Returns the answer's data, or the `CUresult` if that is an
    /// error.
    pub(super) fn ask<P: RoundTrip>(&mut self, mut body: P, tail: &[u8]) -> Result<Vec<u8>, u32> {
        body.set_reply(SLOT);
        self.given += 1;
        self.submit(&body, tail)?;
        let slot = area::RETURN_REPLIES + u64::from(SLOT) * area::REPLY_BYTES;
        let number = self.session.number();
        let ticket = |host: &SessionHost| {
            host.returns().u64_at(slot + area::REPLY_TICKET).load(Ordering::Acquire) == number
        };
        self.wait(ticket)?;
        let returns = self.host().returns();
        let code = returns.u32_at(slot + area::REPLY_STATUS).load(Ordering::Relaxed);
        let bytes = u64::from(returns.u32_at(slot + area::REPLY_LEN).load(Ordering::Relaxed));
        if code != 0 {
            // A session with a sticky error answers every message with it.
            self.check_errors()?;
            return Err(code);
        }
        let mut data = vec![0; bytes.min(area::REPLY_DATA_MAX) as usize];
        if let Some(slice) = returns.slice(slot + area::REPLY_DATA, data.len() as u64) {
            slice.copy_to(&mut data);
        }
        Ok(data)
    }

    /// Sends a message as [`Port::ask`] does, for an answer of a fixed layout. An answer of another size is
    /// `CUDA_ERROR_UNKNOWN`.
    pub(super) fn ask_for<P: RoundTrip, R: FromBytes>(&mut self, body: P, tail: &[u8]) -> Result<R, u32> {
        let data = self.ask(body, tail)?;
        R::read_from_bytes(&data).map_err(|_| {
            tracing::error!(
                kind = P::KIND.name(),
                bytes = data.len(),
                "the executor's answer has the wrong size"
            );
            status::UNKNOWN
        })
    }

    /// Returns the next mark of a completion word: a value one above the newest one.
    pub(super) fn mark(&mut self, word: u32) -> Mark {
        let value = &mut self.words[word as usize];
        *value += 1;
        Mark::new(word, *value)
    }

    /// Returns the completion word of event `index`, which is below [`EVENTS_MAX`].
    pub(super) const fn event_word(index: u32) -> u32 {
        EVENT_WORD + index
    }

    /// Returns the completion word of query `index`, which is below [`QUERIES_MAX`].
    pub(super) const fn query_word(index: u32) -> u32 {
        EVENT_WORD + EVENTS_MAX as u32 + index
    }

    /// Returns whether a mark has been reached, which means that the work before it has completed.
    pub(super) fn is_done(&self, mark: &Mark) -> bool {
        self.field(mark, area::WORD_VALUE) >= mark.value
    }

    /// Returns when the mark's word was last stored, in nanoseconds of the executor's clock.
    pub(super) fn time(&self, mark: &Mark) -> u64 {
        self.field(mark, area::WORD_TIME)
    }

    fn field(&self, mark: &Mark, field: u64) -> u64 {
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        self.host().returns().u64_at(word + field).load(Ordering::Acquire)
    }

    /// Waits for a mark. Fails with an error of the work before it.
    pub(super) fn wait_for(&mut self, mark: &Mark) -> Result<(), u32> {
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        let value = mark.value;
        self.wait(|host| host.returns().u64_at(word + area::WORD_VALUE).load(Ordering::Acquire) >= value)?;
        self.check_errors()
    }

    /// Submits a mark of `word` after the work of a stream, or of all streams.
    pub(super) fn signal(&mut self, stream: u32, word: u32) -> Result<Mark, u32> {
        let mark = self.mark(word);
        self.submit(&Signal { stream, reserved: 0, mark }, &[])?;
        Ok(mark)
    }

    /// Waits for all work of a stream.
    pub(super) fn synchronize(&mut self, stream: u32) -> Result<(), u32> {
        let mark = self.signal(stream, SYNC_WORD)?;
        self.wait_for(&mark)
    }

    /// Waits for all work of the owner.
    pub(super) fn finish(&mut self) -> Result<(), u32> {
        self.synchronize(JOIN_ALL)
    }

    /// Fails with the newest late error, if it has not been reported yet. A sticky error also ends the
    /// session, as the loss of a context does.
    pub(super) fn check_errors(&mut self) -> Result<(), u32> {
        let returns = self.session.host().returns();
        let message = returns.u64_at(area::RETURN_ERROR_MESSAGE).load(Ordering::Acquire);
        if message <= self.told {
            return Ok(());
        }
        self.told = message;
        let code = returns.u32_at(area::RETURN_ERROR).load(Ordering::Relaxed);
        let flags = returns.u32_at(area::RETURN_ERROR_FLAGS).load(Ordering::Relaxed);
        self.dead |= flags & area::ERROR_STICKY != 0;
        Err(code)
    }

    /// Returns the span of a long payload, of at most [`SLOT_BYTES`]. Acquires the call's slot, unless the
    /// call has one.
    fn span(&mut self, bytes: u64) -> Result<Span, u32> {
        if bytes > SLOT_BYTES {
            return Err(status::INVALID_VALUE);
        }
        let offset = if let Some(slot) = &self.slot {
            slot.offset()
        } else {
            let slot = self.slots.acquire().ok_or(status::OUT_OF_MEMORY)?;
            let offset = slot.offset();
            self.session.lend_window(offset, SLOT_BYTES);
            self.slot = Some(slot);
            offset
        };
        Ok(Span::bar(offset, bytes))
    }

    /// Copies a long payload to the call's slot, where the executor can read it.
    fn stage(&mut self, data: &[u8]) -> Result<Span, u32> {
        let span = self.span(data.len() as u64)?;
        let slice = self.host().window().slice(span.offset, span.bytes).ok_or(status::INVALID_VALUE)?;
        slice.copy_from(data);
        Ok(span)
    }

    /// Releases the slot of the call that has ended, so that another owner's call can use it. A lost session
    /// keeps it, because the executor may still access it.
    pub(super) fn release_slot(&mut self) {
        if let Some(slot) = self.slot.take_if(|_| !self.dead) {
            self.session.revoke_window(slot.offset());
        }
    }

    /// Marks the session as lost: the owner ends after the current call.
    pub(super) const fn lose(&mut self) {
        self.dead = true;
    }

    /// Returns the span through which `data` is passed, and the tail of the message: inline if it is short,
    /// else by the call's slot.
    pub(super) fn source<'a>(&mut self, data: &'a [u8]) -> Result<(Span, &'a [u8]), u32> {
        if data.len() <= INLINE_MOST {
            return Ok((Span::inline(data.len() as u64), data));
        }
        Ok((self.stage(data)?, &[]))
    }

    /// Cuts data that is longer than a message into pieces, and returns each with its offset in bytes.
    pub(super) fn pieces(data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
        data.chunks(INLINE_MOST).enumerate().map(|(index, piece)| ((index * INLINE_MOST) as u64, piece))
    }

    /// Returns a span of `bytes` of window memory, into which the executor writes an answer.
    pub(super) fn sink(&mut self, bytes: u64) -> Result<Span, u32> {
        self.span(bytes)
    }

    /// Copies an answer out of the span of [`Port::sink`].
    pub(super) fn fetch(&self, span: &Span) -> Vec<u8> {
        let mut data = vec![0; span.bytes as usize];
        if let Some(slice) = self.host().window().slice(span.offset, span.bytes) {
            slice.copy_to(&mut data);
        }
        data
    }

    /// Waits until `done` returns true: polls for a while, then sleeps as a guest does. Fails if the owner is
    /// stopped, and then the session is lost.
    fn wait(&mut self, done: impl Fn(&SessionHost) -> bool) -> Result<(), u32> {
        for _ in 0..LOOKS {
            if done(self.host()) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let window = self.host().window();
        let sleepers = window.u32_at(self.host().area() + area::SUBMIT + area::SUBMIT_SLEEPERS);
        let wake = self.host().returns().u32_at(area::RETURN_WAKE);
        sleepers.store(1, Ordering::SeqCst);
        let came = loop {
            let before = wake.load(Ordering::SeqCst);
            std::sync::atomic::fence(Ordering::SeqCst);
            if done(self.host()) {
                break true;
            }
            if self.host().stopping() {
                break false;
            }
            // The loop handles a spurious wake-up.
            let _ = futex::wait(wake, futex::Flags::empty(), before, None);
        };
        sleepers.store(0, Ordering::SeqCst);
        self.dead |= !came;
        if came { Ok(()) } else { Err(status::UNKNOWN) }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Long-running work notices the stop, and dropping the session waits for that work.
        self.host().stop();
    }
}
