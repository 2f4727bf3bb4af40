//! An owner's session with the executor: messages of version 2, built here, checked as a guest's are, and
//! waited for.
//!
//! The session has an area of a window that nobody else sees, as if it were a guest's channel, so that
//! replies, words and errors come the same way; there is no ring, since each message is handed over at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::thread::futex;
use vgpu_wire::area;
use vgpu_wire::body::session::Hello;
use vgpu_wire::body::stream::Signal;
use vgpu_wire::v1::call::{EVENTS_MAX, STREAMS_MAX};
use vgpu_wire::{Header, JOIN_ALL, Mark, Message, Payload, RoundTrip, Span, padded};
use zerocopy::{FromBytes, IntoBytes};

use super::slots::{SLOT_BYTES, Slot, Slots};
use super::status;
use crate::dispatch::dispatcher::{Dispatcher, Greeting};
use crate::executor::{Executor, ExecutorError, SessionError};
use crate::session::host::SessionHost;

/// The most bytes that go in a message; more go by the window.
const INLINE_MOST: usize = 32 << 10;
/// The slot of all replies: one message is answered at a time.
const SLOT: u32 = 0;
/// The word that a synchronize waits for.
const SYNC_WORD: u32 = 1;
/// The word by which copies are waited for.
pub(super) const COPY_WORD: u32 = 1000;
/// The first word of an event.
const EVENT_WORD: u32 = 2;
/// Streams that may be asked about at the same time: those that an owner may have, and the default one.
pub(super) const QUERIES_MAX: usize = STREAMS_MAX + 1;
const _: () = assert!(Port::query_word(QUERIES_MAX as u32) <= area::WORDS, "every query has a word");
/// Looks at what is waited for before sleeping.
const LOOKS: u32 = 2000;

/// An owner's session.
pub(super) struct Port {
    host: SessionHost,
    dispatcher: Dispatcher,
    slots: Arc<Slots>,
    /// Through which the call's long payload goes. Behind the session, which may still use it when that is
    /// lost.
    slot: Option<Slot>,
    /// Values of words so far.
    words: Vec<u64>,
    /// The newest error that has been told.
    told: u64,
    /// Messages so far, marks that a synchronize or a query waits for not counted.
    given: u64,
    /// The session is lost: nothing of it can be used any more.
    dead: bool,
    bytes: Vec<u8>,
}

impl Port {
    /// Opens a session.
    pub(super) fn open(
        host: SessionHost,
        executor: &dyn Executor,
        greeting: &Arc<Greeting>,
        slots: Arc<Slots>,
    ) -> Result<Self, ExecutorError> {
        let session = executor.open(host.clone())?;
        let dispatcher = Dispatcher::new(host.clone(), Arc::clone(greeting), session);
        let words = vec![0; area::WORDS as usize];
        let mut port = Self {
            host,
            dispatcher,
            slots,
            slot: None,
            words,
            told: 0,
            given: 0,
            dead: false,
            bytes: Vec::new(),
        };
        port.ask(Hello { reply: SLOT, process: 0, reserved: 0 }, &[])
            .map_err(|code| ExecutorError::Failed(format!("a greeting was answered with {code}")))?;
        Ok(port)
    }

    pub(super) const fn host(&self) -> &SessionHost {
        &self.host
    }

    /// Whether the session is lost, with all that it held.
    pub(super) const fn is_dead(&self) -> bool {
        self.dead
    }

