//! Tables of a session's objects by the numbers that its guest assigned, and the objects that every executor
//! has: streams, events and holds.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use vgpu_wire::Body;
use vgpu_wire::body::stream::STREAM_NON_BLOCKING;

use crate::session::gauges::Gauges;
use crate::session::violation::Violation;

/// Objects of one kind by number. A number that is unknown, or in use, is a violation that names the kind.
#[derive(Debug)]
pub struct HandleTable<T> {
    kind: &'static str,
    objects: HashMap<u32, T>,
}

impl<T> HandleTable<T> {
    /// Creates an empty table of objects of a kind, such as "stream".
    #[must_use]
    pub fn new(kind: &'static str) -> Self {
        Self { kind, objects: HashMap::new() }
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.objects.len() as u32
    }

    /// Returns whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Refuses a number that is in use.
    pub fn check_unused(&self, number: u32) -> Result<(), Violation> {
        if self.objects.contains_key(&number) {
            return Err(Violation::in_use(self.kind, number));
        }
        Ok(())
    }

    /// Adds an object under an unused number.
    pub fn insert(&mut self, number: u32, object: T) -> Result<(), Violation> {
        self.check_unused(number)?;
        self.objects.insert(number, object);
        Ok(())
    }

    /// Returns the object with a number.
    #[inline]
    pub fn get(&self, number: u32) -> Result<&T, Violation> {
        self.objects.get(&number).ok_or(Violation::unknown(self.kind, number))
    }

    /// Returns the object with a number, to be changed.
    pub fn get_mut(&mut self, number: u32) -> Result<&mut T, Violation> {
        self.objects.get_mut(&number).ok_or(Violation::unknown(self.kind, number))
    }

    /// Removes an object. Its number may be used again.
    pub fn remove(&mut self, number: u32) -> Result<T, Violation> {
        self.objects.remove(&number).ok_or(Violation::unknown(self.kind, number))
    }

    /// Removes the objects that satisfy a condition.
    pub fn remove_if(&mut self, mut condition: impl FnMut(&T) -> bool) -> Vec<T> {
        self.objects.extract_if(|_, object| condition(object)).map(|(_, object)| object).collect()
    }

    /// Removes all objects.
    pub fn clear(&mut self) {
        self.objects.clear();
    }

    /// Returns all objects, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.values_mut()
    }

    /// Returns all objects with their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &T)> {
        self.objects.iter().map(|(&number, object)| (number, object))
    }
}

/// A stream as the guest created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Whether the stream is independent of the legacy default stream.
    pub non_blocking: bool,
    /// Priority in CUDA's sense: lower numbers come first.
    pub priority: i32,
}

/// An event of the guest. `R` is the executor's data about the event's newest record.
#[derive(Clone, Copy, Debug)]
pub struct EventState<R> {
    /// Flags of `cuEventCreate`.
    pub flags: u32,
    /// Data about the event's newest record.
    pub newest: R,
}

/// The streams, events and holds of a session.
#[derive(Debug)]
pub struct StreamTable<R> {
    /// Streams of the session, without the default one.
    pub streams: HandleTable<StreamConfig>,
    /// Events of the session.
    pub events: HandleTable<EventState<R>>,
    /// Holds that the guest has not released.
    pub holds: HandleTable<()>,
}

impl<R> Default for StreamTable<R> {
    fn default() -> Self {
        Self {
            streams: HandleTable::new("stream"),
            events: HandleTable::new("event"),
            holds: HandleTable::new("hold"),
        }
    }
}

impl<R: Default> StreamTable<R> {
    /// Creates or destroys the object that the message names, and counts streams and events in `gauges`.
    /// Returns the stream if the message created one. Other messages change nothing.
    pub fn apply(&mut self, body: &Body, gauges: &Gauges) -> Result<Option<StreamConfig>, Violation> {
        let mut created = None;
        match body {
            Body::StreamCreate(body) => {
                let non_blocking = body.flags & STREAM_NON_BLOCKING != 0;
                let stream = StreamConfig { non_blocking, priority: body.priority };
                self.streams.insert(body.stream, stream)?;
                created = Some(stream);
            }
            Body::StreamDestroy(body) => drop(self.streams.remove(body.stream)?),
            Body::EventCreate(body) => {
                self.events.insert(body.event, EventState { flags: body.flags, newest: R::default() })?;
            }
            Body::EventDestroy(body) => drop(self.events.remove(body.event)?),
            _ => {}
        }
        gauges.streams.store(self.streams.len(), Ordering::Relaxed);
        gauges.events.store(self.events.len(), Ordering::Relaxed);
        Ok(created)
    }

    /// Checks that a stream exists; 0 is the default stream, which always does.
    pub fn check_stream(&self, number: u32) -> Result<u32, Violation> {
        if number != 0 {
            self.streams.get(number)?;
        }
        Ok(number)
    }
}
