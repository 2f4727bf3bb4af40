//! Submission: messages are written to the ring one after the other and published, and the doorbell is rung
//! if the host sleeps.
//!
//! A message costs no allocation, no system call and no register access unless the host sleeps. The head is
//! read again only when the ring looks full.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, TryLockError};

use vgpu_pace::WaitEstimate;
use vgpu_wire::area::{MESSAGE_MAX, RING_BYTES};
use vgpu_wire::body::stream::Join;

use crate::link::Link;
use crate::mutex::lock;
use crate::outgoing::{Outgoing, Tail};
use crate::ring::Ring;
use crate::session_error::{GoneReason, SessionError};
use crate::tracer::Awaited;
use crate::wait::wait_until;

/// Room that the ring has for a message that must not wait, and for the joins before it: more than they take.
const ROOM_TO_TRY: u64 = RING_BYTES / 2;

/// Number of times that the ring's lock is tried for a message that must not wait.
const LOCK_TRIES: u32 = 200;

/// Sending state of a session.
#[derive(Debug)]
pub(crate) struct Submission {
    ring: Mutex<Ring>,
    /// Number of bytes that had been published when the doorbell was last rung.
    rung: AtomicU64,
    /// Estimate of the time for which the ring stays full.
    usual_room: WaitEstimate,
}

impl Submission {
    pub(crate) fn new() -> Self {
        Self { ring: Mutex::new(Ring::default()), rung: AtomicU64::new(0), usual_room: WaitEstimate::new() }
    }

    /// Sends a message and returns its number.
    #[inline]
    pub(crate) fn send(&self, link: &Link, message: &Outgoing<'_>) -> Result<u64, SessionError> {
        link.enter()?;
        let bytes = message.bytes();
        if bytes > MESSAGE_MAX {
            return Err(SessionError::Misuse { what: "a message above the longest there can be" });
        }
        let (number, tail) = {
            let mut ring = lock(&self.ring);
            if ring.joins.len() > 1 {
                self.send_joins(link, &mut ring)?;
            }
            self.put(link, &mut ring, message, bytes)?;
            (ring.number, ring.tail)
        };
        self.rouse(link, tail)?;
        link.ping()?;
        Ok(number)
    }

    /// Sends a message if that needs no wait, neither for room in the ring nor for another thread that waits
    /// for room. Returns whether it was sent.
    pub(crate) fn try_send(&self, link: &Link, message: &Outgoing<'_>) -> Result<bool, SessionError> {
        link.enter()?;
        let mut tries = 0;
        let mut ring = loop {
            match self.ring.try_lock() {
                Ok(ring) => break ring,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                // A thread that waits for room keeps the lock. Any other thread releases it within a few
                // hundred tries.
                Err(TryLockError::WouldBlock) if tries < LOCK_TRIES => {
                    tries += 1;
                    core::hint::spin_loop();
                }
                Err(TryLockError::WouldBlock) => return Ok(false),
            }
        };
        let (head, tail) = (link.channel.head(), ring.tail);
        if head < ring.head || head > tail {
            return Err(link.gone(GoneReason::Nonsense));
        }
        ring.head = head;
        if ring.free() < ROOM_TO_TRY {
            return Ok(false);
        }
        self.send_joins(link, &mut ring)?;
        self.put(link, &mut ring, message, message.bytes())?;
        let tail = ring.tail;
        drop(ring);
        self.rouse(link, tail)?;
        Ok(true)
    }

    /// Adds a join to the next message.
    pub(crate) fn join(&self, link: &Link, stream: u32) {
        if link.enter().is_ok() {
            lock(&self.ring).joins.add(stream);
        }
    }

    #[inline]
    fn put(
        &self,
        link: &Link,
        ring: &mut Ring,
        message: &Outgoing<'_>,
        bytes: u64,
    ) -> Result<(), SessionError> {
        let (_, left) = ring.write_position();
        let needed = if bytes > left { left + bytes } else { bytes };
        if ring.free() < needed {
            self.make_room(link, ring, needed)?;
        }
        let join = ring.joins.pop();
        ring.write(&link.channel, message, bytes, join);
        link.counters.message(message.index);
        link.channel.publish(ring.tail);
        link.tracer.message(message.kind, bytes, ring.number, message.body);
        Ok(())
    }

    /// Sends all joins but one as messages of their own, because the next message's header has room for only
    /// one.
    #[cold]
    fn send_joins(&self, link: &Link, ring: &mut Ring) -> Result<(), SessionError> {
        while ring.joins.len() > 1 {
            // The other joins must not be added to a message that is a join itself.
            let mut others = std::mem::take(&mut ring.joins);
            let join = Join { stream: others.pop().unwrap_or_default(), reserved: 0 };
            let message = Outgoing::new(&join, Tail::Pieces(&[]));
            let sent = self.put(link, ring, &message, message.bytes());
            ring.joins = others;
            sent?;
        }
        Ok(())
    }

    /// Waits until `needed` bytes of the ring are free. The ring stays locked, so that messages keep the
    /// order in which they were sent.
    #[cold]
    fn make_room(&self, link: &Link, ring: &mut Ring, needed: u64) -> Result<(), SessionError> {
        // The doorbell may not have been rung yet for the messages before this one.
        let tail = ring.tail;
        self.rouse(link, tail)?;
        let mut head = ring.head;
        let ready = || {
            head = link.channel.head();
            // The host consumes only bytes that were published, and its head never decreases.
            if head < ring.head || head > tail {
                return Err(link.gone(GoneReason::Nonsense));
            }
            Ok(RING_BYTES - (tail - head) >= needed)
        };
        wait_until(link, Awaited::Room, &self.usual_room, ready, Link::ended)?;
        ring.head = head;
        Ok(())
    }

    /// Rings the doorbell if the host sleeps and has not been rung for already. The caller has published
    /// `tail`.
    #[inline]
    fn rouse(&self, link: &Link, tail: u64) -> Result<(), SessionError> {
        // Before it sleeps, the host sets its flag, fences, and reads the tail once more. This side stores
        // the tail, fences, and reads the flag, so that one of the two sees the other's store.
        fence(Ordering::SeqCst);
        if link.channel.host_sleeps() { self.ring_doorbell(link, tail) } else { Ok(()) }
    }

    #[cold]
    fn ring_doorbell(&self, link: &Link, tail: u64) -> Result<(), SessionError> {
        if self.on_its_way(link) {
            return Ok(());
        }
        if link.ring_doorbell(&|| link.channel.host_sleeps() && !self.on_its_way(link))? {
            self.rung.fetch_max(tail, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns whether the host has been rung for and will read the tail before it sleeps again. A host takes
    /// a while to wake, and its flag says that it sleeps until then. It goes back to sleep only after it has
    /// consumed what it was rung for, has stored the head, and has read the tail once more. So as long as the
    /// head is below that, it is waking.
    fn on_its_way(&self, link: &Link) -> bool {
        link.channel.head() < self.rung.load(Ordering::Relaxed)
    }
}
