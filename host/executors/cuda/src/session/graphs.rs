//! Messages about graphs: definition, update and launch.
//!
//! A graph is instantiated when it is defined. If that fails, or if memory that it uses is gone, it is
//! instantiated again when it is launched. An error at that point is the launch's error, and nothing of the
//! graph runs.

use std::sync::Arc;

use vgpu_device::{Resource, SessionError, Work, graph_nodes, graph_patches};
use vgpu_wire::body::graph::{GraphDefine, GraphLaunch};
use vgpu_wire::{Body, JOIN_ALL};

use super::CudaSession;
use super::graph::{GraphOutline, GuestGraph, mark_of, node};
use crate::gpu::copy::WorkOrigin;
use crate::gpu::graph::{GraphError, GraphInstance, GuestNode};

/// Charge of a node besides its data, in bytes: its size here, and a generous estimate of its size in the
/// driver, which does not tell.
const NODE_BYTES: u64 = 2048;

impl CudaSession {
    /// Carries out `GraphDefine`.
    pub(super) fn define_graph(&mut self, work: &Work<'_>, body: &GraphDefine) -> Result<(), SessionError> {
        self.graphs.check_unused(body.graph)?;
        let wanted = u64::from(body.nodes) * NODE_BYTES + work.payload.len() as u64;
        let bytes = self.host.charges().charge(Resource::HostBytes, wanted)?;
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(body.nodes as usize).map_err(|error| {
            SessionError::OutOfMemory(format!("a graph of {} nodes: {error}", body.nodes))
        })?;
        for record in graph_nodes(work.payload) {
            nodes.push(node(&record, &self.code)?);
        }
        let outline = GraphOutline::from_nodes(&mut nodes);
        let mut graph = GuestGraph { nodes, outline, instance: None, launched: false, bytes };
        match graph.outline.lacks {
            Some(what) => self.refuse_unsupported(work, what),
            // An error in the definition is reported at the launch.
            None => drop(self.instantiate_graph(work.number, &mut graph)?),
        }
        Ok(self.graphs.insert(body.graph, graph)?)
    }

    /// Instantiates a graph that has no instance. The inner error is one of the launch.
    fn instantiate_graph(
        &mut self,
        number: u64,
        graph: &mut GuestGraph,
    ) -> Result<Result<(), GraphError>, SessionError> {
        if graph.instance.is_some() || self.health.dead().is_some() {
            return Ok(Ok(()));
        }
        let shared = Arc::clone(&self.shared);
        let Some(gpu) = self.start(number)? else { return Ok(Ok(())) };
        Ok(GraphInstance::new(gpu, &shared, &graph.nodes).and_then(|instance| {
            graph.instance = Some(instance);
            // Launches of the former instance are ordered before those of this one.
            if graph.launched { Ok(gpu.streams.join(JOIN_ALL, number)?) } else { Ok(()) }
        }))
    }

    /// Reports to the guest why a graph cannot be launched.
    fn report_graph_error(&self, number: u64, done: Result<(), GraphError>) -> Result<(), SessionError> {
        match done {
            Ok(()) => {}
            Err(GraphError::Violation(violation)) => return Err(violation.into()),
            Err(GraphError::Driver(error)) => self.report_failure(number, Err(error)),
            Err(GraphError::Product(error)) => self.report_refusal(number, error.code(), &error),
        }
        Ok(())
    }

    /// Carries out `GraphUpdate`.
    pub(super) fn update_graph(&mut self, work: &Work<'_>, number: u32) -> Result<(), SessionError> {
        let graph = self.graphs.get_mut(number)?;
        // The new nodes are charged before they replace the old ones, whose charge is returned afterwards.
        let before = graph.bytes.amount();
        graph.bytes.grow(work.payload.len() as u64)?;
        let (mut more, mut less) = (0, 0);
        let mut changed = Vec::new();
        for record in graph_patches(work.payload) {
            let place = &mut graph.nodes[record.node as usize];
            let mut new = node(&record, &self.code)?;
            std::mem::swap(&mut new.after, &mut place.after);
            more += new.tail.len() as u64;
            less += place.tail.len() as u64;
            changed.push((record.node, std::mem::replace(place, new)));
        }
        graph.bytes.shrink_to((before + more).saturating_sub(less));
        if changed.iter().any(|(_, old)| old.kernel.is_none()) {
            graph.outline = GraphOutline::from_nodes(&mut graph.nodes);
        }
        if let Some(instance) = graph.instance.take() {
            self.change(work.number, number, instance, &changed)?;
        }
        Ok(())
    }

