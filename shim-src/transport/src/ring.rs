//! The guest's end of the ring: gathers messages straight into it and publishes them.
//!
//! A message costs no allocation, no system call and no register access unless the host sleeps. The head is
//! read again only when the ring looks full. Only stores go to the submit half, so it may be write-combined memory.

use std::sync::atomic::{Ordering, fence};

use vgpu_wire::area::{MESSAGE_MAX, RING_BYTES};
use vgpu_wire::body::session::Pad;
use vgpu_wire::body::stream::Join;
use vgpu_wire::registers::channel::{DOORBELL, base};
use vgpu_wire::{FLAG_JOIN, Header, JOIN_ALL, Kind, MESSAGE_ALIGN, Payload, padded};
use zerocopy::IntoBytes;

use crate::channel::Channel;
use crate::counters::{Live, index_of};
use crate::inner::{Inner, lock};
use crate::lost::{GoneReason, Lost};
use crate::tracer::Awaited;

const HEADER: u64 = size_of::<Header>() as u64;

/// What follows a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tail<'a> {
    /// Pieces, one behind the other.
    Pieces(&'a [&'a [u8]]),
    /// Process memory that must not be referred to as a slice: its owner may write to it at any time. Readable for that many bytes,
    /// by promise of whoever made this.
    Raw(*const u8, usize),
}

impl Tail<'_> {
    #[inline]
    fn bytes(&self) -> u64 {
        match self {
            Self::Pieces(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
            Self::Raw(_, bytes) => *bytes as u64,
        }
    }
}

/// A message that is to be sent: the parts that are the same for all of a kind come from [`Outgoing::new`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    kind: Kind,
    /// Of the kind in the table.
    index: usize,
    body: &'a [u8],
    tail: Tail<'a>,
}

impl<'a> Outgoing<'a> {
    #[inline]
    pub(crate) fn new<P: Payload>(body: &'a P, tail: Tail<'a>) -> Self {
        Self { kind: P::KIND, index: const { index_of(P::KIND) }, body: body.as_bytes(), tail }
    }
}

/// Streams to be joined by the next message.
#[derive(Debug, Default)]
struct Joins {
    streams: [u32; Self::MOST],
    len: usize,
}

impl Joins {
    /// More than these are joined by joining all.
    const MOST: usize = 8;

    fn add(&mut self, stream: u32) {
        let known = &self.streams[..self.len];
        if known.contains(&JOIN_ALL) || known.contains(&stream) {
            return;
        }
        if stream == JOIN_ALL || self.len == Self::MOST {
            self.streams[0] = JOIN_ALL;
            self.len = 1;
        } else {
            self.streams[self.len] = stream;
            self.len += 1;
        }
    }

    fn take(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        Some(self.streams[self.len])
    }
}

/// The writer's state.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Bytes ever written.
    tail: u64,
    /// Bytes consumed, as last read.
    head: u64,
    /// Number of the last message.
    number: u64,
    joins: Joins,
}

impl Ring {
    fn free(&self) -> u64 {
        RING_BYTES - (self.tail - self.head)
    }

    /// Where the next message goes, and how many bytes are left there to the end of the ring.
    fn place(&self) -> (u64, u64) {
        let at = self.tail % RING_BYTES;
        (at, RING_BYTES - at)
    }

    fn next(&mut self, kind: Kind, bytes: u64, join: Option<u32>) -> Header {
        self.number += 1;
        Header {
            kind: kind as u16,
            flags: if join.is_some() { FLAG_JOIN } else { 0 },
            bytes: bytes as u32,
            number: self.number as u32,
            join: join.unwrap_or(0),
        }
    }

    /// Writes a message of `bytes`, padding included, which are free. Published by the caller.
    #[inline]
    fn write(&mut self, channel: &Channel, message: &Outgoing<'_>, bytes: u64, join: Option<u32>) {
        let (mut at, left) = self.place();
        if bytes > left {
            let pad = self.next(Pad::KIND, left, None);
            channel.put(at, pad.as_bytes());
            self.tail += left;
            at = 0;
        }
        let end = at + bytes;
        let header = self.next(message.kind, bytes, join);
        channel.put(at, header.as_bytes());
        at += HEADER;
        channel.put(at, message.body);
        at += message.body.len() as u64;
        match message.tail {
            Tail::Pieces(pieces) => {
                for piece in pieces {
                    channel.put(at, piece);
                    at += piece.len() as u64;
                }
            }
            Tail::Raw(source, length) => {
                // SAFETY: readable, as whoever made the tail promised; nobody has a pointer into the ring.
                unsafe { channel.put_raw(at, source, length) };
                at += length as u64;
            }
        }
        channel.put(at, &[0; MESSAGE_ALIGN as usize][..(end - at) as usize]);
        self.tail += bytes;
    }
}

