//! Stream capture: work on a capturing stream becomes nodes of a graph here in the guest, and no message is
//! sent.
//!
//! A capture starts on one stream, its origin, and spreads to others by events: a stream that waits for an
//! event of the capture joins it. A call that CUDA does not allow meanwhile invalidates the capture, with the
//! code that CUDA defines for it (900 to 908).

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUgraph, CUgraphNode, capture_mode, capture_status};
use vgpu_wire::Payload;
use vgpu_wire::body::launch::LAUNCH_PROGRAMMATIC;

use crate::Result;
use crate::arg::{In, Out};
use crate::object::edge::{self, Edge, EdgeData};
use crate::object::graph::{self, Graph};
use crate::object::stream::Stream;
use crate::object::work::Work;
use crate::sync::Mutex;

/// Position in a capture, which a captured event stands for.
#[derive(Clone, Debug)]
pub struct CapturePoint {
    capture: u64,
    after: Vec<Edge>,
}

/// A capturing stream.
struct Tip {
    stream: &'static Stream,
    /// Dependencies of the stream's next node.
    after: Vec<Edge>,
    /// The node that the stream recorded last.
    newest: Option<u32>,
}

struct Capture {
    id: u64,
    /// `CUstreamCaptureMode` of the capture.
    mode: u32,
    /// Number of the thread that started the capture.
    thread: u64,
    context: usize,
    origin: &'static Stream,
    invalid: bool,
    graph: (usize, &'static Graph),
    tips: Vec<Tip>,
    /// Nodes that the program has removed from the dependencies of a stream's next node. CUDA does not count
    /// them as unjoined work if no node depends on them.
    removed: Vec<u32>,
    /// The nodes that `cuStreamGetCaptureInfo` returned last, and the data of the edges to them. The caller
    /// may read them until its next call.
    shown: (Vec<CUgraphNode>, Vec<EdgeData>),
}

/// Major number of the compute capability from which on kernels overlap by programmatic dependent launch.
const PROGRAMMATIC_FROM: u32 = 9;

static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());
/// Number of captures, so that other work pays one load while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Capture mode of each thread, set by `cuThreadExchangeStreamCaptureMode`.
    static MODE: Cell<u32> = const { Cell::new(capture_mode::GLOBAL) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    if THREAD.get() == 0 {
        THREAD.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
    }
    THREAD.get()
}

/// Returns whether any stream is captured.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

impl Capture {
    fn tip(&mut self, stream: &Stream) -> Option<&mut Tip> {
        self.tips.iter_mut().find(|tip| tip.stream.id() == stream.id())
    }

    /// Returns the dependencies of the stream's next node.
    fn after(&mut self, stream: &Stream) -> Vec<Edge> {
        self.tip(stream).map(|tip| tip.after.clone()).unwrap_or_default()
    }

    fn blocking_in(&self, context: usize) -> bool {
        self.context == context && self.tips.iter().any(|tip| tip.stream.is_blocking())
    }
}

fn find_capture<'a>(captures: &'a mut [Capture], stream: &Stream) -> Option<&'a mut Capture> {
    let id = stream.capture.load(Ordering::Acquire);
    captures.iter_mut().find(|capture| id != 0 && capture.id == id)
}

/// Invalidates the captures that `which` accepts. Returns whether there were any.
fn invalidate(captures: &mut [Capture], which: impl Fn(&Capture) -> bool) -> bool {
    let mut hit = false;
    for capture in captures.iter_mut().filter(|capture| which(capture)) {
        capture.invalid = true;
        hit = true;
    }
    hit
}

fn error_if(hit: bool, code: CUresult) -> Result {
    if hit { Err(code) } else { Ok(()) }
}

/// Returns whether work for the stream must be recorded. Fails for the legacy stream while a stream that
/// synchronises with it is being captured. Costs one load while nothing is captured.
#[inline]
pub fn intercept(stream: &Stream) -> Result<bool> {
    if any() { intercept_among(stream) } else { Ok(false) }
}

#[cold]
fn intercept_among(stream: &Stream) -> Result<bool> {
    let mut captures = CAPTURES.lock();
    if let Some(capture) = find_capture(&mut captures, stream) {
        return if capture.invalid { Err(CUresult::STREAM_CAPTURE_INVALIDATED) } else { Ok(true) };
    }
    if stream.is_legacy() {
        let context = stream.context();
        let hit = invalidate(&mut captures, |capture| capture.blocking_in(context));
        error_if(hit, CUresult::STREAM_CAPTURE_IMPLICIT)?;
    }
    Ok(false)
}

