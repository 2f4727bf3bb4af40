//! Graphs: version 1 has none. The messages of a graph are kept here and executed one after the other at each
//! launch; a node depends on earlier ones only.

use vgpu_wire::body::graph::{GraphDefine, GraphNode, GraphPatch, GraphUpdate};
use vgpu_wire::{Message, padded};
use zerocopy::FromBytes;

use super::super::call::Failure;
use super::{INVALID_HANDLE, INVALID_VALUE, Means, Translator};

const INVALID: Failure = Failure::Status(INVALID_VALUE);

impl Translator {
    pub(super) fn graph_define(&mut self, body: &GraphDefine, records: &[u8]) -> Result<(), Failure> {
        let mut nodes = Vec::with_capacity(body.nodes as usize);
        let mut rest = records;
        for _ in 0..body.nodes {
            let (head, _) = GraphNode::read_from_prefix(rest).map_err(|_| INVALID)?;
            let (record, behind) = rest.split_at_checked(head.bytes as usize).ok_or(INVALID)?;
            let before = size_of::<GraphNode>() + (head.dependencies as usize * 4).next_multiple_of(8);
            nodes.push(record.get(before..).ok_or(INVALID)?.to_vec());
            rest = behind;
        }
        self.graphs.insert(body.graph, nodes);
        Ok(())
    }

    pub(super) fn graph_update(&mut self, body: &GraphUpdate, records: &[u8]) -> Result<(), Failure> {
        let nodes = self.graphs.get_mut(body.graph).ok_or(Failure::Status(INVALID_HANDLE))?;
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

    pub(super) fn graph_launch(&mut self, means: Means<'_>, graph: u32) -> Result<(), Failure> {
        // Taken out while its messages are executed; none of them is about graphs.
        let nodes = self.graphs.remove(graph).ok_or(Failure::Status(INVALID_HANDLE))?;
        let carried = nodes.iter().try_for_each(|node| {
            debug_assert_eq!(node.len() as u64, padded(node.len() as u64));
            let message = Message::decode(node).map_err(|_| INVALID)?;
            self.translate(means, &message)
        });
        self.graphs.insert(graph, nodes);
        carried
    }
}
