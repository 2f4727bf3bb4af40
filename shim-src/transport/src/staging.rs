//! Copies of pageable memory: through pieces of window memory, several under way at once.
//!
//! A source is copied once, into a piece; a mark says when the host has read it, and the piece is used again. A
//! destination is filled from pieces whose marks say that the data is there, while the host fills the next ones. Small copies
//! to the device travel in the message. Pieces are taken from the window at the first copy that needs them, since most
//! processes only look; there are small and large ones, four of each.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::{Mark, Span};

use crate::counters::Live;
use crate::inner::{Inner, lock};
use crate::lost::Lost;
use crate::ring::{Outgoing, Tail};
use crate::words::Words;

/// Up to here a copy to the device is part of its message.
const INLINE: usize = 4 << 10;
/// Where there is no window memory, a long copy to the device goes in messages of this many bytes.
const INLINE_MOST: usize = 32 << 10;
/// Pieces of each size.
const PIECES: usize = 4;
const SMALL: usize = 64 << 10;
const LARGE: usize = 512 << 10;
/// Parts of a large copy are multiples of this.
const PART: usize = 64 << 10;

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
}

#[derive(Debug)]
struct Pool {
    bytes: usize,
    words: [u32; PIECES],
    pieces: Mutex<Pieces>,
    freed: Condvar,
}

/// A session's pieces.
#[derive(Debug)]
pub(crate) struct Staging {
    small: Pool,
    large: Pool,
}

impl Staging {
    /// Takes the words that it will need.
    pub(crate) fn new(words: &Words) -> Self {
        // A new session has all its words.
        let pool = |bytes| Pool {
            bytes,
            words: std::array::from_fn(|_| words.take().unwrap_or(0)),
            pieces: Mutex::default(),
            freed: Condvar::new(),
        };
        Self { small: pool(SMALL), large: pool(LARGE) }
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
        let mut at = 0;
        if bytes > INLINE {
            let (mut pool, mut part) = self.plan(bytes);
            while at < bytes {
                let Some(mut held) = self.hold(pool)? else {
                    if pool.bytes == SMALL {
                        break;
                    }
                    (pool, part) = (&self.staging.small, SMALL);
                    continue;
                };
                let length = part.min(bytes - at);
                self.wait_word(held.piece.word, held.piece.value)?;
                // SAFETY: `at` is below `bytes`, for which the caller promises the source.
                let from = unsafe { source.add(at) };
                // SAFETY: readable for `length` more, as the caller promises; nobody has a pointer into a piece.
                unsafe { self.window.copy_in(held.piece.offset, from, length) };
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
        let (mut pool, mut part) = self.plan(bytes);
        let mut asked = 0;
        let mut under_way: VecDeque<Part<'_>> = VecDeque::new();
        loop {
            while asked < bytes {
                // Whoever holds a piece does not wait for another: two threads could wait for each other.
                let held = if under_way.is_empty() { self.hold(pool)? } else { pool.try_hold() };
                let Some(mut held) = held else {
                    if !under_way.is_empty() {
                        break;
                    }
                    if pool.bytes == SMALL {
                        return Err(Lost::NoWindow);
                    }
                    (pool, part) = (&self.staging.small, SMALL);
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

    /// Which pieces a copy goes through, and how much at a time: so much that two sides can work at once, so little that both
    /// begin soon.
    fn plan(&self, bytes: usize) -> (&Pool, usize) {
        if bytes <= PIECES * SMALL {
            (&self.staging.small, SMALL)
        } else {
            (&self.staging.large, (bytes / PIECES).next_multiple_of(PART).min(LARGE))
        }
    }

    /// Takes a piece, and waits for one if all are held. `None`: there is no window memory for them.
    fn hold<'a>(&'a self, pool: &'a Pool) -> Result<Option<Held<'a>>, Lost> {
        let mut pieces = lock(&pool.pieces);
        loop {
            if let Some(piece) = pieces.idle.pop_front() {
                return Ok(Some(Held { pool, piece }));
            }
            if pieces.all == 0 && !pieces.asking {
                pieces.asking = true;
                drop(pieces);
                let grant = self.take_window((pool.bytes * PIECES) as u64);
                pieces = lock(&pool.pieces);
                pieces.asking = false;
                pool.freed.notify_all();
                let Some(grant) = grant? else { return Ok(None) };
                for (index, &word) in pool.words.iter().enumerate() {
                    let offset = grant.offset + (index * pool.bytes) as u64;
                    pieces.idle.push_back(Piece { offset, word, value: 0 });
                }
                pieces.all = PIECES;
                continue;
            }
            // Who holds one gives it back when its copy is done, or the session ends.
            let wait = pool.freed.wait_timeout(pieces, Duration::from_millis(450));
            pieces = wait.unwrap_or_else(PoisonError::into_inner).0;
            self.enter()?;
        }
    }
}

impl Pool {
    fn try_hold(&self) -> Option<Held<'_>> {
        let piece = lock(&self.pieces).idle.pop_front()?;
        Some(Held { pool: self, piece })
    }
}
