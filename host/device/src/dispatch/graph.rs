//! Graph payloads: lists of records, each of which is a head and an ordinary message. A payload is checked as
//! a whole before an executor sees it. The iterators here are for payloads that have been checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use vgpu_wire::body::graph::{EDGE_PROGRAMMATIC, GraphNode, GraphPatch};
use vgpu_wire::{Body, Kind, Message};
use zerocopy::FromBytes;

use crate::charges::charge::{Charge, Charges, OverLimit};
use crate::charges::limits::Resource;
use crate::session::stats::GraphWork;
use crate::session::violation::Violation;

mod saved;

/// Maximum number of bytes of the records of one message, which the host copies.
pub(crate) const PAYLOAD_MAX: u64 = 64 << 20;

/// Host memory in bytes that a copy node takes, in addition to its kind.
const COPY_BYTES: usize = 2 * size_of::<(u32, GraphWork)>();

/// One record of a payload that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphRecord<'a> {
    /// For `GraphDefine` the record's own index, for `GraphUpdate` the index of the changed node.
    pub node: u32,
    /// Little-endian u32 indices of earlier nodes, possibly with [`EDGE_PROGRAMMATIC`]. Updates have none.
    dependencies: &'a [u8],
    /// Message that the node carries out.
    pub message: Message<'a>,
}

/// A dependency of a graph's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphEdge {
    /// Index of the earlier node.
    pub node: u32,
    /// Whether this node, a launch like the earlier one, may start before that one has ended.
    pub programmatic: bool,
}

impl GraphRecord<'_> {
    /// Returns the nodes that this one is ordered after.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = GraphEdge> + '_ {
        self.dependencies.chunks_exact(4).map(|edge| {
            let edge = u32::from_le_bytes([edge[0], edge[1], edge[2], edge[3]]);
            GraphEdge { node: edge & !EDGE_PROGRAMMATIC, programmatic: edge & EDGE_PROGRAMMATIC != 0 }
        })
    }

    /// Returns the indices of the nodes that this one is ordered after.
    pub fn dependencies(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.edges().map(|edge| edge.node)
    }
}

/// Returns the records of a `GraphDefine` whose payload has been checked.
pub fn nodes(payload: &[u8]) -> impl Iterator<Item = GraphRecord<'_>> {
    let mut rest = payload;
    let mut index = 0;
    std::iter::from_fn(move || {
        let record;
        (record, rest) = take_node(rest, index).ok()?;
        index += 1;
        Some(record)
    })
}

/// Returns the records of a `GraphUpdate` whose payload has been checked.
pub fn patches(payload: &[u8]) -> impl Iterator<Item = GraphRecord<'_>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let record;
        (record, rest) = take_patch(rest, 0).ok()?;
        Some(record)
    })
}

/// Splits one record off. Returns its bytes without the head, and the bytes that follow.
fn cut(bytes: u32, payload: &[u8], record: u32) -> Result<(&[u8], &[u8]), Violation> {
    let error = |reason| Violation::Graph { record, reason };
    if !bytes.is_multiple_of(8) {
        return Err(error("its length is not a multiple of 8"));
    }
    let (record, rest) =
        payload.split_at_checked(bytes as usize).ok_or(error("it goes beyond the payload"))?;
    Ok((record.get(size_of::<GraphNode>()..).ok_or(error("it is shorter than its head"))?, rest))
}

fn node_message(bytes: &[u8], record: u32) -> Result<Message<'_>, Violation> {
    let message = Message::decode(bytes).map_err(|source| Violation::GraphMessage { record, source })?;
    let error = |reason| Violation::Graph { record, reason };
    if message.header.bytes as usize != bytes.len() {
        return Err(error("its message does not fill it"));
    }
    if message.header.number != 0 || message.header.flags != 0 {
        return Err(error("its message has a number or flags"));
    }
    Ok(message)
}

