//! "Stream capture": which streams capture, into which graph, and what that forbids.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::thread::{self, ThreadId};

use vgpu_abi::driver::{CUgraphNode, capture_mode};

use crate::graph::{Graphs, NodeKind};
use crate::rule::{Answer, Rule};
use crate::work::Lane;

/// A capture.
#[derive(Debug)]
struct Capture {
    origin: Lane,
    mode: u32,
    thread: ThreadId,
    graph: usize,
    /// An error ended it; only its end is permitted.
    invalid: bool,
    /// By stream: the nodes that the stream's next node depends on.
    streams: HashMap<Lane, Vec<usize>>,
    /// The nodes that `cuStreamGetCaptureInfo` answered last: the program may read them until its next call
    /// that names the stream.
    shown: Vec<CUgraphNode>,
}

/// What `cuStreamGetCaptureInfo` answers of an active capture.
#[derive(Debug)]
pub struct Info<'a> {
    /// Number of the capture.
    pub id: u64,
    /// The graph that it makes.
    pub graph: usize,
    /// The nodes that the stream's next node depends on.
    pub nodes: &'a [CUgraphNode],
}

/// All captures that were not ended.
#[derive(Debug, Default)]
pub struct Captures {
    next: u64,
    captures: BTreeMap<u64, Capture>,
}

impl Captures {
    fn capture_of(&self, lane: Lane) -> Option<u64> {
        self.captures.iter().find(|(_, capture)| capture.streams.contains_key(&lane)).map(|(&id, _)| id)
    }

    /// Whether a stream captures, and how: none, active, invalidated.
    pub fn status(&self, lane: Lane) -> u32 {
        self.capture_of(lane).map_or(0, |id| if self.captures[&id].invalid { 2 } else { 1 })
    }

    /// Refuses calls that are not safe while something is captured: in the capturing thread unless the
    /// capture is relaxed, in all threads if it is global.
    pub fn unsafe_call(&mut self) -> Answer {
        let here = thread::current().id();
        let bad = |capture: &&mut Capture| {
            let own = capture.thread == here && capture.mode != capture_mode::RELAXED;
            !capture.invalid && (own || capture.mode == capture_mode::GLOBAL)
        };
        match self.captures.values_mut().find(bad) {
            Some(capture) => {
                capture.invalid = true;
                Err(Rule::CaptureUnsupported.into())
            }
            None => Ok(()),
        }
    }

    /// Refuses what cannot be done to a stream that captures: queries and waits.
    pub fn not_captured(&mut self, lane: Lane) -> Answer {
        if let Some(capture) = self.capture_of(lane).and_then(|id| self.captures.get_mut(&id)) {
            capture.invalid = true;
            return Err(Rule::CaptureUnsupported.into());
        }
        self.not_implicit(lane)
    }

    /// Refuses the legacy stream while a blocking stream of its context captures.
    pub fn not_implicit(&self, lane: Lane) -> Answer {
        let captured = |other: &Lane| other.blocking && other.context == lane.context;
        if lane.stream == 0 && self.captures.values().any(|one| one.streams.keys().any(captured)) {
            return Err(Rule::CaptureImplicit.into());
        }
        Ok(())
    }

    /// `cuStreamBeginCapture`
    pub fn begin(&mut self, lane: Lane, mode: u32, graphs: &mut Graphs) -> Answer {
        if mode > capture_mode::RELAXED {
            return Err(Rule::Argument.into());
        }
        if lane.stream == 0 {
            return Err(Rule::CaptureLegacy.into());
        }
        if self.capture_of(lane).is_some() {
            return Err(Rule::CapturingAlready.into());
        }
        self.next += 1;
        let capture = Capture {
            origin: lane,
            mode,
            thread: thread::current().id(),
            graph: graphs.create(),
            invalid: false,
            streams: HashMap::from([(lane, Vec::new())]),
            shown: Vec::new(),
        };
        self.captures.insert(self.next, capture);
        Ok(())
    }

    /// Records work of a stream that captures, whose node it makes; `None` if the stream does not.
    pub fn add(
        &mut self,
        lane: Lane,
        graphs: &mut Graphs,
        kind: impl FnOnce() -> NodeKind,
    ) -> Answer<Option<usize>> {
        self.not_implicit(lane)?;
        let Some(capture) = self.capture_of(lane).and_then(|id| self.captures.get_mut(&id)) else {
            return Ok(None);
        };
        if capture.invalid {
            return Err(Rule::CaptureInvalidated.into());
        }
        let after = capture.streams.get(&lane).cloned().unwrap_or_default();
        let node = graphs.add_node(capture.graph, &after, kind())?;
        capture.streams.insert(lane, vec![node]);
        Ok(Some(node))
    }

