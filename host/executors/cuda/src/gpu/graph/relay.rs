//! Guest memory that the driver does not register, in graphs: pinned memory of the graph's own stands in for
//! it. Host functions of the launch's stream copy to that before the graph starts, and from it when the graph
//! is complete.
//!
//! So a graph cannot read from such guest memory what one of its earlier nodes has written there.

use std::collections::BTreeMap;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{Charge, Piece, Resource, SessionHost};
use vgpu_wire::Span;

use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::gpu::copy::At;
use crate::gpu::part::Part;

/// Pinned memory comes in whole pages.
const PAGE: u64 = 4096;

/// Pinned memory of a graph's own.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) pinned: Pinned,
    _bytes: Charge,
}

impl Own {
    /// Memory that is charged to the session.
    pub(super) fn allocate(part: &Part, bytes: u64) -> Result<Arc<Self>, DriverError> {
        let none = DriverError { call: "hold a graph's data", code: CUresult::OUT_OF_MEMORY };
        let whole = bytes.checked_next_multiple_of(PAGE).ok_or(none)?;
        let charge = part.host().charges().take(Resource::HostBytes, whole).map_err(|_| none)?;
        let pinned = Pinned::allocate(&part.context, whole as usize)?;
        Ok(Arc::new(Self { pinned, _bytes: charge }))
    }
}

/// A copy between the guest's memory and that which stands in for it.
#[derive(Clone, Debug)]
pub(super) struct Relay {
    pub(super) own: Arc<Own>,
    /// Where in it the copy starts, bytes.
    pub(super) offset: u64,
    pub(super) piece: Piece,
    /// From the guest's memory: it comes before the graph.
    pub(super) upload: bool,
}

impl Relay {
    /// Gives it to a stream.
    pub(super) fn give(&self, part: &mut Part, at: At) -> Result<(), DriverError> {
        let (relay, host) = (self.clone(), part.host().clone());
        let task = part.streams.work(at.stream)?.call(move || relay.copy(&host))?;
        part.streams.carry(at.stream, at.message, Arc::new((task, Arc::clone(&self.own))))
    }

    fn copy(&self, host: &SessionHost) {
        let guest = host.slice(&self.piece);
        let own = self.own.pinned.slice().subslice(self.offset as usize, self.piece.bytes() as usize);
        match own {
            Ok(own) if self.upload => guest.copy_to_volatile_slice(own),
            Ok(own) => own.copy_to_volatile_slice(guest),
            // The memory was made for as many bytes.
            Err(_) => {}
        }
    }
}

/// Guest memory that nodes have written so far, as ranges that do not touch each other.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<(u32, u64), u64>);

impl Written {
    /// The start of a range that overlaps or touches another.
    fn near(&self, segment: u32, start: u64, end: u64) -> Option<u64> {
        let (&(of, first), &last) = self.0.range(..=(segment, end)).next_back()?;
        (of == segment && last >= start).then_some(first)
    }

    /// A node writes a span.
    pub(super) fn add(&mut self, span: &Span) {
        let (mut start, mut end) = (span.offset, span.offset.saturating_add(span.bytes));
        while let Some(near) = self.near(span.segment, start, end) {
            let last = self.0.remove(&(span.segment, near)).unwrap_or(end);
            (start, end) = (start.min(near), end.max(last));
        }
        self.0.insert((span.segment, start), end);
    }

    /// Whether a node before has written a byte of a span.
    pub(super) fn has_part_of(&self, span: &Span) -> bool {
        let end = span.offset.saturating_add(span.bytes);
        let before = self.0.range(..(span.segment, end)).next_back();
        before.is_some_and(|(&(segment, _), &last)| segment == span.segment && last > span.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_known_byte_by_byte() {
        let mut written = Written::default();
        let mut bytes = [[false; 64]; 2];
        // Every start of each length, in an order that makes ranges grow at both ends and swallow others.
        for (segment, start, length) in
            [(0, 8, 4), (1, 20, 2), (0, 16, 4), (0, 12, 4), (0, 40, 1), (0, 39, 3), (1, 18, 6), (0, 0, 50)]
        {
            written.add(&Span { segment, reserved: 0, offset: start, bytes: length });
            bytes[segment as usize][start as usize..(start + length) as usize].fill(true);
            for (of, bytes) in (0..).zip(&bytes) {
                for (start, length) in
                    (0..60_usize).flat_map(|start| (1..5).map(move |length| (start, length)))
                {
                    let span = Span { segment: of, reserved: 0, offset: start as u64, bytes: length as u64 };
                    let expected = bytes[start..(start + length).min(64)].contains(&true);
                    assert_eq!(written.has_part_of(&span), expected, "{span:?} of {written:?}");
                }
            }
        }
        assert_eq!(written.0.len(), 2);
    }
}