/// Adds a node after the stream's earlier nodes. From compute capability 9.0 on, a launch that permits it,
/// and that follows a launch of the same stream alone, gets a programmatic edge. A launch that also waits for
/// other streams gets full ones, because it need not wait for their work by itself. Other work always gets
/// full edges.
pub fn record<P: Payload>(stream: &Stream, body: &P, tail: &[&[u8]]) -> Result {
    let mut captures = CAPTURES.lock();
    let capture = find_capture(&mut captures, stream).ok_or(CUresult::STREAM_CAPTURE_INVALIDATED)?;
    let graph = capture.graph.1;
    let work = Work::new(body, tail);
    let launch = work.launch();
    let tip = capture.tip(stream).ok_or(CUresult::STREAM_CAPTURE_INVALIDATED)?;
    let mut after = std::mem::take(&mut tip.after);
    match (&mut after[..], launch) {
        ([edge], Some(launch)) if launch.flags & LAUNCH_PROGRAMMATIC != 0 => {
            let overlaps = stream.gpu().shown.facts.cc_major >= PROGRAMMATIC_FROM;
            edge.programmatic |= overlaps && tip.newest == Some(edge.node) && graph.is_launch(edge.node);
        }
        (_, Some(_)) => {}
        (edges, None) => edges.iter_mut().for_each(|edge| edge.programmatic = false),
    }
    let node = graph.add(work, after);
    tip.after = vec![Edge::full(node)];
    tip.newest = Some(node);
    Ok(())
}

/// Returns the stream's position in its capture, which an event recorded now stands for.
pub fn place(stream: &Stream) -> Result<CapturePoint> {
    let mut captures = CAPTURES.lock();
    let capture = find_capture(&mut captures, stream).ok_or(CUresult::STREAM_CAPTURE_INVALIDATED)?;
    let id = capture.id;
    Ok(CapturePoint { capture: id, after: capture.after(stream) })
}

/// Orders a stream after a captured event. A stream that is not captured joins the capture.
pub fn join(stream: &'static Stream, place: &CapturePoint) -> Result {
    let mut captures = CAPTURES.lock();
    let own = stream.capture.load(Ordering::Acquire);
    if own != 0 && own != place.capture {
        invalidate(&mut captures, |capture| capture.id == own || capture.id == place.capture);
        return Err(CUresult::STREAM_CAPTURE_MERGE);
    }
    let Some(capture) = captures.iter_mut().find(|capture| capture.id == place.capture) else {
        return Err(CUresult::CAPTURED_EVENT);
    };
    if capture.invalid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    if stream.is_legacy() {
        capture.invalid = true;
        return Err(CUresult::STREAM_CAPTURE_IMPLICIT);
    }
    if let Some(tip) = capture.tip(stream) {
        tip.after.extend(&place.after);
        edge::normalize(&mut tip.after);
    } else {
        stream.capture.store(capture.id, Ordering::Release);
        capture.tips.push(Tip { stream, after: place.after.clone(), newest: None });
    }
    Ok(())
}

/// Invalidates the stream's capture and returns the reason as an error.
pub fn fail(stream: &Stream, code: CUresult) -> Result {
    let id = stream.capture.load(Ordering::Acquire);
    invalidate(&mut CAPTURES.lock(), |capture| capture.id == id);
    Err(code)
}

/// Invalidates the capture in which an event was recorded, and returns the reason.
pub fn fail_capture(place: &CapturePoint, code: CUresult) -> CUresult {
    invalidate(&mut CAPTURES.lock(), |capture| capture.id == place.capture);
    code
}

