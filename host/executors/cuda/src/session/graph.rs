//! Graphs as the guest defined them: their nodes, and what of them is not the driver's.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_device::{Charge, GraphRecord, Violation};
use vgpu_wire::{Body, Mark};

use crate::gpu::code::Code;
use crate::gpu::graph::{Instance, Node};

/// A graph of the guest's.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) outline: Outline,
    /// What is to be launched. `None`: it has to be put together first.
    pub(super) instance: Option<Instance>,
    /// Whether an instance, of which another may have taken the place, was ever launched.
    pub(super) launched: bool,
    pub(super) bytes: Charge,
}

/// What of a graph is not the driver's.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// Events whose records come from before the launch, and that the launch waits for.
    pub(super) waits: Vec<u32>,
    /// Numbers of the nodes that name guest memory.
    pub(super) spans: Vec<u32>,
    /// Numbers of the nodes that record events or store marks.
    pub(super) ends: Vec<u32>,
    /// What the executor lacks to launch it.
    pub(super) lacks: Option<&'static str>,
}

/// What this executor does not carry out, if the node is such: kinds that the contract gains are refused until
/// they are handled.
const fn lacking(body: &Body) -> Option<&'static str> {
    match body {
        Body::CopyIn(_)
        | Body::CopyOut(_)
        | Body::CopyDevice(_)
        | Body::CopyRows(_)
        | Body::Fill(_)
        | Body::Launch(_)
        | Body::Signal(_)
        | Body::Join(_)
        | Body::EventRecord(_)
        | Body::StreamWait(_)
        | Body::Gemm(_)
        | Body::TriangularSolve(_)
        | Body::MatmulLt(_)
        | Body::VectorOp(_) => None,
        _ => Some("graphs with nodes of another kind"),
    }
}

/// The mark that a node has stored when it is complete.
pub(super) const fn mark_of(body: &Body) -> Option<Mark> {
    match body {
        Body::CopyIn(body) => Some(body.read),
        Body::CopyOut(body) => Some(body.written),
        Body::Signal(body) => Some(body.mark),
        _ => None,
    }
}

/// A node from its record.
pub(super) fn node(record: &GraphRecord<'_>, code: &Code) -> Result<Node, Violation> {
    let kernel = match &record.message.body {
        Body::Launch(launch) => Some(Arc::clone(code.kernel(launch.function)?)),
        _ => None,
    };
    let (body, tail) = (record.message.body, record.message.tail.into());
    Ok(Node { body, tail, kernel, after: record.dependencies().collect(), awaits: None })
}

impl Outline {
    /// Looks through the nodes. A wait for an event that an earlier node records is one of the graph's own
    /// dependencies, and is added to those of the node.
    pub(super) fn of(nodes: &mut [Node]) -> Self {
        let mut outline = Self::default();
        let mut recorded = HashMap::new();
        for (number, node) in (0..).zip(nodes) {
            if node.span().is_some() {
                outline.spans.push(number);
            }
            if mark_of(&node.body).is_some_and(|mark| mark.word != 0) {
                outline.ends.push(number);
            }
            outline.lacks = outline.lacks.or(lacking(&node.body));
            match &node.body {
                Body::EventRecord(body) => {
                    recorded.insert(body.event, number);
                    outline.ends.push(number);
                }
                Body::StreamWait(body) => {
                    node.awaits = recorded.get(&body.event).copied();
                    if node.awaits.is_none() {
                        outline.waits.push(body.event);
                    }
                }
                _ => {}
            }
        }
        outline
    }
}

impl Graph {
    /// Takes the instance if it uses guest memory that is mapped at one of these addresses.
    pub(super) fn take_user(&mut self, addresses: &[usize]) -> Option<Instance> {
        self.instance.take_if(|instance| instance.uses(addresses))
    }
}
