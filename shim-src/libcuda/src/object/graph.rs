//! Graphs. A graph is a list of messages with edges, kept in the guest.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUgraph, CUgraphNode};

use crate::Result;
use crate::arg::{InOut, Out};
use crate::object::current;
use crate::object::edge::Edge;
use crate::object::gpu::Gpu;
use crate::object::work::Work;
use crate::slab::Slab;
use crate::sync::{Mutex, MutexGuard};

/// A node of a graph, with its dependencies.
#[derive(Clone, Debug)]
pub struct Node {
    /// Message that the node sends to the host.
    pub work: Work,
    /// The nodes that this one depends on, whose indices are lower than its own.
    pub after: Vec<Edge>,
    /// Handle of the node; 0 until the program asks for it.
    pub handle: usize,
    /// Pointers to the parameters in `work`, stored for a program that asks for them.
    pub pointers: Vec<*mut c_void>,
}

// SAFETY: the pointers point into `work`, which moves with them, and are handed to the program only, under
// CUDA's rules for them.
unsafe impl Send for Node {}

/// The record behind a `CUgraph`.
#[derive(Default)]
pub struct Graph {
    gpu: AtomicPtr<Gpu>,
    nodes: Mutex<Vec<Node>>,
}

/// The node that a node's handle refers to.
#[derive(Default)]
struct Named {
    graph: AtomicUsize,
    index: AtomicU32,
}

static GRAPHS: Slab<Graph> = Slab::new(4);
static NODES: Slab<Named> = Slab::new(6);

impl Graph {
    /// Returns the device whose object numbers the nodes carry.
    pub fn gpu(&self) -> &'static Gpu {
        // SAFETY: `create` stored the address of a leaked value before the handle meant anything.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Adds a node and returns its index.
    pub fn add(&self, work: Work, after: Vec<Edge>) -> u32 {
        let mut nodes = self.nodes.lock();
        nodes.push(Node { work, after, handle: 0, pointers: Vec::new() });
        nodes.len() as u32 - 1
    }

    /// Adds edges, each with the index of its later node. Adds none if one of them is not possible: CUDA
    /// refuses an edge that exists, that closes a circle, or that is programmatic and not between kernels.
    pub fn connect(&self, edges: &[(u32, Edge)]) -> Result {
        let mut nodes = self.nodes.lock();
        let is_launch = |index: u32| nodes[index as usize].work.launch().is_some();
        let mut backward = false;
        for (at, &(to, edge)) in edges.iter().enumerate() {
            let exists = |other: &Edge| other.node == edge.node;
            let again = edges[..at].iter().any(|(node, other)| *node == to && exists(other));
            let early = edge.programmatic && !(is_launch(edge.node) && is_launch(to));
            let circle = edge.node >= to && reaches(&nodes, to, edge.node);
            if again || early || circle || nodes[to as usize].after.iter().any(exists) {
                return Err(CUresult::INVALID_VALUE);
            }
            backward |= edge.node > to;
        }
        if backward {
            return Err(CUresult::NOT_SUPPORTED);
        }
        for &(to, edge) in edges {
            let after = &mut nodes[to as usize].after;
            after.push(edge);
            after.sort_unstable();
        }
        Ok(())
    }

    /// Returns whether the node at an index launches a kernel.
    pub fn is_launch(&self, index: u32) -> bool {
        let nodes = self.nodes.lock();
        nodes.get(index as usize).is_some_and(|node| node.work.launch().is_some())
    }

    /// Returns the indices of the nodes that no other depends on.
    pub fn ends(&self) -> Vec<u32> {
        let nodes = self.nodes.lock();
        let mut end = vec![true; nodes.len()];
        for before in nodes.iter().flat_map(|node| &node.after) {
            end[before.node as usize] = false;
        }
        (0..).zip(end).filter_map(|(index, end): (u32, bool)| end.then_some(index)).collect()
    }

    /// Locks the nodes and returns them.
    pub fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock()
    }

    /// Calls `look` with the node at an index.
    pub fn with<R>(&self, index: u32, look: impl FnOnce(&mut Node) -> Result<R>) -> Result<R> {
        look(self.nodes.lock().get_mut(index as usize).ok_or(CUresult::INVALID_VALUE)?)
    }
}

/// Returns whether the node at `later` is the one at `first`, or depends on it. Nodes only depend on nodes
/// with lower indices.
fn reaches(nodes: &[Node], first: u32, later: u32) -> bool {
    let mut reached = vec![false; later as usize + 1];
    reached[first as usize] = true;
    for index in first + 1..=later {
        let after = &nodes[index as usize].after;
        reached[index as usize] = after.iter().any(|edge| edge.node >= first && reached[edge.node as usize]);
    }
    reached[later as usize]
}