    /// Hands a message over. An error: the session is lost.
    fn give<P: Payload>(&mut self, body: &P, tail: &[u8]) -> Result<(), u32> {
        if self.dead {
            return Err(status::UNKNOWN);
        }
        let used = size_of::<Header>() + size_of_val(body) + tail.len();
        let total = padded(used as u64) as usize;
        let header = Header {
            kind: P::KIND as u16,
            flags: 0,
            bytes: total as u32,
            number: self.dispatcher.number() as u32 + 1,
            join: 0,
        };
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body.as_bytes());
        bytes.extend_from_slice(tail);
        bytes.resize(total, 0);
        debug_assert!(Message::decode(bytes).is_ok(), "messages are built right");
        self.dispatcher.dispatch(bytes).map_err(|error| {
            let kind = P::KIND.name();
            if let SessionError::Violation(violation) = &error {
                // What a guest of version 1 sends has been checked, so this is a mistake here.
                tracing::error!(kind, "an owner's session ends: {violation}");
            } else {
                tracing::warn!(kind, "an owner's session ends: {error}");
            }
            self.dead = true;
            status::UNKNOWN
        })
    }

    /// How much the session has been given: a number that grows with all but marks.
    pub(super) const fn given(&self) -> u64 {
        self.given
    }

    /// Sends a message that nobody answers.
    pub(super) fn send<P: Payload>(&mut self, body: &P, tail: &[u8]) -> Result<(), u32> {
        self.given += 1;
        self.give(body, tail)
    }

    /// Sends a message and waits for its answer; the `CUresult` where that is an error.
    pub(super) fn ask<P: RoundTrip>(&mut self, mut body: P, tail: &[u8]) -> Result<Vec<u8>, u32> {
        body.set_reply(SLOT);
        self.given += 1;
        self.give(&body, tail)?;
        let slot = area::RETURN_REPLIES + u64::from(SLOT) * area::REPLY_BYTES;
        let number = self.dispatcher.number();
        let ticket = |host: &SessionHost| {
            host.returns().u64_at(slot + area::REPLY_TICKET).load(Ordering::Acquire) == number
        };
        self.wait(ticket)?;
        let returns = self.host.returns();
        let code = returns.u32_at(slot + area::REPLY_STATUS).load(Ordering::Relaxed);
        let bytes = u64::from(returns.u32_at(slot + area::REPLY_LEN).load(Ordering::Relaxed));
        if code != 0 {
            // A session with a sticky error answers everything with it.
            self.settle()?;
            return Err(code);
        }
        let mut data = vec![0; bytes.min(area::REPLY_DATA_MAX) as usize];
        if let Some(slice) = returns.slice(slot + area::REPLY_DATA, data.len() as u64) {
            slice.copy_to(&mut data);
        }
        Ok(data)
    }

    /// The same for an answer of a fixed form.
    pub(super) fn ask_for<P: RoundTrip, R: FromBytes>(&mut self, body: P, tail: &[u8]) -> Result<R, u32> {
        let data = self.ask(body, tail)?;
        R::read_from_bytes(&data).map_err(|_| {
            tracing::error!(kind = P::KIND.name(), bytes = data.len(), "the executor's answer is no answer");
            status::UNKNOWN
        })
    }

    /// The next value of a word.
    pub(super) fn mark(&mut self, word: u32) -> Mark {
        let value = &mut self.words[word as usize];
        *value += 1;
        Mark::new(word, *value)
    }

    /// The word of event number `index`, of [`EVENTS_MAX`].
    pub(super) const fn event_word(index: u32) -> u32 {
        EVENT_WORD + index
    }

    /// The word of a query's marks, queries being numbered up to [`QUERIES_MAX`].
    pub(super) const fn query_word(index: u32) -> u32 {
        EVENT_WORD + EVENTS_MAX as u32 + index
    }

    /// Whether a mark is stored.
    pub(super) fn is_done(&self, mark: &Mark) -> bool {
        self.field(mark, area::WORD_VALUE) >= mark.value
    }

    /// When a word was stored last, nanoseconds on the executor's clock.
    pub(super) fn time(&self, mark: &Mark) -> u64 {
        self.field(mark, area::WORD_TIME)
    }

    fn field(&self, mark: &Mark, field: u64) -> u64 {
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        self.host.returns().u64_at(word + field).load(Ordering::Acquire)
    }

    /// Waits for a mark, and for what went wrong before it.
    pub(super) fn wait_for(&mut self, mark: &Mark) -> Result<(), u32> {
        let word = area::RETURN_WORDS + u64::from(mark.word) * area::WORD_BYTES;
        let value = mark.value;
        self.wait(|host| host.returns().u64_at(word + area::WORD_VALUE).load(Ordering::Acquire) >= value)?;
        self.settle()
    }

    /// A mark of `word` behind the work of a stream, or of all.
    pub(super) fn signal(&mut self, stream: u32, word: u32) -> Result<Mark, u32> {
        let mark = self.mark(word);
        self.give(&Signal { stream, reserved: 0, mark }, &[])?;
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

    /// The newest error that no reply carried. A sticky one ends the session, as a lost context does.
    pub(super) fn settle(&mut self) -> Result<(), u32> {
        let returns = self.host.returns();
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

    /// A span for a long payload.
    fn span(&mut self, bytes: u64) -> Result<Span, u32> {
        if bytes > SLOT_BYTES {
            return Err(status::INVALID_VALUE);
        }
        let offset = if let Some(slot) = &self.slot {
            slot.offset()
        } else {
            let slot = self.slots.take().ok_or(status::OUT_OF_MEMORY)?;
            let offset = slot.offset();
            self.host.memory().lend(offset, SLOT_BYTES);
            self.slot = Some(slot);
            offset
        };
        Ok(Span::bar(offset, bytes))
    }

    /// Puts a long payload where the executor can read it.
    fn stage(&mut self, data: &[u8]) -> Result<Span, u32> {
        let span = self.span(data.len() as u64)?;
        let slice = self.host.window().slice(span.offset, span.bytes).ok_or(status::INVALID_VALUE)?;
        slice.copy_from(data);
        Ok(span)
    }

    /// The call is over, and another owner's may use the slot that it had. While a lost session lives it may
    /// still be read and written.
    pub(super) fn release_slot(&mut self) {
        if let Some(slot) = self.slot.take_if(|_| !self.dead) {
            self.host.memory().take_back(slot.offset());
        }
    }

    /// The session is not to be used any more.
    pub(super) const fn lose(&mut self) {
        self.dead = true;
    }

    /// The span that `data` travels by, and the tail that goes with it.
    pub(super) fn source<'a>(&mut self, data: &'a [u8]) -> Result<(Span, &'a [u8]), u32> {
        if data.len() <= INLINE_MOST {
            return Ok((Span::inline(data.len() as u64), data));
        }
        Ok((self.stage(data)?, &[]))
    }

    /// The pieces in which something longer than any message travels.
    pub(super) fn pieces(data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
        data.chunks(INLINE_MOST).enumerate().map(|(index, piece)| ((index * INLINE_MOST) as u64, piece))
    }

    /// A span for `bytes` of an answer.
    pub(super) fn sink(&mut self, bytes: u64) -> Result<Span, u32> {
        self.span(bytes)
    }

    /// What came back there.
    pub(super) fn fetch(&self, span: &Span) -> Vec<u8> {
        let mut data = vec![0; span.bytes as usize];
        if let Some(slice) = self.host.window().slice(span.offset, span.bytes) {
            slice.copy_to(&mut data);
        }
        data
    }

    /// Waits until `done`: looks for a while, then sleeps as a guest does.
    fn wait(&mut self, done: impl Fn(&SessionHost) -> bool) -> Result<(), u32> {
        for _ in 0..LOOKS {
            if done(&self.host) {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let window = self.host.window();
        let sleepers = window.u32_at(self.host.area() + area::SUBMIT + area::SUBMIT_SLEEPERS);
        let wake = self.host.returns().u32_at(area::RETURN_WAKE);
        sleepers.store(1, Ordering::SeqCst);
        let came = loop {
            let before = wake.load(Ordering::SeqCst);
            std::sync::atomic::fence(Ordering::SeqCst);
            if done(&self.host) {
                break true;
            }
            if self.host.stopping() {
                break false;
            }
            // A wake-up without news is looked into by the loop.
            let _ = futex::wait(wake, futex::Flags::empty(), before, None);
        };
        sleepers.store(0, Ordering::SeqCst);
        self.dead |= !came;
        if came { Ok(()) } else { Err(status::UNKNOWN) }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // Work that takes long sees it, and the session, whose drop is the dispatcher's, waits for it.
        self.host.stop();
    }
}
