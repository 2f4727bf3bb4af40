//! A message as it is passed to the ring: a body and its tail.

use vgpu_wire::{Header, Kind, Payload, padded};

use crate::counters::index_of;

/// Length of a message's header in bytes.
pub(crate) const HEADER: u64 = size_of::<Header>() as u64;

/// Tail of a message, which follows the body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tail<'a> {
    /// Slices, which follow each other without a gap.
    Pieces(&'a [&'a [u8]]),
    /// Address and length in bytes of process memory that must not be referred to as a slice, because its
    /// owner may write to it at any time. The creator of the value promises that the memory is readable.
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

    /// Returns the number of bytes that the message takes in the ring: header, body and tail, padded.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        padded(HEADER + self.body.len() as u64 + self.tail.bytes())
    }
}
