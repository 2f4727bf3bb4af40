//! Staging buffers: window memory, or guest pages, through which copies of pageable memory pass.
//!
//! A mark on a buffer's own word tells when its last use has completed and it can be reused. Buffers are
//! allocated at the first copy that needs them, because most processes never copy. There are small and large
//! ones. There are far more large ones than two sides at work need: on a busy machine one side may not run
//! for some milliseconds, in which the other continues. The free buffer that was used last is taken next,
//! because it is still in the caches.
//!
//! Downloads pass through guest pages where the session has some ([`crate::guest_pages`]): those are memory,
//! which a BAR may not be. While the window is full, they pass through the two buffers that each channel has
//! for itself.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vgpu_wire::Span;
use vgpu_wire::area;

use crate::fences::Fences;
use crate::guest_pages::SEGMENT;
use crate::link::Link;
use crate::mutex::lock;
use crate::pages::REST;
use crate::session_error::SessionError;
use crate::window_alloc::Grant;

/// Length in bytes and number of the small buffers.
const SMALL: (usize, usize) = (64 << 10, 4);
/// Length in bytes and number of the large buffers.
const LARGE: (usize, usize) = (512 << 10, 16);
/// Length in bytes and number of the channel's own buffers.
const OWN: (usize, usize) = (area::STAGING_BYTES as usize / 2, 2);
/// Length in bytes of the small and of the large buffers in guest pages. The small ones are between the
/// return area and the first large one. Each large one starts at a multiple of its size, so it crosses no
/// page boundary.
const BACK: (usize, usize) = (SMALL.0, LARGE.0);
/// Maximum number of large buffers in guest pages.
const BACK_LARGE: usize = 7;
/// Number of small buffers in guest pages.
const BACK_SMALL: usize = (BACK.1 - REST as usize) / BACK.0;

/// Parts of a large copy are multiples of this many bytes.
const PART: usize = 64 << 10;
/// Minimum number of parts of a large copy, so that both sides start soon.
pub(crate) const PARTS: usize = 4;
/// Time after which a full window is asked for buffers again. Each request costs two round trips.
const FULL: Duration = Duration::from_millis(50);
/// Time that a thread waits for a buffer before it checks that the session still stands.
const CHECK_EVERY: Duration = Duration::from_millis(450);

/// A buffer through which a part of a copy passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagingBuffer {
    pub(crate) offset: u64,
    pub(crate) word: u32,
    /// Value that the buffer's word reaches once its last use has completed.
    pub(crate) value: u64,
}

#[derive(Debug, Default)]
struct Buffers {
    /// Buffers that no thread holds, the longest unused first.
    idle: VecDeque<StagingBuffer>,
    /// Number of buffers, including those that threads hold.
    all: usize,
    /// Whether a thread is requesting memory for the buffers.
    asking: bool,
    /// Time at which the window last had no room for the buffers.
    refused: Option<Instant>,
}

/// Buffers of one size in one kind of memory.
#[derive(Debug)]
pub(crate) struct StagingPool {
    pub(crate) bytes: usize,
    /// Maximum number of buffers.
    pub(crate) count: usize,
    /// Words of the buffers. Empty for buffers in guest pages, which few sessions have: those take words when
    /// they are created.
    words: Vec<u32>,
    /// Whether the buffers are in guest pages.
    pub(crate) back: bool,
    buffers: Mutex<Buffers>,
    freed: Condvar,
}

/// Staging buffers of a session.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) small: StagingPool,
    pub(crate) large: StagingPool,
    /// Buffers in the channel's own area, which always exist.
    pub(crate) own: StagingPool,
    /// Small buffers in guest pages.
    back_small: StagingPool,
    back_large: StagingPool,
}

impl Staging {
    /// Creates the pools of a new session, and takes the words that their buffers will need.
    pub(crate) fn new(fences: &Fences) -> Self {
        let [small, large, own] = [SMALL, LARGE, OWN].map(|size| StagingPool::new(size, fences));
        let [back_small, back_large] = [(BACK.0, BACK_SMALL), (BACK.1, BACK_LARGE)].map(StagingPool::back);
        Self { small, large, own, back_small, back_large }
    }

    /// Returns the pool that an upload uses, and the length of its parts: long enough that both sides can
    /// work at once, and short enough that both start soon.
    pub(crate) fn plan(&self, bytes: usize) -> (&StagingPool, usize) {
        if bytes <= SMALL.0 * SMALL.1 {
            (&self.small, SMALL.0)
        } else {
            (&self.large, (bytes / PARTS).next_multiple_of(PART).min(LARGE.0))
        }
    }

    /// Returns the pool that a download uses, and the length of its parts. `back` tells whether the session
    /// has buffers in guest pages.
    pub(crate) fn plan_back(&self, bytes: usize, back: bool) -> (&StagingPool, usize) {
        let (pool, part) = self.plan(bytes);
        match (back, pool.is_small()) {
            (false, _) => (pool, part),
            (true, true) => (&self.back_small, part),
            (true, false) => (&self.back_large, part),
        }
    }
}

