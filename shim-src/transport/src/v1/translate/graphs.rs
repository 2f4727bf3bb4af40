//! Graphs: version 1 has none. The messages of a graph are kept here and executed one after the other at each
//! launch; a node depends on earlier ones only.

use std::sync::Arc;

use vgpu_wire::body::graph::{GraphDefine, GraphNode, GraphPatch, GraphUpdate};
use zerocopy::FromBytes;

use super::numbered::Numbered;
use crate::status::{INVALID_HANDLE, INVALID_VALUE};
use crate::v1::call::Failure;

const INVALID: Failure = Failure::Status(INVALID_VALUE);

/// The messages of a graph, in an order in which they can be executed.
pub(super) type Nodes = Vec<Vec<u8>>;

/// The graphs of a session, by the numbers that the guest minted.
#[derive(Debug)]
pub(super) struct Graphs {
    /// Shared with a launch, which executes them while this is free.
    nodes: Numbered<u32, Arc<Nodes>>,
}

impl Graphs {
    pub(super) const fn new() -> Self {
        Self { nodes: Numbered::new() }
    }

    pub(super) fn define(&mut self, body: &GraphDefine, records: &[u8]) -> Result<(), Failure> {
        let mut nodes = Vec::with_capacity(body.nodes as usize);
        let mut rest = records;
        for _ in 0..body.nodes {
            let (head, _) = GraphNode::read_from_prefix(rest).map_err(|_| INVALID)?;
            let (record, behind) = rest.split_at_checked(head.bytes as usize).ok_or(INVALID)?;
            let before = size_of::<GraphNode>() + (head.dependencies as usize * 4).next_multiple_of(8);
            nodes.push(record.get(before..).ok_or(INVALID)?.to_vec());
            rest = behind;
        }
        self.nodes.insert(body.graph, Arc::new(nodes));
        Ok(())
    }

    pub(super) fn update(&mut self, body: &GraphUpdate, records: &[u8]) -> Result<(), Failure> {
        let nodes = self.nodes.get_mut(body.graph).ok_or(Failure::Status(INVALID_HANDLE))?;
        // No launch is under way: nothing is copied.
        let nodes = Arc::make_mut(nodes);
        let mut rest = records;
        for _ in 0..body.nodes {
            let (head, _) = GraphPatch::read_from_prefix(rest).map_err(|_| INVALID)?;
            let (record, behind) = rest.split_at_checked(head.bytes as usize).ok_or(INVALID)?;
            let node = nodes.get_mut(head.node as usize).ok_or(INVALID)?;
            *node = record.get(size_of::<GraphPatch>()..).ok_or(INVALID)?.to_vec();
            rest = behind;
        }
        Ok(())
    }

    /// What a launch of the graph executes. None of the messages is about graphs.
    pub(super) fn nodes(&self, graph: u32) -> Result<Arc<Nodes>, Failure> {
        self.nodes.get(graph).cloned().ok_or(Failure::Status(INVALID_HANDLE))
    }

    pub(super) fn destroy(&mut self, graph: u32) {
        self.nodes.remove(graph);
    }
}
