//! Handles whose creation is not answered: streams, events, holds and graphs, whose numbers the guest mints.
//! They are charged here, for every executor. The guest learns of one that is refused by a late
//! out-of-memory, and may have sent messages that name it before it looks. Such a message is an error of the
//! program, and no violation.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_wire::Body;

use crate::charges::charge::{Charge, Charges, OverLimit};
use crate::charges::limits::Resource;
use crate::session::violation::Violation;

/// The kinds of handles that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stream,
    Event,
    Hold,
    Graph,
}

const KINDS: usize = Kind::Graph as usize + 1;

/// What a message makes: its kind, what is charged, its number.
const fn made(body: &Body) -> Option<(Kind, Resource, u32)> {
    Some(match body {
        Body::StreamCreate(body) => (Kind::Stream, Resource::Streams, body.stream),
        Body::EventCreate(body) => (Kind::Event, Resource::Events, body.event),
        Body::StreamHold(body) => (Kind::Hold, Resource::Holds, body.hold),
        Body::GraphDefine(body) => (Kind::Graph, Resource::Graphs, body.graph),
        _ => return None,
    })
}

/// What a session's messages have made. The executor checks the numbers; here they tell which charge is to be
/// returned.
#[derive(Debug)]
pub(crate) struct Handles {
    charges: Arc<Charges>,
    held: [HashMap<u32, Charge>; KINDS],
    /// Whether a handle of the kind was ever refused.
    refused: [bool; KINDS],
}

impl Handles {
    pub(crate) fn new(charges: Arc<Charges>) -> Self {
        Self { charges, held: Default::default(), refused: [false; KINDS] }
    }

    /// Charges what a message is about to make, if it makes any.
    pub(crate) fn make(&mut self, body: &Body) -> Result<(), OverLimit> {
        let Some((kind, resource, number)) = made(body) else { return Ok(()) };
        if self.held[kind as usize].contains_key(&number) {
            // That the number is in use is the executor's to say.
            return Ok(());
        }
        let charge = self.charges.take(resource, 1).inspect_err(|_| self.refused[kind as usize] = true)?;
        self.held[kind as usize].insert(number, charge);
        Ok(())
    }

    /// What a message was about to make is not made after all, for another reason than its charge.
    pub(crate) fn refuse(&mut self, body: &Body) {
        if let Some((kind, _, number)) = made(body) {
            self.held[kind as usize].remove(&number);
            self.refused[kind as usize] = true;
        }
    }

    /// Returns the charge of what a message has ended, if it ended any.
    pub(crate) fn end(&mut self, body: &Body) {
        let (kind, number) = match body {
            Body::StreamDestroy(body) => (Kind::Stream, body.stream),
            Body::EventDestroy(body) => (Kind::Event, body.event),
            Body::StreamRelease(body) => (Kind::Hold, body.hold),
            Body::GraphDestroy(body) => (Kind::Graph, body.graph),
            _ => return,
        };
        self.held[kind as usize].remove(&number);
    }

    /// Whether a violation is that a message named a handle that may have been refused.
    pub(crate) fn excuses(&self, violation: &Violation) -> bool {
        let Violation::Handle { what, state: Violation::UNKNOWN, .. } = violation else { return false };
        let kind = match *what {
            "stream" => Kind::Stream,
            "event" => Kind::Event,
            "hold" => Kind::Hold,
            "graph" => Kind::Graph,
            _ => return false,
        };
        self.refused[kind as usize]
    }
}
