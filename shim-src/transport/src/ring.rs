//! The guest's end of the ring, which gathers messages straight into it.
//!
//! It only stores to the submit half of the channel's area, so that may be write-combined memory.

use vgpu_wire::area::RING_BYTES;
use vgpu_wire::body::session::Pad;
use vgpu_wire::{FLAG_JOIN, Header, JOIN_ALL, Kind, MESSAGE_ALIGN, Payload};
use zerocopy::IntoBytes;

use crate::channel::Channel;
use crate::outgoing::{HEADER, Outgoing, Tail};

/// Streams that the next message joins.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    streams: [u32; Self::MOST],
    len: usize,
}

impl Joins {
    /// Maximum number of streams to join one by one. If there are more, all streams are joined.
    const MOST: usize = 8;

    /// Adds a stream to join.
    pub(crate) fn add(&mut self, stream: u32) {
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

    /// Returns the number of streams to join.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Removes and returns the stream that was added last.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        Some(self.streams[self.len])
    }
}

/// State of the ring's writer.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Number of bytes ever written.
    pub(crate) tail: u64,
    /// Number of bytes that the host has consumed, as this side last read it.
    pub(crate) head: u64,
    /// Number of the last message.
    pub(crate) number: u64,
    pub(crate) joins: Joins,
}

impl Ring {
    /// Returns the number of bytes that may be written.
    pub(crate) fn free(&self) -> u64 {
        RING_BYTES - (self.tail - self.head)
    }

    /// Returns the offset at which the next message is written, and the number of bytes from there to the end
    /// of the ring.
    pub(crate) fn write_position(&self) -> (u64, u64) {
        let at = self.tail % RING_BYTES;
        (at, RING_BYTES - at)
    }

    /// Returns the header of the next message.
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

    /// Writes a message of `bytes` bytes, which must be free. The caller publishes it.
    #[inline]
    pub(crate) fn write(&mut self, channel: &Channel, message: &Outgoing<'_>, bytes: u64, join: Option<u32>) {
        let (mut at, left) = self.write_position();
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
                // SAFETY: whoever made the tail promised that it is readable; nobody has a pointer into the
                // ring.
                unsafe { channel.put_raw(at, source, length) };
                at += length as u64;
            }
        }
        channel.put(at, &[0; MESSAGE_ALIGN as usize][..(end - at) as usize]);
        self.tail += bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use proptest::prelude::*;
    use vgpu_wire::body::copy::CopyIn;
    use vgpu_wire::body::launch::Launch;
    use vgpu_wire::{Body, Mark, Message, Span, area, padded};
    use zerocopy::FromZeros;

    use super::*;
    use crate::mapping::Mapping;

    fn joined(streams: &[u32]) -> Vec<u32> {
        let mut joins = Joins::default();
        for &stream in streams {
            joins.add(stream);
        }
        std::iter::from_fn(|| joins.pop()).collect()
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
        /// The wire crate's decoder reads back every message, numbered without a gap and never wrapped.
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