    /// Updates the instance of a graph whose nodes have changed.
    fn change(
        &mut self,
        message: u64,
        number: u32,
        mut instance: GraphInstance,
        changed: &[(u32, GuestNode)],
    ) -> Result<(), SessionError> {
        let (Ok(graph), Some(gpu)) = (self.graphs.get_mut(number), &mut self.gpu) else { return Ok(()) };
        match instance.change(gpu, &self.shared, message, &graph.nodes, changed) {
            Ok(()) => {
                graph.instance = Some(instance);
                Ok(())
            }
            Err(error @ GraphError::Violation(_)) => self.report_graph_error(message, Err(error)),
            // The next launch instantiates the graph again, and reports the error.
            Err(_) => {
                let instance = gpu.drop_aside(instance);
                let kept = gpu.drop_after_all(message, instance);
                self.report_failure(message, kept);
                Ok(())
            }
        }
    }

    /// Carries out `GraphLaunch`.
    pub(super) fn launch_graph(&mut self, work: &Work<'_>, body: GraphLaunch) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        // Removed for the duration, because its nodes are read while the session is changed.
        let mut graph = self.graphs.remove(body.graph)?;
        let launched = self.launch_nodes(work, &mut graph, stream);
        self.graphs.insert(body.graph, graph)?;
        launched
    }

    fn launch_nodes(
        &mut self,
        work: &Work<'_>,
        graph: &mut GuestGraph,
        stream: u32,
    ) -> Result<(), SessionError> {
        let number = work.number;
        // The session may have retired window memory and destroyed events since.
        for &node in &graph.outline.spans {
            if let Some(span) = graph.nodes[node as usize].span() {
                self.host.piece(span)?;
            }
        }
        let records = graph.outline.ends.iter().filter_map(|&node| match &graph.nodes[node as usize].body {
            Body::EventRecord(body) => Some(body.event),
            _ => None,
        });
        for event in records.chain(graph.outline.waits.iter().copied()) {
            self.handles.events.get(event)?;
        }
        for &event in &graph.outline.waits {
            self.wait(number, stream, event)?;
        }
        if let Some(what) = graph.outline.lacks {
            self.refuse_unsupported(work, what);
        } else if self.health.dead().is_none() {
            let done = self.launch_instance(WorkOrigin { stream, message: number }, graph)?;
            self.report_graph_error(number, done)?;
        }
        // Done even after an error, so that no thread waits in vain.
        for &node in &graph.outline.ends {
            match &graph.nodes[node as usize].body {
                Body::EventRecord(body) => self.record(number, body.event, stream, body.mark)?,
                body => {
                    if let Some(mark) = mark_of(body) {
                        self.mark(stream, number, mark);
                    }
                }
            }
        }
        Ok(())
    }

    fn launch_instance(
        &mut self,
        at: WorkOrigin,
        graph: &mut GuestGraph,
    ) -> Result<Result<(), GraphError>, SessionError> {
        let ready = self.instantiate_graph(at.message, graph)?;
        let (Some(gpu), Some(instance)) = (&mut self.gpu, &mut graph.instance) else { return Ok(ready) };
        graph.launched = true;
        Ok(ready.and_then(|()| instance.launch(gpu, &self.shared, &graph.nodes, at)))
    }

    /// Carries out `GraphDestroy`. Launches in progress keep what they use.
    pub(super) fn destroy_graph(&mut self, message: u64, number: u32) -> Result<(), SessionError> {
        let graph = self.graphs.remove(number)?;
        if let Some(gpu) = &mut self.gpu {
            // It may own memory, modules and registrations.
            let graph = gpu.drop_aside(graph);
            let done = gpu.drop_after_all(message, graph);
            self.report_failure(message, done);
        }
        Ok(())
    }
}
