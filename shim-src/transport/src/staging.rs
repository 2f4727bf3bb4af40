//! Copies of pageable memory: through pieces of window memory, several under way at once.
//!
//! A source is copied once, into a piece; a mark says when the host has read it, and the piece is used again. A
//! destination is filled from pieces whose marks say that the data is there, while the host fills the next ones. Small copies
//! to the device travel in the message. Pieces are taken from the window at the first copy that needs them, since most
//! processes only look; there are small and large ones. While the window is full, copies to the device go through the ring, and
//! copies back through the two pieces that each channel has for itself: slower, but they always get on.
//!
//! Copies back come through pieces of guest pages where the session has some ([`crate::reading`]): those are memory, a BAR
//! may not be.
//!
//! The large pieces together are far more than two sides at work need: on a busy machine one of them may not run for some
//! milliseconds, in which the other goes on. Which piece comes next is chosen for the caches: the one used last that is free.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vgpu_wire::area;
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::body::stream::Join;
use vgpu_wire::{Mark, Span};

use crate::counters::Live;
use crate::inner::{Inner, lock};
use crate::lost::Lost;
use crate::pages::REST;
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
/// The session's segment of guest pages.
pub(crate) const PAGES: u32 = 1;
/// Of pieces in guest pages: how long the small and the large ones are. The small ones lie behind the return area, before the first large
/// one, which begins at a multiple of its size, as all do, and so crosses from no page to another.
const BACK: (usize, usize) = (SMALL.0, LARGE.0);
/// The most large pieces in guest pages.
const BACK_LARGE: usize = 7;
const BACK_SMALL: usize = (BACK.1 - REST as usize) / BACK.0;

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
    /// How many there can be.
    count: usize,
    /// A word for each; none yet of pieces in guest pages, which few sessions have.
    words: Vec<u32>,
    /// They lie in guest pages.
    back: bool,
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
    /// Those in guest pages.
    back_small: Pool,
    back_large: Pool,
}

impl Pool {
    fn new((bytes, count): (usize, usize), words: &Words) -> Self {
        // A new session has all its words.
        let words = (0..count).map(|_| words.take().unwrap_or(0)).collect();
        Self { bytes, count, words, back: false, pieces: Mutex::default(), freed: Condvar::new() }
    }

    /// Of pieces in guest pages.
    fn back((bytes, count): (usize, usize)) -> Self {
        let pieces = Mutex::default();
        Self { bytes, count, words: Vec::new(), back: true, pieces, freed: Condvar::new() }
    }

    /// `bytes` of a piece, as the host knows them.
    fn span(&self, piece: &Piece, bytes: usize) -> Span {
        if self.back {
            Span { segment: PAGES, reserved: 0, offset: piece.offset - REST, bytes: bytes as u64 }
        } else {
            Span::bar(piece.offset, bytes as u64)
        }
    }

    /// Cuts memory into pieces, no more than there are words.
    fn fill(&self, pieces: &mut Pieces, memory: Grant, words: &Words) {
        let offsets = (memory.offset..).step_by(self.bytes);
        let count = self.count.min((memory.bytes / self.bytes as u64) as usize);
        let more = if self.back { (0..count).map_while(|_| words.take()).collect() } else { Vec::new() };
        let all = self.words.iter().chain(&more).zip(offsets).take(count);
        pieces.idle.extend(all.map(|(&word, offset)| Piece { offset, word, value: 0 }));
        pieces.all = pieces.idle.len();
    }
}

impl Staging {
    /// Takes the words that it will need.
    pub(crate) fn new(words: &Words) -> Self {
        let [small, large, own] = [SMALL, LARGE, OWN].map(|size| Pool::new(size, words));
        let [back_small, back_large] = [(BACK.0, BACK_SMALL), (BACK.1, BACK_LARGE)].map(Pool::back);
        Self { small, large, own, back_small, back_large }
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
        let (mut pool, mut part) = self.plan_back(bytes);
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
                let destination = pool.span(&held.piece, length);
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
            let memory = match &self.pages {
                Some(pages) if held.pool.back => &pages.mapping,
                _ => &self.window,
            };
            // SAFETY: writable for `length` more, as the caller promises; nobody has a pointer into a piece.
            unsafe { memory.stream_out(held.piece.offset, to, length) };
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

    /// The same of a copy from the device.
    fn plan_back(&self, bytes: usize) -> (&Pool, usize) {
        let (pool, part) = self.plan(bytes);
        match (self.registered.load(Ordering::Acquire), pool.bytes == SMALL.0) {
            (false, _) => (pool, part),
            (true, true) => (&self.staging.back_small, part),
            (true, false) => (&self.staging.back_large, part),
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
                pool.fill(&mut pieces, memory, &self.words);
                if pieces.all == 0 {
                    // No words are left for them.
                    pieces.refused = Some(Instant::now());
                    return Ok(None);
                }
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
        if let Some(pages) = self.pages.as_ref().filter(|_| pool.back) {
            let (offset, bytes) = if pool.bytes == BACK.0 {
                (REST, BACK.1 as u64 - REST)
            } else {
                (BACK.1 as u64, pages.mapping.bytes() - BACK.1 as u64)
            };
            return Ok(Some(Grant { offset, bytes }));
        }
        let bytes = |count: usize| (pool.bytes * count) as u64;
        match self.take_window(bytes(pool.count))? {
            None if pool.count > PARTS => self.take_window(bytes(PARTS)),
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
