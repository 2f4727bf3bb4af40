//! Counts of the messages that a session has been sent, by kind. Only the session's thread writes them, and
//! they can be read at any time.

use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_wire::{Body, FLAG_JOIN, Kind, Message};

use crate::saved::error::RestoreError;
use crate::saved::state::FiguresState;

/// One more than the highest number of a kind.
const NUMBERS: usize = 0x800;

/// Index of each kind in [`Kind::ALL`], by the kind's number. A kind beyond the table would not compile.
const PLACES: [u8; NUMBERS] = {
    let mut places = [0; NUMBERS];
    let mut place = 0;
    while place < Kind::ALL.len() {
        places[Kind::ALL[place] as usize] = place as u8;
        place += 1;
    }
    places
};

/// Counters of a session's messages, of the bytes that they copy, and of the launches by graphs.
#[derive(Debug)]
pub(crate) struct MessageStats {
    kinds: [AtomicU64; Kind::ALL.len()],
    joins: AtomicU64,
    waits: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// Launches by nodes of graphs.
    in_graphs: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatsReading {
    pub(crate) kinds: BTreeMap<String, u64>,
    pub(crate) joins: u64,
    pub(crate) waits: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Default for MessageStats {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            kinds: std::array::from_fn(|_| zero()),
            joins: zero(),
            waits: zero(),
            bytes_in: zero(),
            bytes_out: zero(),
            in_graphs: zero(),
        }
    }
}

/// Work of one launch of a graph, or of one of its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphWork {
    /// Number of nodes that launch something.
    pub(crate) launches: u64,
    /// Bytes that its nodes copy to the device.
    pub(crate) copied_in: u64,
    /// Bytes that its nodes copy from the device.
    pub(crate) copied_out: u64,
}

impl GraphWork {
    /// Returns whether a node of a kind launches something.
    pub(crate) const fn launches(kind: Kind) -> bool {
        is_launch(kind)
    }

    /// Returns the work of a node that carries out a message with this body.
    pub(crate) fn of(body: &Body) -> Self {
        let launches = is_launch(body.kind()).into();
        let (copied_in, copied_out) = match body {
            Body::CopyIn(body) => (body.source.bytes, 0),
            Body::CopyOut(body) => (0, body.destination.bytes),
            _ => (0, 0),
        };
        Self { launches, copied_in, copied_out }
    }
}

impl AddAssign for GraphWork {
    fn add_assign(&mut self, more: Self) {
        self.launches = self.launches.wrapping_add(more.launches);
        self.copied_in = self.copied_in.wrapping_add(more.copied_in);
        self.copied_out = self.copied_out.wrapping_add(more.copied_out);
    }
}

impl SubAssign for GraphWork {
    fn sub_assign(&mut self, less: Self) {
        self.launches = self.launches.wrapping_sub(less.launches);
        self.copied_in = self.copied_in.wrapping_sub(less.copied_in);
        self.copied_out = self.copied_out.wrapping_sub(less.copied_out);
    }
}

/// Adds to a counter that has one writer, without an atomic read-modify-write.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Returns whether the guest has to wait for the effect of a message: an answer, the mark of a synchronize,
/// or a copy to the guest. It may also wait for an event, or until a copy's source has been read, which no
/// message tells.
fn waits(body: &Body) -> bool {
    match body {
        Body::Signal(body) => body.mark.word != 0,
        Body::CopyOut(body) => body.written.word != 0,
        other => other.kind().replies(),
    }
}

/// Returns whether a message launches a kernel, or an operation of a library that does.
const fn is_launch(kind: Kind) -> bool {
    matches!(kind, Kind::Launch | Kind::Gemm | Kind::TriangularSolve | Kind::MatmulLt | Kind::VectorOp)
}

impl MessageStats {
    /// Counts a message that has passed its checks.
    #[inline]
    pub(crate) fn count(&self, message: &Message<'_>) {
        let body = &message.body;
        add(&self.kinds[usize::from(PLACES[body.kind() as usize])], 1);
        if message.header.flags & FLAG_JOIN != 0 {
            add(&self.joins, 1);
        }
        if waits(body) {
            add(&self.waits, 1);
        }
        match body {
            Body::CopyIn(body) => add(&self.bytes_in, body.source.bytes),
            Body::CopyOut(body) => add(&self.bytes_out, body.destination.bytes),
            Body::Join(_) => add(&self.joins, 1),
            _ => {}
        }
    }

    /// Counts the work of a graph that is launched.
    pub(crate) fn count_graph(&self, work: GraphWork) {
        add(&self.in_graphs, work.launches);
        add(&self.bytes_in, work.copied_in);
        add(&self.bytes_out, work.copied_out);
    }

