//! Handles whose creation is not answered: streams, events, holds and graphs, whose numbers the guest
//! assigns. They are charged here for every executor. The guest learns of a refusal by a late out-of-memory
//! error, and may have sent messages that name the handle before. Such a message is an error of the program,
//! and not a violation.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_wire::Body;

use crate::charges::charge::{Charge, Charges, OverLimit};
use crate::charges::limits::Resource;
use crate::saved::error::{RestoreError, require};

/// A kind of handle that is counted against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Stream,
    Event,
    Hold,
    Graph,
}

impl HandleKind {
    pub(crate) const COUNT: usize = Self::Graph as usize + 1;

    /// Returns the kind that a violation names.
    pub(crate) fn named(what: &str) -> Option<Self> {
        Some(match what {
            "stream" => Self::Stream,
            "event" => Self::Event,
            "hold" => Self::Hold,
            "graph" => Self::Graph,
            _ => return None,
        })
    }
}

/// Resource that a handle of each kind is charged to, in the order of the kinds.
pub(crate) const RESOURCES: [Resource; HandleKind::COUNT] =
    [Resource::Streams, Resource::Events, Resource::Holds, Resource::Graphs];

/// Returns the kind of handle that a message makes, the resource that is charged, and the handle's number.
pub(crate) const fn made(body: &Body) -> Option<(HandleKind, Resource, u32)> {
    Some(match body {
        Body::StreamCreate(body) => (HandleKind::Stream, Resource::Streams, body.stream),
        Body::EventCreate(body) => (HandleKind::Event, Resource::Events, body.event),
        Body::StreamHold(body) => (HandleKind::Hold, Resource::Holds, body.hold),
        Body::GraphDefine(body) => (HandleKind::Graph, Resource::Graphs, body.graph),
        _ => return None,
    })
}

/// Charges for the handles that a session's messages have made. The executor checks the numbers; here they
/// identify the charge to return.
#[derive(Debug)]
pub(crate) struct Handles {
    charges: Arc<Charges>,
    held: [HashMap<u32, Charge>; HandleKind::COUNT],
}

impl Handles {
    pub(crate) fn new(charges: Arc<Charges>) -> Self {
        Self { charges, held: Default::default() }
    }

    /// Returns the numbers of all handles of each kind.
    pub(crate) fn save(&self) -> [Vec<u32>; HandleKind::COUNT] {
        self.held.each_ref().map(|held| {
            let mut numbers: Vec<u32> = held.keys().copied().collect();
            numbers.sort_unstable();
            numbers
        })
    }

    /// Charges the handles of a saved session.
    pub(crate) fn restore(
        charges: Arc<Charges>,
        saved: &[Vec<u32>; HandleKind::COUNT],
    ) -> Result<Self, RestoreError> {
        let mut handles = Self::new(charges);
        for (index, (numbers, resource)) in saved.iter().zip(RESOURCES).enumerate() {
            for &number in numbers {
                let charge = handles.charges.adopt(resource, 1);
                let before = handles.held[index].insert(number, charge);
                require(before.is_none(), "number of a handle", number)?;
            }
        }
        Ok(handles)
    }

    /// Charges the handle that a message is about to make.
    pub(crate) fn make(&mut self, body: &Body) -> Result<(), OverLimit> {
        let Some((kind, resource, number)) = made(body) else { return Ok(()) };
        if self.held[kind as usize].contains_key(&number) {
            // The executor reports that the number is in use.
            return Ok(());
        }
        let charge = self.charges.charge(resource, 1)?;
        self.held[kind as usize].insert(number, charge);
        Ok(())
    }

    /// Returns the charge of a handle that a message did not make after all.
    pub(crate) fn refuse(&mut self, body: &Body) {
        if let Some((kind, _, number)) = made(body) {
            self.held[kind as usize].remove(&number);
        }
    }

    /// Returns the charge of the handle that a message has ended.
    pub(crate) fn end(&mut self, body: &Body) {
        let (kind, number) = match body {
            Body::StreamDestroy(body) => (HandleKind::Stream, body.stream),
            Body::EventDestroy(body) => (HandleKind::Event, body.event),
            Body::StreamRelease(body) => (HandleKind::Hold, body.hold),
            Body::GraphDestroy(body) => (HandleKind::Graph, body.graph),
            _ => return,
        };
        self.held[kind as usize].remove(&number);
    }
}
