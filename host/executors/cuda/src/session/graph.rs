//! Graphs as the guest defined them: their nodes, and what the driver's graph does not contain.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_device::{Charge, GraphRecord, Violation};
use vgpu_wire::{Body, Mark};

use crate::gpu::code::SessionCode;
use crate::gpu::graph::{GraphInstance, GuestNode};

/// A graph of the guest.
#[derive(Debug)]
pub(super) struct GuestGraph {
    pub(super) nodes: Vec<GuestNode>,
    pub(super) outline: GraphOutline,
    /// The instance to launch. `None` if it must be created first.
    pub(super) instance: Option<GraphInstance>,
    /// Whether an instance of the graph, this or an earlier one, was launched.
    pub(super) launched: bool,
    pub(super) bytes: Charge,
}

/// Events, spans and marks of a graph that the executor handles itself at each launch, before and after the
/// launch of the driver's graph.
#[derive(Debug, Default)]
pub(super) struct GraphOutline {
    /// Events that were recorded before the launch and for which the launch waits.
    pub(super) waits: Vec<u32>,
    /// Numbers of the nodes that name guest memory.
    pub(super) spans: Vec<u32>,
    /// Numbers of the nodes that record events or store marks.
    pub(super) ends: Vec<u32>,
    /// Feature that the executor lacks to launch the graph, if there is one.
    pub(super) lacks: Option<&'static str>,
}

/// Returns the feature that the executor lacks to carry out a node. Kinds that the contract gains are refused
/// until they are supported.
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

/// Returns the mark that a node stores when it is complete.
pub(super) const fn mark_of(body: &Body) -> Option<Mark> {
    match body {
        Body::CopyIn(body) => Some(body.read),
        Body::CopyOut(body) => Some(body.written),
        Body::Signal(body) => Some(body.mark),
        _ => None,
    }
}

/// Creates a node from its record.
pub(super) fn node(record: &GraphRecord<'_>, code: &SessionCode) -> Result<GuestNode, Violation> {
    let kernel = match &record.message.body {
        Body::Launch(launch) => Some(Arc::clone(code.kernel(launch.function)?)),
        _ => None,
    };
    let (body, tail) = (record.message.body, record.message.tail.into());
    Ok(GuestNode { body, tail, kernel, after: record.edges().collect(), awaits: None })
}

impl GraphOutline {
    /// Examines the nodes. A wait for an event that an earlier node records becomes a dependency of the
    /// waiting node.
    pub(super) fn from_nodes(nodes: &mut [GuestNode]) -> Self {
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

impl GuestGraph {
    /// Takes the instance if it uses guest memory that is mapped at one of these addresses.
    pub(super) fn take_user(&mut self, addresses: &[usize]) -> Option<GraphInstance> {
        self.instance.take_if(|instance| instance.uses(addresses))
    }
}