    /// Adds all counters to the session's saved figures.
    pub(crate) fn save(&self, figures: &mut FiguresState) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let kinds = Kind::ALL.iter().zip(&self.kinds).map(|(&kind, count)| (kind as u16, load(count)));
        figures.kinds = kinds.filter(|&(_, count)| count > 0).collect();
        for (field, counter) in self.sums(figures) {
            *field = load(counter);
        }
    }

    /// Takes over the counters of a saved session.
    pub(crate) fn restore(&self, figures: &FiguresState) -> Result<(), RestoreError> {
        for &(kind, count) in &figures.kinds {
            let known = Kind::try_from(kind).map_err(|_| RestoreError::field("kind of message", kind))?;
            self.kinds[usize::from(PLACES[known as usize])].store(count, Ordering::Relaxed);
        }
        for (field, counter) in self.sums(&mut figures.clone()) {
            counter.store(*field, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the counters beside those of kinds, each with its field.
    const fn sums<'a>(&'a self, figures: &'a mut FiguresState) -> [(&'a mut u64, &'a AtomicU64); 5] {
        [
            (&mut figures.joins, &self.joins),
            (&mut figures.waits, &self.waits),
            (&mut figures.bytes_in, &self.bytes_in),
            (&mut figures.bytes_out, &self.bytes_out),
            (&mut figures.in_graphs, &self.in_graphs),
        ]
    }

    /// Returns the number of launches, those of graphs included.
    pub(crate) fn launches(&self) -> u64 {
        let kinds = Kind::ALL.iter().zip(&self.kinds).filter(|(kind, _)| is_launch(**kind));
        let sum: u64 = kinds.map(|(_, count)| count.load(Ordering::Relaxed)).sum();
        sum + self.in_graphs.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes copied to the device, and from it.
    pub(crate) fn copied(&self) -> (u64, u64) {
        (self.bytes_in.load(Ordering::Relaxed), self.bytes_out.load(Ordering::Relaxed))
    }

    /// Returns all counters. Kinds that never occurred are left out.
    pub(crate) fn read(&self) -> StatsReading {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatsReading {
            kinds: Kind::ALL
                .iter()
                .zip(&self.kinds)
                .map(|(kind, count)| (kind.name().to_owned(), load(count)))
                .filter(|&(_, count)| count > 0)
                .collect(),
            joins: load(&self.joins),
            waits: load(&self.waits),
            bytes_in: load(&self.bytes_in),
            bytes_out: load(&self.bytes_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use vgpu_wire::body::copy::{CopyIn, CopyOut};
    use vgpu_wire::body::session::Echo;
    use vgpu_wire::body::stream::{Join, Signal};
    use vgpu_wire::{Header, JOIN_ALL, Mark, Span};

    use super::*;

    #[allow(clippy::large_types_passed_by_value, reason = "bodies that a test has just made")]
    fn message(body: Body, join: bool) -> Message<'static> {
        let header = Header {
            kind: body.kind() as u16,
            flags: if join { FLAG_JOIN } else { 0 },
            bytes: 0,
            number: 1,
            join: 0,
        };
        Message { header, body, tail: &[] }
    }

    #[test]
    fn every_kind_has_its_own_place() {
        let mut places: Vec<_> = Kind::ALL.iter().map(|&kind| PLACES[kind as usize]).collect();
        places.dedup();
        assert_eq!(places.len(), Kind::ALL.len());
    }

    #[test]
    fn what_is_counted() {
        let stats = MessageStats::default();
        let mark = Mark { word: 3, reserved: 0, value: 9 };
        let copy_in =
            CopyIn { stream: 1, reserved: 0, destination: 0, source: Span::bar(0, 100), read: mark };
        let copy_out =
            |written| CopyOut { stream: 1, reserved: 0, source: 0, destination: Span::bar(0, 7), written };
        stats.count(&message(Body::CopyIn(copy_in), true));
        stats.count(&message(Body::CopyIn(copy_in), false));
        stats.count(&message(Body::CopyOut(copy_out(mark)), true));
        stats.count(&message(Body::CopyOut(copy_out(Mark::NONE)), false));
        stats.count(&message(Body::Signal(Signal { stream: 1, reserved: 0, mark }), false));
        stats.count(&message(Body::Join(Join { stream: JOIN_ALL, reserved: 0 }), false));
        stats.count(&message(Body::Echo(Echo { reply: 0, reserved: 0, cookie: 1 }), false));
        let kinds = [("CopyIn", 2), ("CopyOut", 2), ("Echo", 1), ("Join", 1), ("Signal", 1)];
        let kinds = kinds.map(|(kind, count)| (kind.to_owned(), count)).into();
        assert_eq!(stats.read(), StatsReading { kinds, joins: 3, waits: 3, bytes_in: 200, bytes_out: 14 });
    }
}