fn take_node(payload: &[u8], index: u32) -> Result<(GraphRecord<'_>, &[u8]), Violation> {
    let error = |reason| Violation::Graph { record: index, reason };
    let (head, _) = GraphNode::read_from_prefix(payload).map_err(|_| error("its head is cut off"))?;
    let (record, rest) = cut(head.bytes, payload, index)?;
    let listed = u64::from(head.dependencies) * 4;
    let padded = usize::try_from(listed.next_multiple_of(8)).unwrap_or(usize::MAX);
    let (dependencies, message) =
        record.split_at_checked(padded).ok_or(error("its dependencies go beyond it"))?;
    let dependencies = &dependencies[..listed as usize];
    let record = GraphRecord { node: index, dependencies, message: node_message(message, index)? };
    Ok((record, rest))
}

fn take_patch(payload: &[u8], index: u32) -> Result<(GraphRecord<'_>, &[u8]), Violation> {
    let error = |reason| Violation::Graph { record: index, reason };
    let (head, _) = GraphPatch::read_from_prefix(payload).map_err(|_| error("its head is cut off"))?;
    let (record, rest) = cut(head.bytes, payload, index)?;
    let message = node_message(record, index)?;
    Ok((GraphRecord { node: head.node, dependencies: &[], message }, rest))
}

/// Returns whether messages of a kind can be nodes: work of a stream that has no answer. A launch of a graph
/// is excluded, so that no graph contains itself. `Join` stands for a node that does nothing.
const fn can_be_node(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::CopyIn
            | Kind::CopyOut
            | Kind::CopyDevice
            | Kind::CopyRows
            | Kind::Fill
            | Kind::Launch
            | Kind::Signal
            | Kind::Join
            | Kind::EventRecord
            | Kind::StreamWait
            | Kind::Gemm
            | Kind::TriangularSolve
            | Kind::MatmulLt
            | Kind::VectorOp
    )
}

/// Reason for which a graph cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GraphError {
    /// The payload is not a list of nodes.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The session would exceed its limit of nodes.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The host has no memory for the copy of the payload.
    #[error("the host has no memory for the graph")]
    NoMemory,
}

/// The graphs of a session, as far as checks need to know them.
#[derive(Debug)]
pub(crate) struct Graphs {
    charges: Arc<Charges>,
    graphs: HashMap<u32, KnownGraph>,
}

/// Kinds of a graph's nodes, and the charges for the graph.
#[derive(Debug)]
struct KnownGraph {
    kinds: Vec<Kind>,
    /// Launches and copied bytes of one launch of the graph.
    work: GraphWork,
    /// Work of the nodes that copy to or from the device, by index. An update may change it.
    copies: BTreeMap<u32, GraphWork>,
    _nodes: Charge,
    _bytes: Charge,
}

impl Graphs {
    pub(crate) fn new(charges: Arc<Charges>) -> Self {
        Self { charges, graphs: HashMap::new() }
    }

    /// Checks the payload of a new graph of `count` nodes. Calls `each` for each node's body. `edges` permits
    /// programmatic dependencies, which a host has to announce.
    pub(crate) fn define(
        &mut self,
        graph: u32,
        count: u32,
        payload: &[u8],
        edges: bool,
        mut each: impl FnMut(&Body) -> Result<(), Violation>,
    ) -> Result<(), GraphError> {
        if self.graphs.contains_key(&graph) {
            return Err(Violation::in_use("graph", graph).into());
        }
        let mut kinds = Vec::new();
        let (mut all, mut copies) = (GraphWork::default(), BTreeMap::new());
        let mut rest = payload;
        for index in 0..count {
            let record;
            (record, rest) = take_node(rest, index)?;
            let kind = record.message.body.kind();
            for edge in record.edges() {
                check_edge(edge, edges, index, kind, &kinds)?;
            }
            if !can_be_node(kind) {
                return Err(Violation::GraphKind { record: index, kind }.into());
            }
            each(&record.message.body)?;
            kinds.try_reserve(1).map_err(|_| GraphError::NoMemory)?;
            kinds.push(kind);
            let work = GraphWork::of(&record.message.body);
            all += work;
            if matches!(kind, Kind::CopyIn | Kind::CopyOut) {
                copies.insert(index, work);
            }
        }
        at_end(rest, count)?;
        let nodes = self.charges.charge(Resource::GraphNodes, count.into())?;
        let bytes = self.charges.charge(Resource::HostBytes, host_bytes(&kinds, &copies))?;
        self.graphs.insert(graph, KnownGraph { kinds, work: all, copies, _nodes: nodes, _bytes: bytes });
        Ok(())
    }

