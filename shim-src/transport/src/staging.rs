//! Copies of pageable memory: through pieces of window memory, several under way at once.
//!
//! A source is copied once, into a piece; a mark says when the host has read it, and the piece is used again. A
//! destination is filled from pieces whose marks say that the data is there, while the host fills the next ones. Small copies
//! to the device travel in the message. Pieces are taken from the window at the first copy that needs them, since most
//! processes only look; there are small and large ones. While the window is full, copies to the device go through the ring, and
//! copies back through the two pieces that each channel has for itself: slower, but they always get on.
//!
//! The large pieces together are far more than two sides at work need: on a busy machine one of them may not run for some
//! milliseconds, in which the other goes on. Which piece comes next is chosen for the caches: the one used last that is free.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vgpu_wire::area;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::stream::Join;
use vgpu_wire::{Mark, Span};

use crate::counters::Live;
use crate::inner::{Inner, lock};
use crate::lost::Lost;
use crate::ring::{Outgoing, Tail};
use crate::v1::Bridge;
use crate::window::Grant;
use crate::words::Words;

/// Up to here a copy to the device is part of its message.
const INLINE: usize = 4 << 10;
/// Where there is no window memory, a long copy to the device goes in messages of this many bytes.
const INLINE_MOST: usize = 32 << 10;
/// Small pieces: how long, how many.
const SMALL: (usize, usize) = (64 << 10, 4);
/// Large pieces.
const LARGE: (usize, usize) = (512 << 10, 16);
/// The channel's own pieces.
const OWN: (usize, usize) = (area::STAGING_BYTES as usize / 2, 2);
/// Parts of a large copy are multiples of this.
const PART: usize = 64 << 10;
/// A large copy is made of this many parts at least, so that both sides begin soon.
const PARTS: usize = 4;
/// A window that was full is asked for pieces again after this long: each time costs two answers.
const FULL: Duration = Duration::from_millis(50);

/// Window memory through which bytes pass.
#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: u64,
    word: u32,
    /// What its word reads when the last use of it is over.
    value: u64,
}

#[derive(Debug, Default)]
struct Pieces {
    /// Those that nobody holds, the longest unused first.
    idle: VecDeque<Piece>,
    /// How many there are, held ones included.
    all: usize,
    /// A thread is asking for them.
    asking: bool,
    /// When the window had no room for them.
    refused: Option<Instant>,
}

#[derive(Debug)]
struct Pool {
    bytes: usize,
    words: Vec<u32>,
    pieces: Mutex<Pieces>,
    freed: Condvar,
}

/// A session's pieces.
#[derive(Debug)]
pub(crate) struct Staging {
    small: Pool,
    large: Pool,
    /// Those in the channel's own area.
    own: Pool,
}

impl Pool {
    fn new((bytes, count): (usize, usize), words: &Words) -> Self {
        // A new session has all its words.
        let words = (0..count).map(|_| words.take().unwrap_or(0)).collect();
        Self { bytes, words, pieces: Mutex::default(), freed: Condvar::new() }
    }

    /// Cuts memory into pieces, no more than there are words.
    fn fill(&self, pieces: &mut Pieces, memory: Grant) {
        let offsets = (memory.offset..).step_by(self.bytes);
        let count = (memory.bytes / self.bytes as u64) as usize;
        let all = self.words.iter().zip(offsets).take(count);
        pieces.idle.extend(all.map(|(&word, offset)| Piece { offset, word, value: 0 }));
        pieces.all = pieces.idle.len();
    }
}

impl Staging {
    /// Takes the words that it will need.
    pub(crate) fn new(words: &Words) -> Self {
        let [small, large, own] = [SMALL, LARGE, OWN].map(|size| Pool::new(size, words));
        Self { small, large, own }
    }
}

/// A piece in use; idle again on drop.
struct Held<'a> {
    pool: &'a Pool,
    piece: Piece,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.pool.pieces).idle.push_back(self.piece);
        self.pool.freed.notify_one();
    }
}

/// A part of a copy from the device that is under way.
struct Part<'a> {
    held: Held<'a>,
    at: usize,
    bytes: usize,
}