    /// A record of an event in a stream that captures: the capture, and the nodes that the record stands for.
    pub fn record(&self, lane: Lane) -> Answer<Option<(u64, Vec<usize>)>> {
        self.not_implicit(lane)?;
        let Some(id) = self.capture_of(lane) else { return Ok(None) };
        if self.captures[&id].invalid {
            return Err(Rule::CaptureInvalidated.into());
        }
        Ok(Some((id, self.captures[&id].streams[&lane].clone())))
    }

    /// A wait of a stream for an event whose record was captured: the stream joins that capture.
    pub fn join(&mut self, lane: Lane, capture: u64, nodes: &[usize]) -> Answer {
        self.not_implicit(lane)?;
        let other = self.capture_of(lane);
        if other.is_some_and(|other| other != capture) {
            for id in other.into_iter().chain([capture]) {
                if let Some(one) = self.captures.get_mut(&id) {
                    one.invalid = true;
                }
            }
            return Err(Rule::CaptureMerge.into());
        }
        // The capture may have ended.
        let found = self.captures.get_mut(&capture).ok_or(Rule::CapturedEvent)?;
        if found.invalid {
            return Err(Rule::CaptureInvalidated.into());
        }
        let place = found.streams.entry(lane).or_default();
        place.extend(nodes.iter().filter(|node| !place.contains(node)).copied().collect::<Vec<_>>());
        Ok(())
    }

    /// Ends a capture because one of its streams would depend on work outside it.
    pub fn not_isolated(&mut self, lane: Lane) -> Answer {
        self.not_implicit(lane)?;
        if let Some(capture) = self.capture_of(lane).and_then(|id| self.captures.get_mut(&id)) {
            capture.invalid = true;
            return Err(Rule::CaptureIsolation.into());
        }
        Ok(())
    }

    /// `cuStreamGetCaptureInfo`; `None` if the stream captures nothing, or an error ended its capture.
    pub fn info(&mut self, lane: Lane) -> Answer<Option<Info<'_>>> {
        self.not_implicit(lane)?;
        let Some(id) = self.capture_of(lane) else { return Ok(None) };
        let Some(capture) = self.captures.get_mut(&id).filter(|capture| !capture.invalid) else {
            return Ok(None);
        };
        capture.shown = capture.streams[&lane].iter().map(|&node| CUgraphNode(node)).collect();
        Ok(Some(Info { id, graph: capture.graph, nodes: &capture.shown }))
    }

    /// `cuStreamUpdateCaptureDependencies`: the stream's next node depends on `nodes` too, or with `set` on
    /// nothing else. What it depended on before need not be joined.
    pub fn update(&mut self, lane: Lane, nodes: &[usize], set: bool, graphs: &Graphs) -> Answer {
        let Some(capture) = self.capture_of(lane).and_then(|id| self.captures.get_mut(&id)) else {
            return Err(Rule::NotCapturing.into());
        };
        if capture.invalid {
            return Err(Rule::CaptureInvalidated.into());
        }
        graphs.check_dependencies(capture.graph, nodes)?;
        let place = capture.streams.entry(lane).or_default();
        if set {
            place.clear();
        }
        place.extend(nodes.iter().filter(|node| !place.contains(node)).copied().collect::<Vec<_>>());
        Ok(())
    }

    /// Refuses what a graph does not permit while it is captured: "All operations other than destroy and node
    /// removal".
    pub fn not_under_way(&self, graph: usize) -> Answer {
        if self.captures.values().any(|capture| capture.graph == graph) {
            return Err(Rule::GraphCaptured.into());
        }
        Ok(())
    }

    /// `cuStreamEndCapture`: the graph.
    pub fn end(&mut self, lane: Lane, graphs: &Graphs) -> Answer<usize> {
        let id = self.capture_of(lane).ok_or(Rule::NotCapturing)?;
        let capture = &self.captures[&id];
        if capture.origin != lane {
            return Err(Rule::CaptureUnmatched.into());
        }
        if capture.mode != capture_mode::RELAXED && capture.thread != thread::current().id() {
            return Err(Rule::CaptureThread.into());
        }
        let Some(capture) = self.captures.remove(&id) else { return Err(Rule::NotCapturing.into()) };
        if capture.invalid {
            return Err(Rule::CaptureInvalidated.into());
        }
        let mut joined: HashSet<usize> = HashSet::new();
        let mut open = capture.streams[&lane].clone();
        while let Some(node) = open.pop() {
            if joined.insert(node) {
                open.extend(graphs.node(node)?.after.iter().copied());
            }
        }
        if capture.streams.values().flatten().any(|node| !joined.contains(node)) {
            return Err(Rule::CaptureUnjoined.into());
        }
        Ok(capture.graph)
    }

    /// Ends the captures of a context.
    pub fn end_context(&mut self, context: usize) {
        self.captures.retain(|_, capture| capture.origin.context != context);
    }
}