    /// Checks the payload of `count` changes to a graph, each of which must keep its node's kind. Calls
    /// `each` for the body of each.
    pub(crate) fn update(
        &mut self,
        graph: u32,
        count: u32,
        payload: &[u8],
        mut each: impl FnMut(&Body) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let known = self.graphs.get_mut(&graph).ok_or(Violation::unknown("graph", graph))?;
        let mut rest = payload;
        for index in 0..count {
            let record;
            (record, rest) = take_patch(rest, index)?;
            if known.kinds.get(record.node as usize) != Some(&record.message.body.kind()) {
                return Err(Violation::Graph { record: index, reason: "it changes no node of its kind" });
            }
            each(&record.message.body)?;
            if let Some(copy) = known.copies.get_mut(&record.node) {
                known.work -= *copy;
                *copy = GraphWork::of(&record.message.body);
                known.work += *copy;
            }
        }
        at_end(rest, count)
    }

    /// Returns the launches and copied bytes of one launch of a graph.
    pub(crate) fn work(&self, graph: u32) -> Result<GraphWork, Violation> {
        self.graphs.get(&graph).map(|known| known.work).ok_or(Violation::unknown("graph", graph))
    }

    pub(crate) fn destroy(&mut self, graph: u32) -> Result<(), Violation> {
        self.graphs.remove(&graph).map(drop).ok_or(Violation::unknown("graph", graph))
    }
}

/// Returns the number of bytes of host memory that a graph takes.
fn host_bytes(kinds: &Vec<Kind>, copies: &BTreeMap<u32, GraphWork>) -> u64 {
    (kinds.capacity() * size_of::<Kind>() + copies.len() * COPY_BYTES) as u64
}

/// Checks a dependency of the node `index`, whose kind is `kind`. `kinds` has the kinds of the earlier nodes.
fn check_edge(
    edge: GraphEdge,
    allowed: bool,
    index: u32,
    kind: Kind,
    kinds: &[Kind],
) -> Result<(), Violation> {
    let error = |reason| Violation::Graph { record: index, reason };
    match kinds.get(edge.node as usize) {
        None => Err(error("it depends on a later node")),
        Some(_) if !edge.programmatic => Ok(()),
        Some(_) if !allowed => {
            Err(error("it has a programmatic dependency, which the host did not announce"))
        }
        Some(Kind::Launch) if kind == Kind::Launch => Ok(()),
        Some(_) => Err(error("a programmatic dependency does not join two launches")),
    }
}

