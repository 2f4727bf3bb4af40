//! Graph management: lists and adds edges.

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUgraph, CUgraphNode};

use crate::Result;
use crate::arg::{In, InOut, Out};
use crate::object::edge::{Edge, EdgeData};
use crate::object::graph::{get, list, node_handle, node_place};

/// Stores both nodes of each edge of a graph, and the data of the edges if `data` is not null, or only the
/// number of edges if all arrays are null. Fails with lossy-query if `data` is null and an edge is
/// programmatic.
fn list_edges(
    graph: CUgraph,
    [from, to]: [Out<CUgraphNode>; 2],
    data: Out<EdgeData>,
    count: InOut<usize>,
) -> Result {
    let found = get(graph)?;
    let edges: Vec<(u32, Edge)> = (0..)
        .zip(found.nodes().iter())
        .flat_map(|(to, node)| node.after.iter().map(move |edge| (to, *edge)))
        .collect();
    if data.is_null() && edges.iter().any(|(_, edge)| edge.programmatic) {
        return Err(CUresult::LOSSY_QUERY);
    }
    if from.is_null() && to.is_null() && data.is_null() {
        return count.set(edges.len());
    }
    if from.is_null() || to.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    let room = count.get()?;
    for (index, (_, edge)) in edges.iter().enumerate().take(if data.is_null() { 0 } else { room }) {
        // SAFETY: the caller of the export promised room for so many edges.
        let place = unsafe { data.at(index) };
        place.set(edge.data())?;
    }
    let handles = |node: fn(&(u32, Edge)) -> u32| {
        edges.iter().map(|edge| node_handle(graph.0, found, node(edge))).collect::<Result<Vec<_>>>()
    };
    list(from, count, &handles(|(_, edge)| edge.node)?)?;
    count.set(room)?;
    list(to, count, &handles(|(to, _)| *to)?)
}

/// Adds edges to a graph. `data` has the `CUgraphEdgeData` of each; if it is null, all edges are full.
fn add_edges(
    graph: CUgraph,
    [from, to]: [In<CUgraphNode>; 2],
    data: Option<In<EdgeData>>,
    count: usize,
) -> Result {
    let found = get(graph)?;
    let place = |node: CUgraphNode| {
        let place = node_place(node).filter(|place| place.0 == graph.0);
        place.map(|place| place.1).ok_or(CUresult::INVALID_VALUE)
    };
    let data = data.filter(|data| !data.is_null()).map(|data| data.slice(count)).transpose()?;
    let mut edges = Vec::new();
    for (index, (&from, &to)) in from.slice(count)?.iter().zip(to.slice(count)?).enumerate() {
        let node = place(from)?;
        let edge = data.map_or(Ok(Edge::full(node)), |data| Edge::from_data(node, data[index]))?;
        edges.push((place(to)?, edge));
    }
    found.connect(&edges)
}

exports! {
    /// Stores the handles of both nodes of each edge of a graph, or only the number of edges. Fails with
    /// lossy-query if an edge is programmatic, because the list does not show that.
    pub fn cuGraphGetEdges(
        graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, count: InOut<usize>,
    ) -> CUresult {
        list_edges(graph, [from, to], Out::nowhere(), count)
    }

    /// Stores the handles of both nodes of each edge of a graph, and the data of the edges.
    pub fn cuGraphGetEdges_v2(
        graph: CUgraph, from: Out<CUgraphNode>, to: Out<CUgraphNode>, data: Out<EdgeData>,
        count: InOut<usize>,
    ) -> CUresult {
        list_edges(graph, [from, to], data, count)
    }

    /// Makes nodes of a graph depend on nodes that were added before them. Not supported for a node that was
    /// added later, because nodes are sent to the host in the order in which they were added.
    pub fn cuGraphAddDependencies(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, count: usize,
    ) -> CUresult {
        add_edges(graph, [from, to], None, count)
    }

    /// Makes nodes of a graph depend on nodes that were added before them, by edges with data.
    pub fn cuGraphAddDependencies_v2(
        graph: CUgraph, from: In<CUgraphNode>, to: In<CUgraphNode>, data: In<EdgeData>, count: usize,
    ) -> CUresult {
        add_edges(graph, [from, to], Some(data), count)
    }
}