impl StagingPool {
    fn new((bytes, count): (usize, usize), fences: &Fences) -> Self {
        let words = (0..count).map(|_| fences.acquire_word().unwrap_or(0)).collect();
        Self { bytes, count, words, back: false, buffers: Mutex::default(), freed: Condvar::new() }
    }

    /// Creates a pool for buffers in guest pages.
    fn back((bytes, count): (usize, usize)) -> Self {
        let buffers = Mutex::default();
        Self { bytes, count, words: Vec::new(), back: true, buffers, freed: Condvar::new() }
    }

    /// Returns whether these are small buffers, in the window or in guest pages.
    pub(crate) fn is_small(&self) -> bool {
        self.bytes == SMALL.0
    }

    /// Returns the span of the first bytes of a buffer.
    pub(crate) fn span(&self, buffer: &StagingBuffer, bytes: usize) -> Span {
        if self.back {
            Span { segment: SEGMENT, reserved: 0, offset: buffer.offset - REST, bytes: bytes as u64 }
        } else {
            Span::bar(buffer.offset, bytes as u64)
        }
    }

    /// Returns the part of the guest pages, which have `bytes` bytes in all, for these buffers.
    pub(crate) fn back_memory(&self, bytes: u64) -> Grant {
        let large = BACK.1 as u64;
        if self.is_small() {
            Grant { offset: REST, bytes: large - REST }
        } else {
            Grant { offset: large, bytes: bytes - large }
        }
    }

    /// Divides memory into buffers, at most as many as there are words.
    fn fill(&self, buffers: &mut Buffers, memory: Grant, fences: &Fences) {
        let offsets = (memory.offset..).step_by(self.bytes);
        let count = self.count.min((memory.bytes / self.bytes as u64) as usize);
        let more =
            if self.back { (0..count).map_while(|_| fences.acquire_word()).collect() } else { Vec::new() };
        let all = self.words.iter().chain(&more).zip(offsets).take(count);
        buffers.idle.extend(all.map(|(&word, offset)| StagingBuffer { offset, word, value: 0 }));
        buffers.all = buffers.idle.len();
    }

    /// Takes a buffer, and waits for one if all are held. `memory` allocates memory for the buffers when
    /// there are none yet. Returns `None` if there is none.
    pub(crate) fn acquire<'a>(
        &'a self,
        link: &Link,
        fences: &Fences,
        memory: impl Fn() -> Result<Option<Grant>, SessionError>,
    ) -> Result<Option<StagingGuard<'a>>, SessionError> {
        let mut buffers = lock(&self.buffers);
        loop {
            if let Some(buffer) = choose(link, &mut buffers) {
                return Ok(Some(StagingGuard { pool: self, buffer }));
            }
            if buffers.all == 0 && !buffers.asking {
                if buffers.refused.is_some_and(|then| then.elapsed() < FULL) {
                    return Ok(None);
                }
                buffers.asking = true;
                drop(buffers);
                let memory = memory();
                buffers = lock(&self.buffers);
                buffers.asking = false;
                self.freed.notify_all();
                let Some(memory) = memory? else {
                    buffers.refused = Some(Instant::now());
                    return Ok(None);
                };
                self.fill(&mut buffers, memory, fences);
                if buffers.all == 0 {
                    // No words are left for them.
                    buffers.refused = Some(Instant::now());
                    return Ok(None);
                }
                continue;
            }
            // A thread that holds one returns it when its copy has completed, or the session ends.
            let wait = self.freed.wait_timeout(buffers, CHECK_EVERY);
            buffers = wait.unwrap_or_else(PoisonError::into_inner).0;
            link.enter()?;
        }
    }

    /// Takes a buffer unless all are held.
    pub(crate) fn try_acquire<'a>(&'a self, link: &Link) -> Option<StagingGuard<'a>> {
        let buffer = choose(link, &mut lock(&self.buffers))?;
        Some(StagingGuard { pool: self, buffer })
    }
}

/// Returns the buffer used last of those whose use has completed, otherwise the one that has been in use the
/// longest.
fn choose(link: &Link, buffers: &mut Buffers) -> Option<StagingBuffer> {
    let over = |buffer: &StagingBuffer| link.channel.value(buffer.word) >= buffer.value;
    let index = buffers.idle.iter().rposition(over).unwrap_or(0);
    buffers.idle.remove(index)
}

/// A buffer that a thread holds, which becomes idle on drop.
#[derive(Debug)]
pub(crate) struct StagingGuard<'a> {
    pub(crate) pool: &'a StagingPool,
    pub(crate) buffer: StagingBuffer,
}

impl Drop for StagingGuard<'_> {
    fn drop(&mut self) {
        lock(&self.pool.buffers).idle.push_back(self.buffer);
        self.pool.freed.notify_one();
    }
}
