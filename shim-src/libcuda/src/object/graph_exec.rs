//! Instantiated graphs. A graph is sent to the host once, an update sends the messages that differ, and a
//! launch is one message.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUgraph, CUgraphExec, CUgraphNode, graph_node, graph_update};
use vgpu_wire::body::graph::{
    GraphDefine, GraphDestroy, GraphLaunch, GraphNode as NodeHead, GraphPatch, GraphUpdate,
};
use vgpu_wire::facts::exec;
use vgpu_wire::{Payload, Span};
use zerocopy::IntoBytes;

use crate::Result;
use crate::arg::Out;
use crate::object::edge::Edge;
use crate::object::gpu::Gpu;
use crate::object::graph::{self, Node, node_handle};
use crate::object::stream::Stream;
use crate::object::work::Work;
use crate::object::{capture, current};
use crate::queue::submission::{Minted, Queue};
use crate::slab::Slab;
use crate::sync::Mutex;

/// Maximum length in bytes of records sent in the message itself; longer ones go through window memory. A
/// message may have `area::MESSAGE_MAX` bytes, so this leaves room for messages of other threads.
const INLINE_MOST: usize = 32 << 10;
/// Flags that an instantiation accepts: `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`, `..._UPLOAD`,
/// `..._USE_NODE_PRIORITY`. Launches from kernels (4) are not among them.
const INSTANTIATE_FLAGS: u64 = 1 | 2 | 8;

/// A graph that the host has instantiated.
#[derive(Default)]
pub struct Exec {
    gpu: AtomicPtr<Gpu>,
    context: AtomicUsize,
    number: AtomicU32,
    flags: AtomicU32,
    /// Whether a node reads or writes pinned memory: 1 if one does, otherwise 0.
    host: AtomicU32,
    nodes: Mutex<Vec<(Work, Vec<Edge>)>>,
}

static EXECS: Slab<Exec> = Slab::new(5);

impl Exec {
    fn gpu(&self) -> &'static Gpu {
        // SAFETY: as for `Graph::gpu`.
        unsafe { &*self.gpu.load(Ordering::Relaxed) }
    }

    /// Returns the flags with which the graph was instantiated.
    pub fn flags(&self) -> u64 {
        u64::from(self.flags.load(Ordering::Relaxed))
    }
}

/// Returns the records of the `GraphDefine` message for these nodes. `programmatic` tells whether the host
/// knows programmatic edges.
fn definition(nodes: &[(Work, Vec<Edge>)], programmatic: bool) -> Vec<u8> {
    let mut records = Vec::new();
    for (work, after) in nodes {
        let edges = (after.len() * 4).next_multiple_of(8);
        let head = NodeHead {
            bytes: (size_of::<NodeHead>() + edges + work.bytes().len()) as u32,
            dependencies: after.len() as u32,
        };
        records.extend_from_slice(head.as_bytes());
        let start = records.len();
        records.extend(after.iter().flat_map(|edge| edge.to_wire(programmatic).to_le_bytes()));
        records.resize(start + edges, 0);
        records.extend_from_slice(work.bytes());
    }
    records
}

/// Returns the records of the `GraphUpdate` message for the changed nodes.
fn patches(changed: &[(u32, &Work)]) -> Vec<u8> {
    let mut records = Vec::new();
    for &(node, work) in changed {
        let head = GraphPatch { bytes: (size_of::<GraphPatch>() + work.bytes().len()) as u32, node };
        records.extend_from_slice(head.as_bytes());
        records.extend_from_slice(work.bytes());
    }
    records
}

/// Sends a message whose records are in its tail, or in window memory if they are long.
fn send_records<P: Payload>(queue: &Queue, records: &[u8], make: impl FnOnce(Span) -> P) -> Result {
    if records.len() <= INLINE_MOST {
        queue.send(&make(Span::inline(records.len() as u64)), &[records])?;
        return Ok(());
    }
    let bytes = records.len() as u64;
    let memory = queue.session.window_alloc(bytes).map_err(|lost| queue.report(&lost))?;
    let memory = memory.ok_or(CUresult::OUT_OF_MEMORY)?;
    // SAFETY: the memory is this call's own and at least as long as was asked for; the host is told of it
    // below.
    unsafe { ptr::copy_nonoverlapping(records.as_ptr(), memory.ptr(), records.len()) };
    queue.send(&make(Span::bar(memory.offset(), bytes)), &[])?;
    // Freed after the message was sent; the host keeps the memory until it has read it.
    drop(memory);
    Ok(())
}

