//! Stream capture: which streams capture into which graph, and what captures forbid.
//!
//! Captures are relaxed and have one stream, as those of the executor do. Other modes are refused, and so are
//! events in a capturing stream, by which a second stream would join.

use std::collections::BTreeMap;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUgraphNode, capture_mode};

use crate::graph::{Edge, EdgeData, FULL, Graphs, NodeKind, PROGRAMMATIC};
use crate::rule::{CallRefusal, CallResult, Rule};
use crate::work::StreamKey;

#[derive(Debug)]
struct Capture {
    stream: StreamKey,
    graph: usize,
    /// Whether an error invalidated the capture. An invalid capture can only be ended.
    invalid: bool,
    /// Nodes on which the stream's next node depends. The program may read those that
    /// `cuStreamGetCaptureInfo` returned until its next call that names the stream.
    after: Vec<CUgraphNode>,
    /// Data of the edges to these nodes.
    edges: Vec<EdgeData>,
}

impl Capture {
    /// Returns the nodes on which the stream's next node depends, and the data of the edges to them.
    fn dependencies(&self) -> Vec<Edge> {
        self.after.iter().map(|node| node.0).zip(self.edges.iter().copied()).collect()
    }
}

/// Result of `cuStreamGetCaptureInfo` for an active capture.
#[derive(Debug)]
pub struct CaptureInfo<'a> {
    /// Number of the capture.
    pub id: u64,
    /// Graph that the capture creates.
    pub graph: usize,
    /// Nodes on which the stream's next node depends.
    pub nodes: &'a [CUgraphNode],
    /// Data of the edges to these nodes.
    pub edges: &'a [EdgeData],
}

/// All captures in progress.
#[derive(Debug, Default)]
pub struct Captures {
    next: u64,
    captures: BTreeMap<u64, Capture>,
}

impl Captures {
    /// Returns the capture of a stream, with its number.
    fn find(&mut self, stream: StreamKey) -> Option<(u64, &mut Capture)> {
        let mut captures = self.captures.iter_mut().map(|(&id, capture)| (id, capture));
        captures.find(|(_, capture)| capture.stream == stream)
    }

    /// Returns the valid capture of a stream, or `None` if the stream does not capture.
    fn find_valid(&mut self, stream: StreamKey) -> CallResult<Option<(u64, &mut Capture)>> {
        match self.find(stream) {
            Some((_, capture)) if capture.invalid => Err(Rule::CaptureInvalidated.into()),
            found => Ok(found),
        }
    }

    /// Returns the `CUstreamCaptureStatus` of a stream: none, active or invalidated.
    pub fn status(&mut self, stream: StreamKey) -> u32 {
        self.find(stream).map_or(0, |(_, capture)| if capture.invalid { 2 } else { 1 })
    }

    /// Refuses calls that a capturing stream forbids: queries, waits, and everything with events.
    pub fn not_captured(&mut self, stream: StreamKey) -> CallResult {
        if let Some((_, capture)) = self.find(stream) {
            capture.invalid = true;
            return Err(Rule::CaptureUnsupported.into());
        }
        self.not_implicit(stream)
    }

    /// Refuses the legacy stream while a blocking stream of its context captures.
    pub fn not_implicit(&self, stream: StreamKey) -> CallResult {
        let captured = |other: &StreamKey| other.blocking && other.context == stream.context;
        if stream.stream == 0 && self.captures.values().any(|one| captured(&one.stream)) {
            return Err(Rule::CaptureImplicit.into());
        }
        Ok(())
    }

    /// Carries out `cuStreamBeginCapture`.
    pub fn begin(&mut self, stream: StreamKey, mode: u32, graphs: &mut Graphs) -> CallResult {
        if mode > capture_mode::RELAXED {
            return Err(Rule::Argument.into());
        }
        if mode != capture_mode::RELAXED {
            return Err(CallRefusal::Expected(CUresult::NOT_SUPPORTED));
        }
        if stream.stream == 0 {
            return Err(Rule::CaptureLegacy.into());
        }
        if self.find(stream).is_some() {
            return Err(Rule::CapturingAlready.into());
        }
        self.next += 1;
        let (after, edges) = (Vec::new(), Vec::new());
        let capture = Capture { stream, graph: graphs.create(), invalid: false, after, edges };
        self.captures.insert(self.next, capture);
        Ok(())
    }

    /// Adds work to the capture of a stream, as a node. `None` if the stream does not capture. Edges between
    /// kernels are programmatic if the later launch has the attribute for programmatic stream serialization.
    pub fn add(
        &mut self,
        stream: StreamKey,
        graphs: &mut Graphs,
        kind: impl FnOnce() -> NodeKind,
    ) -> CallResult<Option<usize>> {
        self.not_implicit(stream)?;
        let Some((_, capture)) = self.find_valid(stream)? else { return Ok(None) };
        let (mut after, kind) = (capture.dependencies(), kind());
        if matches!(kind, NodeKind::Kernel { early: true, .. }) {
            for (node, data) in after.iter_mut().filter(|(_, data)| *data == FULL) {
                *data = if graphs.is_kernel(*node) { PROGRAMMATIC } else { FULL };
            }
        }
        let node = graphs.add_node(capture.graph, &after, kind)?;
        (capture.after, capture.edges) = (vec![CUgraphNode(node)], vec![FULL]);
        Ok(Some(node))
    }

    /// Carries out `cuStreamGetCaptureInfo`. It returns `None` if the stream has no valid capture.
    pub fn info(&mut self, stream: StreamKey) -> CallResult<Option<CaptureInfo<'_>>> {
        self.not_implicit(stream)?;
        let valid = self.find(stream).filter(|(_, capture)| !capture.invalid);
        Ok(valid.map(|(id, Capture { graph, after, edges, .. })| CaptureInfo {
            id,
            graph: *graph,
            nodes: after,
            edges,
        }))
    }

    /// Carries out `cuStreamUpdateCaptureDependencies`. It adds `nodes` to the dependencies of the stream's
    /// next node, or with `set` replaces them. Replaced dependencies need not be joined.
    pub fn update(&mut self, stream: StreamKey, nodes: &[Edge], set: bool, graphs: &Graphs) -> CallResult {
        let (_, capture) = self.find_valid(stream)?.ok_or(Rule::NotCapturing)?;
        graphs.check_dependencies(capture.graph, nodes)?;
        if set {
            capture.after.clear();
            capture.edges.clear();
        }
        for (node, data) in nodes.iter().map(|&(node, data)| (CUgraphNode(node), data)) {
            if !capture.after.contains(&node) {
                capture.after.push(node);
                capture.edges.push(data);
            }
        }
        Ok(())
    }

    /// Refuses operations on a graph that is being captured. The manual permits "All operations other than
    /// destroy and node removal".
    pub fn not_under_way(&self, graph: usize) -> CallResult {
        if self.captures.values().any(|capture| capture.graph == graph) {
            return Err(Rule::GraphCaptured.into());
        }
        Ok(())
    }

    /// Carries out `cuStreamEndCapture`. It returns the graph.
    pub fn end(&mut self, stream: StreamKey) -> CallResult<usize> {
        let (id, _) = self.find(stream).ok_or(Rule::NotCapturing)?;
        match self.captures.remove(&id) {
            Some(capture) if !capture.invalid => Ok(capture.graph),
            _ => Err(Rule::CaptureInvalidated.into()),
        }
    }

    /// Ends the captures of a context.
    pub fn end_context(&mut self, context: usize) {
        self.captures.retain(|_, capture| capture.stream.context != context);
    }
}