fn at_end(rest: &[u8], record: u32) -> Result<(), Violation> {
    if rest.is_empty() { Ok(()) } else { Err(Violation::Graph { record, reason: "there is no such record" }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vgpu_wire::body::copy::CopyIn;
    use vgpu_wire::body::launch::Launch;
    use vgpu_wire::body::stream::Signal;
    use vgpu_wire::{Header, Mark, Payload, Span, padded};
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;
    use crate::charges::charge::DeviceCharges;
    use crate::charges::limits::Limits;

    fn new(limits: Limits) -> Graphs {
        Graphs::new(Charges::new(1, limits, Arc::new(DeviceCharges::default())))
    }

    fn message<P: Payload>(body: &P, number: u32) -> Vec<u8> {
        let bytes = padded((size_of::<Header>() + size_of_val(body)) as u64) as usize;
        let header = Header { kind: P::KIND as u16, flags: 0, bytes: bytes as u32, number, join: 0 };
        let mut message = header.as_bytes().to_vec();
        message.extend_from_slice(body.as_bytes());
        message.resize(bytes, 0);
        message
    }

    fn signal() -> Vec<u8> {
        message(&Signal { stream: 1, reserved: 0, mark: Mark::NONE }, 0)
    }

    fn node(dependencies: &[u32], message: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> = dependencies.iter().flat_map(|node| node.to_le_bytes()).collect();
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend_from_slice(message);
        let mut record = (8 + body.len() as u32).to_le_bytes().to_vec();
        record.extend_from_slice(&(dependencies.len() as u32).to_le_bytes());
        record.extend_from_slice(&body);
        record
    }

    fn reason<T: std::fmt::Debug>(result: Result<T, impl std::fmt::Debug + std::fmt::Display>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_good_payload_passes_and_can_be_walked() {
        let payload = [node(&[], &signal()), node(&[0], &signal()), node(&[0, 1], &signal())].concat();
        let mut graphs = new(Limits::default());
        let mut seen = 0;
        graphs
            .define(5, 3, &payload, false, |_| {
                seen += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!((seen, graphs.work(5)), (3, Ok(GraphWork::default())));
        let walked: Vec<Vec<u32>> = nodes(&payload).map(|node| node.dependencies().collect()).collect();
        assert_eq!(walked, [vec![], vec![0], vec![0, 1]]);
        assert_eq!(reason(graphs.define(5, 0, &[], true, |_| Ok(()))), "graph 5 is in use");

        let mut patch = (8 + signal().len() as u32).to_le_bytes().to_vec();
        patch.extend_from_slice(&2u32.to_le_bytes());
        patch.extend_from_slice(&signal());
        graphs.update(5, 1, &patch, |_| Ok(())).unwrap();
        assert_eq!(graphs.work(5), Ok(GraphWork::default()));
        assert_eq!(patches(&patch).map(|record| record.node).collect::<Vec<_>>(), [2]);
        patch[4] = 3;
        assert!(reason(graphs.update(5, 1, &patch, |_| Ok(()))).contains("no node of its kind"));
        assert_eq!(reason(graphs.update(6, 0, &[], |_| Ok(()))), "graph 6 is unknown");
        graphs.destroy(5).unwrap();
        assert_eq!(reason(graphs.work(5)), "graph 5 is unknown");
    }

    #[test]
    fn a_copy_that_is_changed_counts_with_its_new_size() {
        let copy = |bytes| {
            let source = Span { segment: 1, reserved: 0, offset: 0, bytes };
            message(&CopyIn { stream: 1, reserved: 0, destination: 0, source, read: Mark::NONE }, 0)
        };
        let mut graphs = new(Limits::default());
        graphs.define(1, 2, &[node(&[], &copy(0)), node(&[], &copy(7))].concat(), true, |_| Ok(())).unwrap();
        assert_eq!(graphs.work(1).unwrap().copied_in, 7);
        for (index, bytes, sum) in [(0u32, 30, 37), (1, 5, 35), (0, 0, 5)] {
            let head = [(8 + copy(bytes).len() as u32).to_le_bytes(), index.to_le_bytes()].concat();
            graphs.update(1, 1, &[head, copy(bytes)].concat(), |_| Ok(())).unwrap();
            assert_eq!(graphs.work(1).unwrap().copied_in, sum);
        }
    }

    #[test]
    fn programmatic_dependencies_join_launches_of_hosts_that_announce_them() {
        let launch = message(&Launch::new_zeroed(), 0);
        let programmatic = node(&[EDGE_PROGRAMMATIC, 1], &launch);
        let payload = [node(&[], &launch), node(&[0], &launch), programmatic].concat();
        let mut graphs = new(Limits::default());
        graphs.define(1, 3, &payload, true, |_| Ok(())).unwrap();
        assert_eq!(graphs.work(1).unwrap().launches, 3);
        let last = nodes(&payload).last().unwrap();
        assert_eq!(
            last.edges().map(|edge| (edge.node, edge.programmatic)).collect::<Vec<_>>(),
            [(0, true), (1, false)]
        );
        assert_eq!(last.dependencies().collect::<Vec<_>>(), [0, 1]);
        let unannounced = new(Limits::default()).define(1, 3, &payload, false, |_| Ok(()));
        assert!(reason(unannounced).contains("the host did not announce"));
        for (first, second) in [(&signal(), &launch), (&launch, &signal())] {
            let payload = [node(&[], first), node(&[EDGE_PROGRAMMATIC], second)].concat();
            let text = reason(new(Limits::default()).define(1, 2, &payload, true, |_| Ok(())));
            assert!(text.contains("does not join two launches"), "{text}");
        }
    }

    #[test]
    fn nodes_are_charged_until_their_graph_is_destroyed() {
        let mut graphs = new(Limits { graph_nodes: 3, ..Limits::default() });
        let two = [node(&[], &signal()), node(&[0], &signal())].concat();
        graphs.define(1, 2, &two, true, |_| Ok(())).unwrap();
        assert_eq!(graphs.charges.used(Resource::GraphNodes), 2);
        assert!(graphs.charges.bytes() > 0);
        assert!(matches!(graphs.define(2, 2, &two, true, |_| Ok(())), Err(GraphError::OverLimit(_))));
        graphs.define(2, 1, &node(&[], &signal()), true, |_| Ok(())).unwrap();
        graphs.destroy(1).unwrap();
        graphs.destroy(2).unwrap();
        assert_eq!((graphs.charges.used(Resource::GraphNodes), graphs.charges.bytes()), (0, 0));
    }

    #[test]
    fn each_way_to_be_wrong_is_named() {
        let long = |bytes: u32, record: &[u8]| [&bytes.to_le_bytes(), &record[4..]].concat();
        let good = node(&[], &signal());
        let ungraphed = message(&vgpu_wire::body::graph::GraphLaunch { graph: 5, stream: 0 }, 0);
        for (count, payload, expected) in [
            (1, vec![0; 4], "its head is cut off"),
            (1, long(4, &good), "not a multiple of 8"),
            (1, long(0, &good), "shorter than its head"),
            (1, long(4096, &good), "beyond the payload"),
            (1, node(&[0], &signal()), "depends on a later node"),
            (2, good.clone(), "head is cut off"),
            (0, good.clone(), "there is no such record"),
            (
                1,
                node(&[], &message(&Signal { stream: 1, reserved: 0, mark: Mark::NONE }, 3)),
                "a number or flags",
            ),
            (1, node(&[], &[signal(), vec![0; 8]].concat()), "does not fill it"),
            (1, node(&[], &signal()[..16]), "shorter than its header says"),
            (1, node(&[], &ungraphed), "GraphLaunch cannot be a node"),
        ] {
            let text = reason(new(Limits::default()).define(1, count, &payload, true, |_| Ok(())));
            assert!(text.contains(expected), "{text} should say: {expected}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_harm(payload in prop::collection::vec(any::<u8>(), 0..400), count in 0u32..6) {
            let mut graphs = new(Limits::default());
            if graphs.define(1, count, &payload, true, |_| Ok(())).is_ok() {
                prop_assert_eq!(nodes(&payload).count(), count as usize);
            }
            let _ = graphs.update(1, count, &payload, |_| Ok(()));
        }

        #[test]
        fn damage_is_found_or_harmless(at in any::<prop::sample::Index>(), value: u8) {
            let mut payload = [node(&[], &signal()), node(&[0], &signal())].concat();
            let at = at.index(payload.len());
            payload[at] = value;
            let mut graphs = new(Limits::default());
            if graphs.define(1, 2, &payload, true, |_| Ok(())).is_ok() {
                prop_assert_eq!(nodes(&payload).count(), 2);
            }
        }
    }
}