impl Inner {
    /// Sends a message; returns its number.
    #[inline]
    pub(crate) fn post(&self, message: &Outgoing<'_>) -> Result<u64, Lost> {
        self.enter()?;
        let bytes = padded(HEADER + message.body.len() as u64 + message.tail.bytes());
        if bytes > MESSAGE_MAX {
            return Err(Lost::Misuse { what: "a message above the longest there can be" });
        }
        let (number, tail) = {
            let mut ring = lock(&self.ring);
            if ring.joins.len > 1 {
                self.send_joins(&mut ring)?;
            }
            self.put(&mut ring, message, bytes)?;
            (ring.number, ring.tail)
        };
        self.rouse(tail)?;
        self.pulse()?;
        Ok(number)
    }

    /// Remembers a join for the next message.
    pub(crate) fn join(&self, stream: u32) {
        if self.enter().is_ok() {
            lock(&self.ring).joins.add(stream);
        }
    }

    #[inline]
    fn put(&self, ring: &mut Ring, message: &Outgoing<'_>, bytes: u64) -> Result<(), Lost> {
        let (_, left) = ring.place();
        let needed = if bytes > left { left + bytes } else { bytes };
        if ring.free() < needed {
            self.make_room(ring, needed)?;
        }
        let join = ring.joins.take();
        ring.write(&self.channel, message, bytes, join);
        self.counters.message(message.index);
        self.channel.publish(ring.tail);
        self.tracer.message(message.kind, bytes, ring.number);
        Ok(())
    }

    /// Joins for which the next message's header has no room: messages of their own, all but one.
    #[cold]
    fn send_joins(&self, ring: &mut Ring) -> Result<(), Lost> {
        while ring.joins.len > 1 {
            let last = ring.joins.len - 1;
            let join = Join { stream: ring.joins.streams[last], reserved: 0 };
            // It travels as a message, so it must not ride on one as well.
            ring.joins.len = 0;
            let sent = self.put(
                ring,
                &Outgoing::new(&join, Tail::Pieces(&[])),
                padded(HEADER + size_of::<Join>() as u64),
            );
            ring.joins.len = last;
            sent?;
        }
        Ok(())
    }

    /// Waits until `needed` bytes are free. The ring stays locked: messages keep the order in which they were sent.
    #[cold]
    fn make_room(&self, ring: &mut Ring, needed: u64) -> Result<(), Lost> {
        // The messages before this one may not have been rung for yet.
        let tail = ring.tail;
        self.rouse(tail)?;
        let mut head = ring.head;
        let ready = || {
            head = self.channel.head();
            // Consumed is what was written, and what was consumed stays so.
            if head < ring.head || head > tail {
                return Err(self.gone(GoneReason::Nonsense));
            }
            Ok(RING_BYTES - (tail - head) >= needed)
        };
        self.wait_until(Awaited::Room, &self.usual_room, ready, Self::ended)?;
        ring.head = head;
        Ok(())
    }

    /// Rings the doorbell if the host sleeps and has not been rung for already. `tail` has been published.
    #[inline]
    fn rouse(&self, tail: u64) -> Result<(), Lost> {
        // The host says that it sleeps, fences, and looks at the tail once more. So: store the tail, fence, look whether it sleeps.
        fence(Ordering::SeqCst);
        if self.channel.host_sleeps() { self.ring_doorbell(tail) } else { Ok(()) }
    }

    /// A host that was rung for takes a while to get up, and says all that time that it sleeps. It goes back to sleep only after it has
    /// consumed what it was rung for, has stored the head, and has looked at the tail once more. So as long as the head is below that,
    /// it is on its way, and will see whatever is published.
    fn on_its_way(&self) -> bool {
        self.channel.head() < self.rung.load(Ordering::Relaxed)
    }

    #[cold]
    fn ring_doorbell(&self, tail: u64) -> Result<(), Lost> {
        if self.on_its_way() {
            return Ok(());
        }
        self.post_doorbell(tail, &|| self.channel.host_sleeps() && !self.on_its_way())
    }

    /// Rings whatever was rung before if the host says that it sleeps: for a waiter whose patience is at its end.
    #[cold]
    pub(crate) fn rouse_again(&self) -> Result<(), Lost> {
        fence(Ordering::SeqCst);
        if self.channel.host_sleeps() {
            self.post_doorbell(0, &|| self.channel.host_sleeps())
        } else {
            Ok(())
        }
    }

