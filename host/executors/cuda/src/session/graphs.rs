//! Messages about graphs: how they are defined, changed and launched.
//!
//! A graph is put together when it is defined. If that fails, or if memory that it uses has gone since, it is
//! put together anew when it is launched, and what is wrong then is the launch's error: nothing of the graph
//! runs.

use std::sync::Arc;

use vgpu_device::{Resource, SessionError, Work, graph_nodes, graph_patches};
use vgpu_wire::body::graph::{GraphDefine, GraphLaunch};
use vgpu_wire::{Body, JOIN_ALL};

use super::CudaSession;
use super::graph::{Graph, Outline, mark_of, node};
use crate::gpu::copy::At;
use crate::gpu::graph::{GraphError, Instance, Node};

/// Bytes that a node is charged besides its data: what it takes here, and a generous guess at what it takes
/// in the driver, which does not say.
const NODE_BYTES: u64 = 2048;

impl CudaSession {
    /// `GraphDefine`
    pub(super) fn define_graph(&mut self, work: &Work<'_>, body: &GraphDefine) -> Result<(), SessionError> {
        self.graphs.check_unused(body.graph)?;
        let wanted = u64::from(body.nodes) * NODE_BYTES + work.payload.len() as u64;
        let bytes = self.host.charges().take(Resource::HostBytes, wanted)?;
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(body.nodes as usize).map_err(|error| {
            SessionError::OutOfMemory(format!("a graph of {} nodes: {error}", body.nodes))
        })?;
        for record in graph_nodes(work.payload) {
            nodes.push(node(&record, &self.code)?);
        }
        let outline = Outline::of(&mut nodes);
        let mut graph = Graph { nodes, outline, instance: None, launched: false, bytes };
        match graph.outline.lacks {
            Some(what) => self.lack(work, what),
            // What is wrong with it is its launch's error.
            None => drop(self.put_together(work.number, &mut graph)?),
        }
        Ok(self.graphs.insert(body.graph, graph)?)
    }

    /// Makes the instance of a graph that has none. The inner error is its launch's.
    fn put_together(
        &mut self,
        number: u64,
        graph: &mut Graph,
    ) -> Result<Result<(), GraphError>, SessionError> {
        if graph.instance.is_some() || self.health.dead().is_some() {
            return Ok(Ok(()));
        }
        let shared = Arc::clone(&self.shared);
        let Some(part) = self.start(number)? else { return Ok(Ok(())) };
        Ok(Instance::new(part, &shared, &graph.nodes).and_then(|instance| {
            graph.instance = Some(instance);
            // Launches of the former instance come before those of this one.
            if graph.launched { Ok(part.streams.join(JOIN_ALL, number)?) } else { Ok(()) }
        }))
    }

    /// Tells the guest of a graph that cannot be launched, if so.
    fn told_of_graph(&self, number: u64, done: Result<(), GraphError>) -> Result<(), SessionError> {
        match done {
            Ok(()) => {}
            Err(GraphError::Violation(violation)) => return Err(violation.into()),
            Err(GraphError::Driver(error)) => self.told(number, Err(error)),
            Err(GraphError::Product(error)) => match &self.part {
                Some(part) => part.refused(number, error.code(), &error),
                None => self.health.refused(number, error.code(), &error),
            },
        }
        Ok(())
    }

    /// `GraphUpdate`
    pub(super) fn update_graph(&mut self, work: &Work<'_>, number: u32) -> Result<(), SessionError> {
        let graph = self.graphs.get_mut(number)?;
        // Nodes are charged before they are changed; what the old ones took is returned afterwards.
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
            graph.outline = Outline::of(&mut graph.nodes);
        }
        if let Some(instance) = graph.instance.take() {
            self.change(work.number, number, instance, &changed)?;
        }
        Ok(())
    }

    /// Changes the instance of a graph as its nodes have been.
    fn change(
        &mut self,
        message: u64,
        number: u32,
        mut instance: Instance,
        changed: &[(u32, Node)],
    ) -> Result<(), SessionError> {
        let (Ok(graph), Some(part)) = (self.graphs.get_mut(number), &mut self.part) else { return Ok(()) };
        match instance.change(part, &self.shared, message, &graph.nodes, changed) {
            Ok(()) => {
                graph.instance = Some(instance);
                Ok(())
            }
            Err(error @ GraphError::Violation(_)) => self.told_of_graph(message, Err(error)),
            // The next launch puts the graph together anew, and says what is wrong.
            Err(_) => {
                let kept = part.after_all(message, instance);
                self.told(message, kept);
                Ok(())
            }
        }
    }

    /// `GraphLaunch`
    pub(super) fn launch_graph(&mut self, work: &Work<'_>, body: GraphLaunch) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(body.stream)?;
        // Taken out, because its nodes are read while the session is changed.
        let mut graph = self.graphs.remove(body.graph)?;
        let launched = self.launch_nodes(work, &mut graph, stream);
        self.graphs.insert(body.graph, graph)?;
        launched
    }

    fn launch_nodes(&mut self, work: &Work<'_>, graph: &mut Graph, stream: u32) -> Result<(), SessionError> {
        let number = work.number;
        // Window memory may have been given back since, and events destroyed.
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
            self.lack(work, what);
        } else if self.health.dead().is_none() {
            let done = self.launch_instance(At { stream, message: number }, graph)?;
            self.told_of_graph(number, done)?;
        }
        // In any case, so that nobody waits in vain.
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

    fn launch_instance(&mut self, at: At, graph: &mut Graph) -> Result<Result<(), GraphError>, SessionError> {
        let ready = self.put_together(at.message, graph)?;
        let (Some(part), Some(instance)) = (&mut self.part, &mut graph.instance) else { return Ok(ready) };
        graph.launched = true;
        Ok(ready.and_then(|()| instance.launch(part, &self.shared, &graph.nodes, at)))
    }

    /// `GraphDestroy`: launches that are under way have everything that they need.
    pub(super) fn destroy_graph(&mut self, message: u64, number: u32) -> Result<(), SessionError> {
        let graph = self.graphs.remove(number)?;
        if let Some(part) = &mut self.part {
            let done = part.after_all(message, graph);
            self.told(message, done);
        }
        Ok(())
    }
}
