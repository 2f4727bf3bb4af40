//! Graphs: instantiated ones, node by node, as templates of tasks.

use std::sync::Arc;

use vgpu_device::{Violation, Work, graph_nodes, graph_patches};
use vgpu_wire::Body;

use crate::function::Function;
use crate::modules::Modules;
use crate::order::Id;

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
    /// The end of the newest launch, which the next one comes after.
    pub(crate) newest: Option<Id>,
}

impl Graph {
    /// Reads the records of a `GraphDefine`.
    pub(crate) fn define(work: &Work<'_>, modules: &Modules) -> Result<Self, Violation> {
        let (mut nodes, mut dependencies) = (Vec::new(), Vec::new());
        for record in graph_nodes(work.payload) {
            nodes.push(Node::new(&record.message.body, record.message.tail, modules)?);
            dependencies.push(record.dependencies().collect());
        }
        Ok(Self { nodes, dependencies, newest: None })
    }

    /// Makes the changes of a `GraphUpdate`. All kinds are equal, so none is refused.
    pub(crate) fn update(&mut self, work: &Work<'_>, modules: &Modules) -> Result<(), Violation> {
        for record in graph_patches(work.payload) {
            self.nodes[record.node as usize] = Node::new(&record.message.body, record.message.tail, modules)?;
        }
        Ok(())
    }
}