/// Refuses a call that could interfere with a capture, according to the captures' modes and the calling
/// thread's.
pub fn forbid_unsafe() -> Result {
    if !any() || MODE.get() == capture_mode::RELAXED {
        return Ok(());
    }
    let (thread, mode) = (this_thread(), MODE.get());
    let hit = invalidate(&mut CAPTURES.lock(), |capture| {
        let own = capture.thread == thread && capture.mode != capture_mode::RELAXED;
        let others = mode == capture_mode::GLOBAL && capture.mode == capture_mode::GLOBAL;
        !capture.invalid && (own || others)
    });
    error_if(hit, CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses a call that queries a stream's work, or waits for it, while the stream is being captured.
pub fn forbid_sync(stream: &Stream) -> Result {
    if !any() {
        return Ok(());
    }
    if intercept(stream)? { fail(stream, CUresult::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses a call that waits for all work of a context in which a stream is being captured.
pub fn forbid_in_context(context: usize) -> Result {
    if !any() {
        return Ok(());
    }
    let hit = invalidate(&mut CAPTURES.lock(), |capture| capture.context == context && !capture.invalid);
    error_if(hit, CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// Replaces the calling thread's capture mode and returns the former one.
pub fn exchange_mode(new: u32) -> Result<u32> {
    if new > capture_mode::RELAXED {
        return Err(CUresult::INVALID_VALUE);
    }
    Ok(MODE.replace(new))
}

/// Removes a capture. Its streams are no longer captured.
fn finish(captures: &mut Vec<Capture>, id: u64) -> Option<Capture> {
    let index = captures.iter().position(|capture| capture.id == id)?;
    let capture = captures.swap_remove(index);
    for tip in &capture.tips {
        tip.stream.capture.store(0, Ordering::Release);
    }
    COUNT.store(captures.len(), Ordering::Release);
    Some(capture)
}

/// Removes a stream that is about to be destroyed. If it is the origin, its capture ends; otherwise the
/// capture becomes invalid.
pub fn end_stream(stream: &Stream) {
    if !any() {
        return;
    }
    let mut captures = CAPTURES.lock();
    let Some(capture) = find_capture(&mut captures, stream) else { return };
    if capture.origin.id() == stream.id() {
        let id = capture.id;
        if let Some(capture) = finish(&mut captures, id) {
            graph::discard(capture.graph.0);
        }
    } else {
        capture.invalid = true;
        capture.tips.retain(|tip| tip.stream.id() != stream.id());
        stream.capture.store(0, Ordering::Release);
    }
}

/// Ends the captures of a context.
pub fn end_context(context: usize) {
    let mut captures = CAPTURES.lock();
    let ids: Vec<u64> = captures.iter().filter(|c| c.context == context).map(|c| c.id).collect();
    for id in ids {
        if let Some(capture) = finish(&mut captures, id) {
            graph::discard(capture.graph.0);
        }
    }
}

/// Starts to capture a stream.
pub fn begin(stream: &'static Stream, mode: c_uint) -> Result {
    static IDS: AtomicU64 = AtomicU64::new(0);
    if mode > capture_mode::RELAXED {
        return Err(CUresult::INVALID_VALUE);
    }
    if stream.is_legacy() {
        return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut captures = CAPTURES.lock();
    if stream.capture.load(Ordering::Acquire) != 0 {
        return Err(CUresult::ILLEGAL_STATE);
    }
    let id = IDS.fetch_add(1, Ordering::Relaxed) + 1;
    let graph = graph::create(stream.gpu())?;
    captures.push(Capture {
        id,
        mode,
        thread: this_thread(),
        context: stream.context(),
        origin: stream,
        invalid: false,
        graph,
        tips: vec![Tip { stream, after: Vec::new(), newest: None }],
        removed: Vec::new(),
        shown: Default::default(),
    });
    stream.capture.store(id, Ordering::Release);
    COUNT.store(captures.len(), Ordering::Release);
    Ok(())
}

/// Ends a stream's capture and stores its graph. Fails, with the capture invalidated, for a stream other than
/// the origin and for another thread than the capture's mode allows. A capture that is invalid, or has work
/// that did not join the origin, ends without a graph.
pub fn end(stream: &Stream, out: Out<CUgraph>) -> Result {
    let out = out.check()?;
    out.set(CUgraph::NULL)?;
    let mut captures = CAPTURES.lock();
    let capture = find_capture(&mut captures, stream).ok_or(CUresult::ILLEGAL_STATE)?;
    if capture.origin.id() != stream.id() {
        capture.invalid = true;
        return Err(CUresult::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != capture_mode::RELAXED && capture.thread != this_thread() {
        capture.invalid = true;
        return Err(CUresult::STREAM_CAPTURE_WRONG_THREAD);
    }
    let id = capture.id;
    let Some(capture) = finish(&mut captures, id) else { return Err(CUresult::ILLEGAL_STATE) };
    drop(captures);
    let tip = capture.tips.iter().find(|tip| tip.stream.id() == stream.id());
    let joined = tip.is_some_and(|tip| {
        let follows = |end: &u32| tip.after.iter().any(|edge| edge.node == *end);
        capture.graph.1.ends().iter().all(|end| follows(end) || capture.removed.contains(end))
    });
    if capture.invalid || !joined {
        graph::discard(capture.graph.0);
        return Err(if capture.invalid {
            CUresult::STREAM_CAPTURE_INVALIDATED
        } else {
            CUresult::STREAM_CAPTURE_UNJOINED
        });
    }
    out.set(CUgraph(capture.graph.0))
}

/// Returns status and number of the stream's capture. Fails for the legacy stream while a stream that
/// synchronises with it is being captured.
pub fn status(stream: &Stream) -> Result<(u32, u64)> {
    if !any() {
        return Ok((capture_status::NONE, 0));
    }
    let mut captures = CAPTURES.lock();
    if stream.is_legacy() {
        let hit = captures.iter().any(|capture| capture.blocking_in(stream.context()));
        error_if(hit, CUresult::STREAM_CAPTURE_IMPLICIT)?;
    }
    Ok(match find_capture(&mut captures, stream) {
        None => (capture_status::NONE, 0),
        Some(capture) if capture.invalid => (capture_status::INVALIDATED, capture.id),
        Some(capture) => (capture_status::ACTIVE, capture.id),
    })
}

/// The outputs of `cuStreamGetCaptureInfo` beside status and number.
pub struct CaptureInfo {
    /// The graph that the capture makes.
    pub graph: Out<CUgraph>,
    /// Array of the nodes that the stream's next node depends on.
    pub nodes: Out<*const CUgraphNode>,
    /// Array of the data of the edges to these nodes. Without it the query fails if one is programmatic.
    pub edges: Out<*const c_void>,
    /// Number of these nodes.
    pub count: Out<usize>,
}

/// Stores status and id of a stream's capture and, if `info` is given and the capture is active, its graph
/// and the dependencies of the stream's next node (`cuStreamGetCaptureInfo` in all versions).
pub fn info(stream: &Stream, out: Out<c_uint>, id: Out<u64>, info: Option<&CaptureInfo>) -> Result {
    let out = out.check()?;
    let (status, number) = status(stream)?;
    out.set(status)?;
    if status != capture_status::ACTIVE {
        return Ok(());
    }
    id.set_if(number);
    let Some(info) = info else { return Ok(()) };
    let mut captures = CAPTURES.lock();
    let Some(capture) = find_capture(&mut captures, stream) else { return Ok(()) };
    let (after, graph) = (capture.after(stream), capture.graph);
    if info.edges.is_null() && after.iter().any(|edge| edge.programmatic) {
        return Err(CUresult::LOSSY_QUERY);
    }
    info.graph.set_if(CUgraph(graph.0));
    if !info.nodes.is_null() || !info.edges.is_null() || !info.count.is_null() {
        let nodes = after.iter().map(|edge| graph::node_handle(graph.0, graph.1, edge.node));
        capture.shown =
            (nodes.collect::<Result<_>>()?, after.iter().copied().map(Edge::data).collect::<Vec<_>>());
        let (nodes, edges) = &capture.shown;
        info.nodes.set_if(nodes.as_ptr());
        info.edges.set_if(edges.as_ptr().cast());
        info.count.set_if(nodes.len());
    }
    Ok(())
}

/// Returns the edges that a program gives as nodes of a graph and the data of each. Without data all are
/// full.
fn edges_to(
    (handle, graph): (usize, &Graph),
    nodes: In<CUgraphNode>,
    data: In<EdgeData>,
    count: usize,
) -> Result<Vec<Edge>> {
    let data = if data.is_null() { &[] } else { data.slice(count)? };
    let edge = |(at, &node): (usize, &CUgraphNode)| {
        let place = graph::node_place(node).filter(|place| place.0 == handle);
        let (_, index) = place.ok_or(CUresult::INVALID_VALUE)?;
        let edge = Edge::from_data(index, data.get(at).copied().unwrap_or_default())?;
        error_if(edge.programmatic && !graph.is_launch(index), CUresult::INVALID_VALUE)?;
        Ok(edge)
    };
    nodes.slice(count)?.iter().enumerate().map(edge).collect()
}

/// Changes the nodes that the stream's next node depends on: `flags` 0 adds to them, 1 replaces them.
pub fn update(
    stream: &Stream,
    nodes: In<CUgraphNode>,
    data: In<EdgeData>,
    count: usize,
    flags: c_uint,
) -> Result {
    if flags > 1 {
        return Err(CUresult::INVALID_VALUE);
    }
    let mut captures = CAPTURES.lock();
    let capture = find_capture(&mut captures, stream).ok_or(CUresult::ILLEGAL_STATE)?;
    if capture.invalid {
        return Err(CUresult::STREAM_CAPTURE_INVALIDATED);
    }
    let new = edges_to(capture.graph, nodes, data, count)?;
    let has = |node: &u32| new.iter().any(|edge| edge.node == *node);
    let mut removed = std::mem::take(&mut capture.removed);
    removed.retain(|node| !has(node));
    if let Some(tip) = capture.tip(stream) {
        if flags == 1 {
            removed.extend(tip.after.drain(..).map(|edge| edge.node).filter(|node| !has(node)));
        }
        tip.after.extend(&new);
        edge::normalize(&mut tip.after);
    }
    capture.removed = removed;
    Ok(())
}