/// Creates an empty graph for a device.
pub fn create(gpu: &'static Gpu) -> Result<(usize, &'static Graph)> {
    GRAPHS
        .insert(|_, graph| {
            graph.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
            graph.nodes.lock().clear();
        })
        .ok_or(CUresult::OUT_OF_MEMORY)
}

/// Destroys a graph. Returns whether it existed.
pub fn discard(handle: usize) -> bool {
    let Some(nodes) = GRAPHS.remove(handle, |graph| std::mem::take(&mut *graph.nodes.lock())) else {
        return false;
    };
    for node in nodes {
        NODES.remove(node.handle, |_| ());
    }
    true
}

/// Returns the graph of a handle.
pub fn get(handle: CUgraph) -> Result<&'static Graph> {
    current::context()?;
    GRAPHS.get(handle.0).ok_or(CUresult::INVALID_VALUE)
}

/// Returns the handle of a node, which is created by the first call.
pub fn node_handle(graph: usize, of: &Graph, index: u32) -> Result<CUgraphNode> {
    of.with(index, |node| {
        if node.handle == 0 {
            let named = NODES.insert(|_, named| {
                named.graph.store(graph, Ordering::Relaxed);
                named.index.store(index, Ordering::Relaxed);
            });
            node.handle = named.ok_or(CUresult::OUT_OF_MEMORY)?.0;
        }
        Ok(CUgraphNode(node.handle))
    })
}

/// Returns handle of the graph and index of the node with this handle.
pub fn node_place(node: CUgraphNode) -> Option<(usize, u32)> {
    let named = NODES.get(node.0)?;
    Some((named.graph.load(Ordering::Relaxed), named.index.load(Ordering::Relaxed)))
}

/// Returns the graph that contains a node, and the node's index.
pub fn find_node(node: CUgraphNode) -> Result<(&'static Graph, u32)> {
    current::context()?;
    let (graph, index) = node_place(node).ok_or(CUresult::INVALID_VALUE)?;
    Ok((GRAPHS.get(graph).ok_or(CUresult::INVALID_VALUE)?, index))
}

/// Stores as many of the handles as the program has room for, and their number. Fills the rest of the room
/// with null.
pub fn list(out: Out<CUgraphNode>, count: InOut<usize>, found: &[CUgraphNode]) -> Result {
    if out.is_null() {
        return count.set(found.len());
    }
    let room = count.get()?;
    for index in 0..room {
        // SAFETY: the caller of the export promised room for so many handles.
        let place = unsafe { out.at(index) };
        place.set(found.get(index).copied().unwrap_or(CUgraphNode::NULL))?;
    }
    count.set(found.len().min(room))
}

/// Returns the handles of a graph's nodes that `want` accepts.
pub fn select(handle: CUgraph, want: impl Fn(&Node) -> bool) -> Result<Vec<CUgraphNode>> {
    let graph = get(handle)?;
    let chosen: Vec<u32> =
        (0..).zip(graph.nodes.lock().iter()).filter(|(_, node)| want(node)).map(|(index, _)| index).collect();
    chosen.into_iter().map(|index| node_handle(handle.0, graph, index)).collect()
}

#[cfg(test)]
mod tests {
    use vgpu_wire::body::stream::Join;

    use super::*;

    #[test]
    fn edges_that_are_not_possible_are_refused() {
        let graph = Graph::default();
        for after in [vec![], vec![Edge::full(0)], vec![Edge::full(1)], vec![]] {
            graph.add(Work::new(&Join { stream: 0, reserved: 0 }, &[]), after);
        }
        let early = Edge { node: 0, programmatic: true };
        for (edges, code) in [
            (vec![(1, Edge::full(0))], CUresult::INVALID_VALUE),
            (vec![(3, Edge::full(0)), (3, Edge::full(0))], CUresult::INVALID_VALUE),
            (vec![(2, Edge::full(2))], CUresult::INVALID_VALUE),
            (vec![(0, Edge::full(2))], CUresult::INVALID_VALUE),
            (vec![(3, early)], CUresult::INVALID_VALUE),
            // Node 2 could wait for node 3, which was added later.
            (vec![(3, Edge::full(0)), (2, Edge::full(3))], CUresult::NOT_SUPPORTED),
        ] {
            assert_eq!(graph.connect(&edges), Err(code), "{edges:?}");
        }
        assert_eq!(graph.ends(), [2, 3], "none was added");
        assert_eq!(graph.connect(&[(3, Edge::full(2)), (3, Edge::full(0))]), Ok(()));
        assert_eq!(graph.nodes()[3].after, [Edge::full(0), Edge::full(2)]);
        assert_eq!(graph.ends(), [3]);
    }
}
