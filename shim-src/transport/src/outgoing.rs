//! A message as it is handed to the ring: a body, and what follows it.

use vgpu_wire::{Header, Kind, Payload, padded};

use crate::counters::index_of;

/// Bytes of a message's header.
pub(crate) const HEADER: u64 = size_of::<Header>() as u64;

/// What follows a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tail<'a> {
    /// Pieces, which follow each other without a gap.
    Pieces(&'a [&'a [u8]]),
    /// Process memory that must not be referred to as a slice, because its owner may write to it at any time.
    /// Whoever makes the value promises that so many bytes are readable.
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

/// A message that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) kind: Kind,
    /// Index of the kind in the table of kinds.
    pub(crate) index: usize,
    pub(crate) body: &'a [u8],
    pub(crate) tail: Tail<'a>,
}

impl<'a> Outgoing<'a> {
    #[inline]
    pub(crate) fn new<P: Payload>(body: &'a P, tail: Tail<'a>) -> Self {
        Self { kind: P::KIND, index: const { index_of(P::KIND) }, body: body.as_bytes(), tail }
    }

    /// Bytes that the message takes in the ring: header, body and tail, padded.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        padded(HEADER + self.body.len() as u64 + self.tail.bytes())
    }
}