impl Inner {
    /// Copies to the device; see [`crate::Session::copy_in`].
    ///
    /// # Safety
    /// `source` is readable for `bytes`.
    pub(crate) unsafe fn copy_in(
        &self,
        stream: u32,
        to: u64,
        source: *const u8,
        bytes: usize,
    ) -> Result<(), Lost> {
        self.enter()?;
        if let Some(bridge) = &self.bridge {
            // SAFETY: as the caller promises.
            let copied = unsafe { bridge.copy_in(to, source, bytes) };
            Live::add(&self.counters.bytes_in, bytes as u64);
            return self.went_straight(bridge, copied);
        }
        let mut at = 0;
        if bytes > INLINE {
            let (mut pool, mut part) = self.plan(bytes);
            while at < bytes {
                let Some(mut held) = self.hold(pool)? else {
                    if pool.bytes == SMALL.0 {
                        break;
                    }
                    (pool, part) = (&self.staging.small, SMALL.0);
                    continue;
                };
                let length = part.min(bytes - at);
                self.wait_word(held.piece.word, held.piece.value)?;
                // SAFETY: `at` is below `bytes`, for which the caller promises the source.
                let from = unsafe { source.add(at) };
                // SAFETY: readable for `length` more, as the caller promises; nobody has a pointer into a piece.
                unsafe { self.window.stream_in(held.piece.offset, from, length) };
                let read = self.words.mark(held.piece.word);
                held.piece.value = read.value;
                let source = Span::bar(held.piece.offset, length as u64);
                let body =
                    CopyIn { stream, reserved: 0, destination: to.wrapping_add(at as u64), source, read };
                self.post(&Outgoing::new(&body, Tail::Pieces(&[])))?;
                at += length;
            }
        }
        while at < bytes {
            let length = INLINE_MOST.min(bytes - at);
            // SAFETY: `at` is below `bytes`, for which the caller promises the source.
            let from = unsafe { source.add(at) };
            let source = Span::inline(length as u64);
            let destination = to.wrapping_add(at as u64);
            let body = CopyIn { stream, reserved: 0, destination, source, read: Mark::NONE };
            self.post(&Outgoing::new(&body, Tail::Raw(from, length)))?;
            at += length;
        }
        Live::add(&self.counters.bytes_in, bytes as u64);
        Ok(())
    }

    /// Copies from the device; see [`crate::Session::copy_out`].
    ///
    /// # Safety
    /// `destination` is writable for `bytes`, and nobody else uses it meanwhile.
    pub(crate) unsafe fn copy_out(
        &self,
        stream: u32,
        from: u64,
        destination: *mut u8,
        bytes: usize,
    ) -> Result<(), Lost> {
        self.enter()?;
        if let Some((bridge, to)) = self.bridge.as_ref().zip(NonNull::new(destination)) {
            // SAFETY: as the caller promises.
            let copied = unsafe { bridge.copy_out(from, to, bytes) };
            Live::add(&self.counters.bytes_out, bytes as u64);
            return self.went_straight(bridge, copied);
        }
        let (mut pool, mut part) = self.plan(bytes);
        let mut asked = 0;
        let mut under_way: VecDeque<Part<'_>> = VecDeque::new();
        loop {
            while asked < bytes {
                // Whoever holds a piece does not wait for another: two threads could wait for each other.
                let held = if under_way.is_empty() { self.hold(pool)? } else { self.try_hold(pool) };
                let Some(mut held) = held else {
                    if !under_way.is_empty() {
                        break;
                    }
                    // The channel's own pieces are always there.
                    let next = if pool.bytes == SMALL.0 { &self.staging.own } else { &self.staging.small };
                    (pool, part) = (next, next.bytes);
                    continue;
                };
                let length = part.min(bytes - asked);
                self.wait_word(held.piece.word, held.piece.value)?;
                let written = self.words.mark(held.piece.word);
                held.piece.value = written.value;
                let destination = Span::bar(held.piece.offset, length as u64);
                let source = from.wrapping_add(asked as u64);
                let body = CopyOut { stream, reserved: 0, source, destination, written };
                self.post(&Outgoing::new(&body, Tail::Pieces(&[])))?;
                under_way.push_back(Part { held, at: asked, bytes: length });
                asked += length;
            }
            let Some(Part { held, at, bytes: length }) = under_way.pop_front() else { break };
            self.wait_word(held.piece.word, held.piece.value)?;
            // SAFETY: `at` is below `bytes`, for which the caller promises the destination.
            let to = unsafe { destination.add(at) };
            // SAFETY: writable for `length` more, as the caller promises; nobody has a pointer into a piece.
            unsafe { self.window.copy_out(held.piece.offset, to, length) };
        }
        Live::add(&self.counters.bytes_out, bytes as u64);
        Ok(())
    }

