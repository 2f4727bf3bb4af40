//! Messages that define, change and launch graphs.

use vgpu_device::{SessionError, Work};
use vgpu_wire::Body;
use vgpu_wire::body::graph::GraphLaunch;

use super::{Made, SoftSession};
use crate::graph::{Graph, Node};
use crate::queue::order::Stream;

impl SoftSession {
    /// Launches a graph: carries out its nodes at once, or queues them if other work is queued.
    fn launch_graph(&mut self, work: &Work<'_>, body: GraphLaunch) -> Result<(), SessionError> {
        let stream = self.stream(body.stream)?;
        // Removed for the duration, because its nodes are read while the session is changed.
        let mut graph = self.graphs.remove(body.graph)?;
        // One task for each node, one for the start and one for the end.
        let pieces = graph.nodes.len() + 2;
        if !self.queue.is_direct() {
            self.make_room(pieces, work.number);
        }
        let launched = if self.is_direct(pieces) {
            self.launch_graph_now(work, &graph.nodes)
        } else {
            self.queue_graph(work, &mut graph, stream)
        };
        self.graphs.insert(body.graph, graph)?;
        launched
    }

    /// Runs the nodes in their own order, which their dependencies allow: nodes depend on earlier ones only.
    fn launch_graph_now(&mut self, work: &Work<'_>, nodes: &[Node]) -> Result<(), SessionError> {
        for node in nodes {
            if self.runner.stopping() {
                return Ok(());
            }
            if let Body::EventRecord(body) = &node.body {
                self.handles.events.get(body.event)?;
            }
            match self.make(&node.body, &node.tail, node.function.as_ref())? {
                Made::Task(task) => self.runner.execute(task, work.number),
                Made::Refused(code) => self.refuse(work, code),
                Made::Nothing => {}
            }
        }
        Ok(())
    }

    /// Queues the nodes as a group of the stream's work, ordered by their dependencies and after the graph's
    /// newest launch.
    fn queue_graph(
        &mut self,
        work: &Work<'_>,
        graph: &mut Graph,
        stream: Stream,
    ) -> Result<(), SessionError> {
        let mut pieces = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let (mut record, mut wait) = (None, None);
            match &node.body {
                Body::EventRecord(body) => record = Some(body.event),
                Body::StreamWait(body) => wait = Some(body.event),
                _ => {}
            }
            for event in [record, wait].into_iter().flatten() {
                self.handles.events.get(event)?;
            }
            let job = match self.make(&node.body, &node.tail, node.function.as_ref())? {
                Made::Task(task) => {
                    let noticed = task.is_noticed();
                    self.job(task, work.number).map(|job| (job, noticed))
                }
                Made::Refused(code) => {
                    self.refuse(work, code);
                    None
                }
                Made::Nothing => None,
            };
            pieces.push((job, record, wait));
        }
        let Graph { dependencies, newest, .. } = graph;
        *newest = Some(self.queue.add(|order| {
            let mut group = order.group(stream, *newest);
            for ((job, record, wait), after) in pieces.into_iter().zip(dependencies.iter()) {
                let (job, noticed) = job.map_or((None, false), |(job, noticed)| (Some(job), noticed));
                let id = order.piece(&mut group, after.iter().copied(), wait, job, noticed);
                if let Some(event) = record {
                    order.set_record(event, id);
                }
            }
            order.end_group(group)
        })?);
        Ok(())
    }

    /// Handles `GraphDefine`, `GraphUpdate`, `GraphLaunch` and `GraphDestroy`.
    pub(super) fn graph(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::GraphDefine(body) => {
                let graph = Graph::define(work, &self.modules, &self.host, body.nodes)?;
                self.graphs.insert(body.graph, graph)?;
            }
            Body::GraphUpdate(body) => {
                self.graphs.get_mut(body.graph)?.update(work, &self.modules)?;
            }
            Body::GraphLaunch(body) => self.launch_graph(work, *body)?,
            // Queued launches hold everything that they need.
            Body::GraphDestroy(body) => {
                self.graphs.remove(body.graph)?;
            }
            _ => {}
        }
        Ok(())
    }
}