/// Instantiates a graph and stores the handle.
pub fn instantiate(graph: CUgraph, flags: u64, out: Out<CUgraphExec>) -> Result {
    let context = current::context()?;
    let graph = graph::get(graph)?;
    let out = out.check()?;
    if flags & !INSTANTIATE_FLAGS != 0 {
        return Err(if flags & !15 == 0 { CUresult::NOT_SUPPORTED } else { CUresult::INVALID_VALUE });
    }
    let gpu = graph.gpu();
    gpu.queue.async_error()?;
    let nodes: Vec<(Work, Vec<Edge>)> =
        graph.nodes().iter().map(|node| (node.work.clone(), node.after.clone())).collect();
    let number = gpu.queue.mint(Minted::Graph);
    let count = nodes.len() as u32;
    let programmatic = gpu.shown.facts.abilities & exec::EDGES != 0;
    send_records(&gpu.queue, &definition(&nodes, programmatic), |records| GraphDefine {
        graph: number,
        nodes: count,
        flags,
        records,
    })?;
    let host = nodes.iter().any(|(work, _)| work.touches_host());
    let (handle, _) = EXECS
        .insert(|_, exec| {
            exec.gpu.store(ptr::from_ref(gpu).cast_mut(), Ordering::Relaxed);
            exec.context.store(context.handle(), Ordering::Relaxed);
            exec.number.store(number, Ordering::Relaxed);
            exec.flags.store(flags as u32, Ordering::Relaxed);
            exec.host.store(u32::from(host), Ordering::Relaxed);
            *exec.nodes.lock() = nodes;
        })
        .ok_or(CUresult::OUT_OF_MEMORY)?;
    out.set(CUgraphExec(handle))
}

/// Returns the instantiated graph of a handle. Fails if the calling thread has no context.
pub fn get(handle: CUgraphExec) -> Result<&'static Exec> {
    current::context()?;
    EXECS.get(handle.0).ok_or(CUresult::INVALID_VALUE)
}

/// Returns the `CUgraphExecUpdateResult` of the first difference that prevents an update, and the index of
/// the node at fault, if one is. Returns `None` if the graph can be updated.
fn difference(old: &[(Work, Vec<Edge>)], new: &[Node]) -> Option<(u32, Option<u32>)> {
    if old.len() != new.len() {
        return Some((graph_update::TOPOLOGY_CHANGED, None));
    }
    for (index, ((work, after), node)) in (0..).zip(old.iter().zip(new)) {
        if *after != node.after {
            return Some((graph_update::TOPOLOGY_CHANGED, Some(index)));
        }
        if work.kind() != node.work.kind() {
            let copies = [work, &node.work].iter().all(|work| work.node_type() == graph_node::MEMCPY);
            let code =
                if copies { graph_update::PARAMETERS_CHANGED } else { graph_update::NODE_TYPE_CHANGED };
            return Some((code, Some(index)));
        }
    }
    None
}

/// Updates an instantiated graph from a graph. Returns the `CUgraphExecUpdateResult`, and the node at fault
/// or null.
pub fn update(handle: CUgraphExec, with: CUgraph) -> Result<(u32, CUgraphNode)> {
    let exec = get(handle)?;
    let graph = graph::get(with)?;
    let gpu = exec.gpu();
    if !ptr::eq(gpu, graph.gpu()) {
        return Ok((graph_update::NOT_SUPPORTED, CUgraphNode::NULL));
    }
    gpu.queue.async_error()?;
    let mut nodes = exec.nodes.lock();
    let new = graph.nodes();
    if let Some((code, index)) = difference(&nodes, &new) {
        drop(new);
        let node = index.map_or(Ok(CUgraphNode::NULL), |index| node_handle(with.0, graph, index))?;
        return Ok((code, node));
    }
    let changed: Vec<(u32, &Work)> = (0..)
        .zip(nodes.iter().zip(new.iter()))
        .filter_map(|(index, ((old, _), node))| (*old != node.work).then_some((index, &node.work)))
        .collect();
    if !changed.is_empty() {
        send_patches(exec, &changed)?;
        for (index, work) in changed {
            nodes[index as usize].0 = work.clone();
        }
        let host = nodes.iter().any(|(work, _)| work.touches_host());
        exec.host.store(u32::from(host), Ordering::Relaxed);
    }
    Ok((graph_update::SUCCESS, CUgraphNode::NULL))
}

fn send_patches(exec: &Exec, changed: &[(u32, &Work)]) -> Result {
    let graph = exec.number.load(Ordering::Relaxed);
    let nodes = changed.len() as u32;
    send_records(&exec.gpu().queue, &patches(changed), |records| GraphUpdate {
        graph,
        nodes,
        reserved: 0,
        records,
    })
}

/// Replaces the work of one node by other work of the same kind.
pub fn patch(handle: CUgraphExec, index: u32, work: &Work) -> Result {
    let exec = get(handle)?;
    exec.gpu().queue.async_error()?;
    let mut nodes = exec.nodes.lock();
    let (old, _) = nodes.get_mut(index as usize).ok_or(CUresult::INVALID_VALUE)?;
    if old.kind() != work.kind() {
        return Err(CUresult::INVALID_VALUE);
    }
    if old != work {
        send_patches(exec, &[(index, work)])?;
        *old = work.clone();
    }
    Ok(())
}