    /// The end of a copy that took no message: the host's error becomes that of one which is sent for it, and is reported late like
    /// every other.
    fn went_straight(&self, bridge: &Bridge, copied: Result<Result<(), u32>, Lost>) -> Result<(), Lost> {
        match copied {
            Ok(Ok(())) => Ok(()),
            Ok(Err(code)) => {
                let nothing = Join { stream: 0, reserved: 0 };
                self.post(&Outgoing::new(&nothing, Tail::Pieces(&[])))?;
                bridge.fail(code);
                Ok(())
            }
            Err(lost) => Err(self.lose(lost)),
        }
    }

    /// Which pieces a copy goes through, and how much at a time: so much that two sides can work at once, so little that both
    /// begin soon.
    fn plan(&self, bytes: usize) -> (&Pool, usize) {
        if bytes <= SMALL.0 * SMALL.1 {
            (&self.staging.small, SMALL.0)
        } else {
            (&self.staging.large, (bytes / PARTS).next_multiple_of(PART).min(LARGE.0))
        }
    }

    /// Takes a piece, and waits for one if all are held. `None`: there is no window memory for them.
    fn hold<'a>(&'a self, pool: &'a Pool) -> Result<Option<Held<'a>>, Lost> {
        let mut pieces = lock(&pool.pieces);
        loop {
            if let Some(piece) = self.choose(&mut pieces) {
                return Ok(Some(Held { pool, piece }));
            }
            if pieces.all == 0 && !pieces.asking {
                if pieces.refused.is_some_and(|then| then.elapsed() < FULL) {
                    return Ok(None);
                }
                pieces.asking = true;
                drop(pieces);
                let memory = self.memory_of(pool);
                pieces = lock(&pool.pieces);
                pieces.asking = false;
                pool.freed.notify_all();
                let Some(memory) = memory? else {
                    pieces.refused = Some(Instant::now());
                    return Ok(None);
                };
                pool.fill(&mut pieces, memory);
                continue;
            }
            // Who holds one gives it back when its copy is done, or the session ends.
            let wait = pool.freed.wait_timeout(pieces, Duration::from_millis(450));
            pieces = wait.unwrap_or_else(PoisonError::into_inner).0;
            self.enter()?;
        }
    }

    /// Memory for a pool's pieces, for the least number of them if there is no room for all.
    fn memory_of(&self, pool: &Pool) -> Result<Option<Grant>, Lost> {
        if std::ptr::eq(pool, &raw const self.staging.own) {
            let offset = self.areas.of(self.index) + area::STAGING;
            return Ok(Some(Grant { offset, bytes: area::STAGING_BYTES }));
        }
        let bytes = |count: usize| (pool.bytes * count) as u64;
        match self.take_window(bytes(pool.words.len()))? {
            None if pool.words.len() > PARTS => self.take_window(bytes(PARTS)),
            memory => Ok(memory),
        }
    }

    fn try_hold<'a>(&self, pool: &'a Pool) -> Option<Held<'a>> {
        let piece = self.choose(&mut lock(&pool.pieces))?;
        Some(Held { pool, piece })
    }

    /// The piece used last of those whose use is over, else the one that has been in use the longest.
    fn choose(&self, pieces: &mut Pieces) -> Option<Piece> {
        let over = |piece: &Piece| self.channel.value(piece.word) >= piece.value;
        let index = pieces.idle.iter().rposition(over).unwrap_or(0);
        pieces.idle.remove(index)
    }
}
