//! Pinned memory of a graph that stands in for guest memory which the driver does not register. Host
//! functions in the launch's stream copy guest memory to it before the graph starts, and from it after the
//! graph.
//!
//! So a graph cannot read what an earlier node of it has written to such guest memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use vgpu_abi::CUresult;
use vgpu_device::{Charge, ResolvedSpan, Resource, SessionHost};
use vgpu_wire::Span;

use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::gpu::copy::WorkOrigin;
use crate::gpu::gpu_session::GpuSession;

/// Granularity of pinned memory in bytes.
const PAGE: u64 = 4096;

/// Pinned memory of a graph, charged to the session.
#[derive(Debug)]
pub(super) struct GraphMemory {
    pub(super) pinned: Pinned,
    _bytes: Charge,
}

impl GraphMemory {
    /// Allocates memory and charges it to the session.
    pub(super) fn allocate(gpu: &GpuSession, bytes: u64) -> Result<Arc<Self>, DriverError> {
        let none = DriverError { call: "hold a graph's data", code: CUresult::OUT_OF_MEMORY };
        let whole = bytes.checked_next_multiple_of(PAGE).ok_or(none)?;
        let charge = gpu.host().charges().charge(Resource::HostBytes, whole).map_err(|_| none)?;
        let pinned = Pinned::allocate(&gpu.context, whole as usize)?;
        Ok(Arc::new(Self { pinned, _bytes: charge }))
    }
}

/// A copy between guest memory and the memory that stands in for it.
#[derive(Clone, Debug)]
pub(super) struct BounceCopy {
    pub(super) own: Arc<GraphMemory>,
    /// Offset of the copy in the graph's memory, in bytes.
    pub(super) offset: u64,
    pub(super) piece: ResolvedSpan,
    /// Whether the copy is from the guest's memory, and precedes the graph.
    pub(super) upload: bool,
}

impl BounceCopy {
    /// Enqueues the copy in the stream of a launch.
    pub(super) fn enqueue(&self, gpu: &mut GpuSession, at: WorkOrigin) -> Result<(), DriverError> {
        let (relay, host) = (self.clone(), gpu.host().clone());
        let task = gpu.streams.begin_work(at.stream)?.call(move || relay.copy(&host))?;
        gpu.streams.carry(at.stream, at.message, Arc::new((task, Arc::clone(&self.own))))
    }

    fn copy(&self, host: &SessionHost) {
        let guest = host.slice(&self.piece);
        let own = self.own.pinned.slice().subslice(self.offset as usize, self.piece.bytes() as usize);
        match own {
            Ok(own) if self.upload => guest.copy_to_volatile_slice(own),
            Ok(own) => own.copy_to_volatile_slice(guest),
            // The memory was allocated for this number of bytes.
            Err(_) => {}
        }
    }
}

/// Guest memory that nodes have written so far, as ranges that do not touch each other.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeMap<(u32, u64), u64>);

impl Written {
    /// Returns the start of a range that overlaps or touches the given one.
    fn near(&self, segment: u32, start: u64, end: u64) -> Option<u64> {
        let (&(of, first), &last) = self.0.range(..=(segment, end)).next_back()?;
        (of == segment && last >= start).then_some(first)
    }

    /// Adds the span that a node writes.
    pub(super) fn add(&mut self, span: &Span) {
        let (mut start, mut end) = (span.offset, span.offset.saturating_add(span.bytes));
        while let Some(near) = self.near(span.segment, start, end) {
            let last = self.0.remove(&(span.segment, near)).unwrap_or(end);
            (start, end) = (start.min(near), end.max(last));
        }
        self.0.insert((span.segment, start), end);
    }

    /// Returns whether an earlier node has written a byte of the span.
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
        // All starts of each length, in an order that makes ranges grow at both ends and absorb others.
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