/// Launches an instantiated graph on a stream.
pub fn launch(exec: &Exec, stream: &Stream) -> Result {
    if !ptr::eq(exec.gpu(), stream.gpu()) {
        return Err(CUresult::INVALID_VALUE);
    }
    if capture::intercept(stream)? {
        // The contract has no node for a graph within a graph.
        return capture::fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let graph = exec.number.load(Ordering::Relaxed);
    stream.send(&GraphLaunch { graph, stream: stream.timeline.number() }, &[])?;
    if exec.host.load(Ordering::Relaxed) != 0 {
        let gpu = stream.gpu();
        gpu.queue.pending.add(stream.timeline.signal_always(&gpu.queue)?);
    }
    Ok(())
}

/// Destroys an instantiated graph, ordered after its launches.
pub fn destroy(handle: CUgraphExec) -> Result {
    get(handle)?;
    end_exec(handle.0)
}

fn end_exec(handle: usize) -> Result {
    let destroyed = EXECS.remove(handle, |exec| {
        exec.nodes.lock().clear();
        let graph = exec.number.load(Ordering::Relaxed);
        exec.gpu().queue.send(&GraphDestroy { graph, reserved: 0 }, &[])
    });
    destroyed.ok_or(CUresult::INVALID_VALUE)?.map(drop)
}

/// Ends the instantiated graphs of a context.
pub fn end_context(context: usize) {
    for (handle, exec) in EXECS.iter() {
        if exec.context.load(Ordering::Relaxed) == context {
            // The context ends even if the host returns an error.
            let _ = end_exec(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vgpu_wire::Message;
    use vgpu_wire::body::copy::{CopyDevice, Fill};
    use zerocopy::FromBytes;

    fn fill(value: u32) -> Work {
        let body = Fill {
            stream: 0,
            value,
            element: 4,
            reserved: 0,
            destination: 512,
            pitch: 0,
            width: 8,
            height: 1,
        };
        Work::new(&body, &[])
    }

    fn copy(bytes: u64) -> Work {
        Work::new(&CopyDevice { stream: 0, reserved: 0, destination: 1024, source: 512, bytes }, &[])
    }

    fn node(work: Work, after: &[u32]) -> Node {
        Node { work, after: after.iter().copied().map(Edge::full).collect(), handle: 0, pointers: Vec::new() }
    }

    #[test]
    fn differences_have_cudas_codes() {
        let old = vec![(fill(1), vec![]), (copy(8), vec![Edge::full(0)])];
        let same = [node(fill(2), &[]), node(copy(16), &[0])];
        assert_eq!(difference(&old, &same), None);
        assert_eq!(difference(&old, &same[..1]), Some((graph_update::TOPOLOGY_CHANGED, None)));
        let edge = [node(fill(2), &[]), node(copy(16), &[])];
        assert_eq!(difference(&old, &edge), Some((graph_update::TOPOLOGY_CHANGED, Some(1))));
        let mut programmatic = same.clone();
        programmatic[1].after[0].programmatic = true;
        assert_eq!(difference(&old, &programmatic), Some((graph_update::TOPOLOGY_CHANGED, Some(1))));
        let kind = [node(copy(1), &[]), node(copy(16), &[0])];
        assert_eq!(difference(&old, &kind), Some((graph_update::NODE_TYPE_CHANGED, Some(0))));
    }

    proptest! {
        #[test]
        fn definitions_read_back(
            nodes in prop::collection::vec(
                (any::<u32>(), prop::collection::vec(any::<(prop::sample::Index, bool)>(), 0..4)),
                1..20,
            ),
            known: bool,
        ) {
            let nodes: Vec<(Work, Vec<Edge>)> = nodes.iter().enumerate().map(|(i, (value, after))| {
                let edge = |(to, programmatic): &(prop::sample::Index, bool)| {
                    Edge { node: to.index(i) as u32, programmatic: *programmatic }
                };
                let after = if i == 0 { vec![] } else { after.iter().map(edge).collect() };
                (fill(*value), after)
            }).collect();
            let records = definition(&nodes, known);
            prop_assert_eq!(records.len() % 8, 0);
            let mut rest = &records[..];
            for (work, after) in &nodes {
                let (head, _) = NodeHead::read_from_prefix(rest).unwrap();
                let (record, next) = rest.split_at(head.bytes as usize);
                let edges: Vec<u32> = record[8..][..4 * head.dependencies as usize]
                    .chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
                let expected: Vec<u32> = after.iter().map(|edge| edge.to_wire(known)).collect();
                prop_assert_eq!(&edges, &expected);
                let message = &record[8 + (4 * edges.len()).next_multiple_of(8)..];
                prop_assert_eq!(message, work.bytes());
                prop_assert!(Message::decode(message).is_ok());
                rest = next;
            }
            prop_assert!(rest.is_empty());
        }
    }
}
