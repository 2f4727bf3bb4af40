//! The graphs of a session. Version 1 has no graphs, so each launch executes the messages of a graph one
//! after the other. A node depends on earlier nodes only.

use std::sync::Arc;

use vgpu_wire::body::graph::{GraphDefine, GraphNode, GraphPatch, GraphUpdate};
use zerocopy::FromBytes;

use super::numbered::Numbered;
use crate::call::CallError;
use crate::status::{INVALID_HANDLE, INVALID_VALUE};

const INVALID: CallError = CallError::Status(INVALID_VALUE);

/// The messages of a graph, in the order in which they are executed.
pub(super) type Nodes = Vec<Vec<u8>>;

/// The graphs of a session, by the numbers that the guest assigned.
#[derive(Debug)]
pub(super) struct GraphTable {
    /// Messages of each graph, shared with a launch, which must not borrow the table.
    nodes: Numbered<u32, Arc<Nodes>>,
}

impl GraphTable {
    pub(super) const fn new() -> Self {
        Self { nodes: Numbered::new() }
    }

    pub(super) fn define(&mut self, body: &GraphDefine, records: &[u8]) -> Result<(), CallError> {
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

    pub(super) fn update(&mut self, body: &GraphUpdate, records: &[u8]) -> Result<(), CallError> {
        let nodes = self.nodes.get_mut(body.graph).ok_or(CallError::Status(INVALID_HANDLE))?;
        // No launch is running, so nothing is copied.
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

    /// Returns the messages that a launch of the graph executes. None of them concerns graphs.
    pub(super) fn nodes(&self, graph: u32) -> Result<Arc<Nodes>, CallError> {
        self.nodes.get(graph).cloned().ok_or(CallError::Status(INVALID_HANDLE))
    }

    pub(super) fn destroy(&mut self, graph: u32) {
        self.nodes.remove(graph);
    }
}