    fn post_doorbell(&self, tail: u64, still: &dyn Fn() -> bool) -> Result<(), Lost> {
        match self.registers.post(base(self.index) + DOORBELL, 1, still) {
            Ok(true) => {
                self.rung.fetch_max(tail, Ordering::Relaxed);
                Live::add(&self.counters.doorbells, 1);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => Err(self.lost_by(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use vgpu_wire::body::copy::CopyIn;
    use vgpu_wire::body::launch::Launch;
    use vgpu_wire::{Body, Mark, Message, Span, area};
    use zerocopy::FromZeros;

    use super::*;
    use crate::mapping::Mapping;

    fn joined(streams: &[u32]) -> Vec<u32> {
        let mut joins = Joins::default();
        for &stream in streams {
            joins.add(stream);
        }
        std::iter::from_fn(|| joins.take()).collect()
    }

    #[test]
    fn joins_are_said_once_and_many_are_all() {
        assert_eq!(joined(&[3, 0, 3, 7]), [7, 0, 3]);
        assert_eq!(joined(&[3, JOIN_ALL, 5]), [JOIN_ALL]);
        assert_eq!(joined(&[1, 2, 3, 4, 5, 6, 7, 8]).len(), 8);
        assert_eq!(joined(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), [JOIN_ALL]);
    }

    #[derive(Clone, Debug)]
    enum Sent {
        Launch(Vec<u8>, Option<u32>),
        Copy(Vec<u8>),
    }

    fn sent() -> impl Strategy<Value = Sent> {
        let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
        prop_oneof![
            (bytes(300), prop::option::of(any::<u32>())).prop_map(|(bytes, join)| Sent::Launch(bytes, join)),
            bytes(60_000).prop_map(Sent::Copy),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Whatever is written comes out of the wire crate's own decoder, numbered without a gap, never wrapped.
        #[test]
        fn what_is_written_decodes(messages in prop::collection::vec(sent(), 1..60)) {
            let window = Arc::new(Mapping::anonymous(area::AREA_BYTES as usize).unwrap());
            let channel = Channel::new(Arc::clone(&window), 0, Arc::clone(&window), area::RETURN);
            let mut ring = Ring::default();
            let mut number = 0;
            for message in messages {
                let before = ring.tail;
                match &message {
                    Sent::Launch(params, join) => {
                        let (first, second) = params.split_at(params.len() / 2);
                        let mut body = Launch::new_zeroed();
                        body.param_bytes = params.len() as u32;
                        let pieces = [first, second];
                        let outgoing = Outgoing::new(&body, Tail::Pieces(&pieces));
                        ring.write(&channel, &outgoing, padded(HEADER + 64 + params.len() as u64), *join);
                    }
                    Sent::Copy(data) => {
                        let source = Span::inline(data.len() as u64);
                        let body = CopyIn { stream: 1, reserved: 0, destination: 2, source, read: Mark::NONE };
                        let outgoing = Outgoing::new(&body, Tail::Raw(data.as_ptr(), data.len()));
                        ring.write(&channel, &outgoing, padded(HEADER + 56 + data.len() as u64), None);
                    }
                }
                channel.publish(ring.tail);
                prop_assert_eq!(window.load64(area::SUBMIT_TAIL, Ordering::Acquire), ring.tail);
                ring.head = ring.tail;
                let mut at = before;
                while at < ring.tail {
                    let offset = at % RING_BYTES;
                    let mut bytes = vec![0; (RING_BYTES - offset).min(ring.tail - at) as usize];
                    window.get(area::RING + offset, &mut bytes);
                    let decoded = Message::decode(&bytes).unwrap();
                    number += 1;
                    prop_assert_eq!(decoded.header.number, number);
                    at += u64::from(decoded.header.bytes);
                    match (&decoded.body, &message) {
                        (Body::Pad(_), _) => prop_assert_eq!(at % RING_BYTES, 0),
                        (Body::Launch(_), Sent::Launch(params, join)) => {
                            prop_assert_eq!(decoded.tail, &params[..]);
                            prop_assert_eq!(decoded.header.join, join.unwrap_or(0));
                            prop_assert_eq!(decoded.header.flags & FLAG_JOIN != 0, join.is_some());
                        }
                        (Body::CopyIn(_), Sent::Copy(data)) => prop_assert_eq!(decoded.tail, &data[..]),
                        other => prop_assert!(false, "{other:?}"),
                    }
                }
                prop_assert_eq!(at, ring.tail);
            }
        }
    }
}
