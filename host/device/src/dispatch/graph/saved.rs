//! The graphs of a session in the device's saved state.

use std::collections::BTreeMap;
use std::sync::Arc;

use vgpu_wire::Kind;

use super::{Graphs, KnownGraph, can_be_node, host_bytes};
use crate::charges::charge::Charges;
use crate::charges::limits::Resource;
use crate::saved::error::{RestoreError, require};
use crate::saved::state::GraphState;
use crate::session::stats::GraphWork;

impl Graphs {
    pub(crate) fn save(&self) -> Vec<GraphState> {
        let save = |(&number, known): (&u32, &KnownGraph)| GraphState {
            number,
            kinds: known.kinds.iter().map(|&kind| kind as u16).collect(),
            copies: known
                .copies
                .iter()
                .map(|(&node, copy)| (node, copy.copied_in, copy.copied_out))
                .collect(),
        };
        let mut graphs: Vec<GraphState> = self.graphs.iter().map(save).collect();
        graphs.sort_unstable_by_key(|graph| graph.number);
        graphs
    }

    /// Restores the graphs of a saved session and charges them. Fails if two have the same number or one is
    /// invalid.
    pub(crate) fn restore(charges: Arc<Charges>, saved: &[GraphState]) -> Result<Self, RestoreError> {
        let mut graphs = Self::new(charges);
        for graph in saved {
            require(!graphs.graphs.contains_key(&graph.number), "number of a graph", graph.number)?;
            let (kinds, copies) = graph.nodes()?;
            let mut work = GraphWork { launches: launches(&kinds), ..GraphWork::default() };
            for copy in copies.values() {
                work += *copy;
            }
            let nodes = graphs.charges.adopt(Resource::GraphNodes, kinds.len() as u64);
            let bytes = graphs.charges.adopt(Resource::HostBytes, host_bytes(&kinds, &copies));
            let known = KnownGraph { kinds, work, copies, _nodes: nodes, _bytes: bytes };
            graphs.graphs.insert(graph.number, known);
        }
        Ok(graphs)
    }
}

fn launches(kinds: &[Kind]) -> u64 {
    kinds.iter().filter(|&&kind| GraphWork::launches(kind)).count() as u64
}

impl GraphState {
    /// Returns the kind of each node, and the work of the copy nodes by index. Fails if the two disagree.
    pub(crate) fn nodes(&self) -> Result<(Vec<Kind>, BTreeMap<u32, GraphWork>), RestoreError> {
        let kind = |&number: &u16| {
            let kind = Kind::try_from(number).ok().filter(|kind| can_be_node(*kind));
            kind.ok_or_else(|| RestoreError::field("kind of a graph's node", number))
        };
        let kinds: Vec<Kind> = self.kinds.iter().map(kind).collect::<Result<_, _>>()?;
        let mut copies = BTreeMap::new();
        for &(node, copied_in, copied_out) in &self.copies {
            let possible = match kinds.get(node as usize) {
                Some(Kind::CopyIn) => copied_out == 0,
                Some(Kind::CopyOut) => copied_in == 0,
                _ => false,
            };
            let work = GraphWork { launches: 0, copied_in, copied_out };
            require(possible && copies.insert(node, work).is_none(), "node of a graph that copies", node)?;
        }
        let copying = kinds.iter().filter(|kind| matches!(kind, Kind::CopyIn | Kind::CopyOut)).count();
        require(copying == copies.len(), "number of a graph's nodes that copy", copies.len())?;
        Ok((kinds, copies))
    }
}
