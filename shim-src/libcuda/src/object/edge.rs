//! Edges of graphs: the earlier node, and the data that CUDA keeps about the edge.

use vgpu_abi::CUresult;
use vgpu_wire::body::graph::EDGE_PROGRAMMATIC;

use crate::Result;

/// `CUgraphEdgeData`: the ports of the earlier and the later node, the type, and five reserved bytes.
pub type EdgeData = [u8; 8];

/// Data of an edge of the type `CU_GRAPH_DEPENDENCY_TYPE_DEFAULT`.
const FULL: EdgeData = [0; 8];
/// Data of an edge from `CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`, of the type
/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
const PROGRAMMATIC: EdgeData = [1, 0, 1, 0, 0, 0, 0, 0];
/// Data of an edge from `CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER`, which the contract does not carry.
const LAUNCH_ORDER: EdgeData = [2, 0, 1, 0, 0, 0, 0, 0];

/// A dependency of a node. Of two edges to one node the full one is the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// Index of the earlier node.
    pub node: u32,
    /// Whether the later kernel may start before the earlier one has ended. It then waits by itself
    /// (`griddepcontrol.wait`).
    pub programmatic: bool,
}

impl Edge {
    /// Returns the edge of a node that waits for the end of `node`.
    pub const fn full(node: u32) -> Self {
        Self { node, programmatic: false }
    }

    /// Returns the edge that a program describes.
    pub fn from_data(node: u32, data: EdgeData) -> Result<Self> {
        match data {
            FULL => Ok(Self::full(node)),
            PROGRAMMATIC => Ok(Self { node, programmatic: true }),
            LAUNCH_ORDER => Err(CUresult::NOT_SUPPORTED),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    /// Returns the edge's data as programs read it.
    pub const fn data(self) -> EdgeData {
        if self.programmatic { PROGRAMMATIC } else { FULL }
    }

    /// Returns the edge as the host reads it. A host that does not know programmatic edges gets a full one.
    pub const fn to_wire(self, programmatic: bool) -> u32 {
        if self.programmatic && programmatic { self.node | EDGE_PROGRAMMATIC } else { self.node }
    }
}

/// Sorts edges, and keeps one edge to each node: a full one, if there is one.
pub fn normalize(edges: &mut Vec<Edge>) {
    edges.sort_unstable();
    edges.dedup_by_key(|edge| edge.node);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_read_as_it_was_given() {
        for programmatic in [false, true] {
            let edge = Edge { node: 7, programmatic };
            assert_eq!(Edge::from_data(7, edge.data()), Ok(edge));
        }
        assert_eq!(Edge::from_data(7, [2, 0, 1, 0, 0, 0, 0, 0]), Err(CUresult::NOT_SUPPORTED));
        // A port without the type, a type without the port, and a reserved byte.
        for data in [[1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0]] {
            assert_eq!(Edge::from_data(7, data), Err(CUresult::INVALID_VALUE));
        }
    }

    #[test]
    fn a_full_edge_takes_precedence() {
        let mut edges =
            vec![Edge { node: 3, programmatic: true }, Edge::full(3), Edge { node: 1, programmatic: true }];
        normalize(&mut edges);
        assert_eq!(edges, [Edge { node: 1, programmatic: true }, Edge::full(3)]);
    }

    #[test]
    fn old_hosts_get_full_edges() {
        let edge = Edge { node: 5, programmatic: true };
        assert_eq!((edge.to_wire(true), edge.to_wire(false)), (0x8000_0005, 5));
        assert_eq!(Edge::full(5).to_wire(true), 5);
    }
}
