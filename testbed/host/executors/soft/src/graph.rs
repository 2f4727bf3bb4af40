//! Graphs: instantiated ones, node by node, as templates of tasks; and their launches.

use std::sync::Arc;

use vgpu_device::{Charge, Resource, SessionError, SessionHost, Violation, Work, graph_nodes, graph_patches};
use vgpu_wire::Body;
use vgpu_wire::body::graph::GraphLaunch;

use crate::function::Function;
use crate::modules::Modules;
use crate::order::{Id, Stream};
use crate::session::{Made, SoftSession};

/// What a node does. Spans are resolved at each launch: the session may have given the window memory back meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) body: Body,
    /// Data of an inline copy, or a kernel's parameters.
    pub(crate) tail: Arc<[u8]>,
    /// Of a launch.
    pub(crate) function: Option<Arc<Function>>,
}

impl Node {
    fn new(body: &Body, tail: &[u8], modules: &Modules) -> Result<Self, Violation> {
        let function = match body {
            Body::Launch(launch) => Some(Arc::clone(modules.get(launch.function)?)),
            _ => None,
        };
        Ok(Self { body: *body, tail: tail.into(), function })
    }
}

/// An instantiated graph.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// Earlier nodes that each comes after.
    pub(crate) dependencies: Vec<Box<[u32]>>,
    /// What its nodes take.
    bytes: Charge,
    /// The end of the newest launch, which the next one comes after.
    pub(crate) newest: Option<Id>,
}

impl Graph {
    /// Reads the records of a `GraphDefine`.
    pub(crate) fn define(
        work: &Work<'_>,
        modules: &Modules,
        host: &SessionHost,
        count: u32,
    ) -> Result<Self, SessionError> {
        // All that nodes hold beside themselves is in the payload.
        let each = (size_of::<Node>() + size_of::<Box<[u32]>>()) as u64;
        let wanted = u64::from(count) * each + work.payload.len() as u64;
        let bytes = host.charges().take(Resource::HostBytes, wanted)?;
        let (mut nodes, mut dependencies) = (Vec::<Node>::new(), Vec::<Box<[u32]>>::new());
        let room =
            nodes.try_reserve_exact(count as usize).and(dependencies.try_reserve_exact(count as usize));
        room.map_err(|error| SessionError::OutOfMemory(format!("a graph of {count} nodes: {error}")))?;
        for record in graph_nodes(work.payload) {
            nodes.push(Node::new(&record.message.body, record.message.tail, modules)?);
            dependencies.push(record.dependencies().collect());
        }
        Ok(Self { nodes, dependencies, bytes, newest: None })
    }

    /// Makes the changes of a `GraphUpdate`. All kinds are equal, so none is refused.
    pub(crate) fn update(&mut self, work: &Work<'_>, modules: &Modules) -> Result<(), SessionError> {
        // Charged before nodes are changed; what those before took is returned.
        let before = self.bytes.amount();
        self.bytes.grow(work.payload.len() as u64)?;
        let (mut more, mut less) = (0, 0);
        for record in graph_patches(work.payload) {
            let node = Node::new(&record.message.body, record.message.tail, modules)?;
            more += node.tail.len() as u64;
            less += self.nodes[record.node as usize].tail.len() as u64;
            self.nodes[record.node as usize] = node;
        }
        self.bytes.shrink_to((before + more).saturating_sub(less));
        Ok(())
    }
}

impl SoftSession {
    fn launch_graph(&mut self, work: &Work<'_>, body: GraphLaunch) -> Result<(), SessionError> {
        let stream = self.stream(body.stream)?;
        // Taken out, for its nodes are looked at while the session is changed.
        let mut graph = self.graphs.remove(&body.graph).ok_or(Violation::unknown("graph", body.graph))?;
        // Its nodes, its start and its end.
        let pieces = graph.nodes.len() + 2;
        if !self.queue.is_direct() {
            self.make_room(pieces, work.number);
        }
        let launched = if self.is_direct(pieces) {
            self.launch_graph_now(work, &graph.nodes)
        } else {
            self.queue_graph(work, &mut graph, stream)
        };
        self.graphs.insert(body.graph, graph);
        launched
    }

    /// Nodes depend on earlier ones only: their own order is one that they allow.
    fn launch_graph_now(&mut self, work: &Work<'_>, nodes: &[Node]) -> Result<(), SessionError> {
        for node in nodes {
            if self.runner.stopping() {
                return Ok(());
            }
            if let Body::EventRecord(body) = &node.body {
                self.known_event(body.event)?;
            }
            match self.make(&node.body, &node.tail, node.function.as_ref())? {
                Made::Task(task) => self.runner.run(task, work.number),
                Made::Refused(code) => self.refuse(work, code),
                Made::Nothing => {}
            }
        }
        Ok(())
    }

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
                self.known_event(event)?;
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

    /// A message of this chapter.
    pub(crate) fn graph(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::GraphDefine(body) => {
                let graph = Graph::define(work, &self.modules, &self.host, body.nodes)?;
                if self.graphs.insert(body.graph, graph).is_some() {
                    return Err(Violation::in_use("graph", body.graph).into());
                }
            }
            Body::GraphUpdate(body) => {
                let graph =
                    self.graphs.get_mut(&body.graph).ok_or(Violation::unknown("graph", body.graph))?;
                graph.update(work, &self.modules)?;
            }
            Body::GraphLaunch(body) => self.launch_graph(work, *body)?,
            // Launches that are queued have all that they need.
            Body::GraphDestroy(body) => {
                self.graphs.remove(&body.graph).ok_or(Violation::unknown("graph", body.graph))?;
            }
            _ => {}
        }
        Ok(())
    }
}
