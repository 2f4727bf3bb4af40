//! Graphs of the guest as graphs of the driver: captured from a stream that gets no other work, instantiated
//! once, and updated in place where the driver can.
//!
//! The nodes stay as the guest sent them ([`GuestNode`]). What they name is looked up when the graph is
//! captured ([`operands`]): kernels, ranges of device memory, registered guest memory. A [`GraphInstance`]
//! holds it, so that it lives until no launch uses it. Whoever takes an instance from a session drops it
//! after all earlier work.
//!
//! Events and marks are not nodes of the driver's graph. A launch waits for events before it starts, and
//! records events and stores marks after all of the graph. That is later than necessary, but never too early.

mod node;
mod operands;
mod stand_in;

use std::sync::Arc;

use vgpu_device::{GraphEdge, SessionHost, Violation};
use vgpu_wire::{Body, JOIN_ALL};

use crate::driver::error::DriverError;
use crate::driver::graph::{Capture, DriverGraph, GraphExec};
use crate::driver::range::DeviceRange;
use crate::gpu::copy::WorkOrigin;
use crate::gpu::fence::Fence;
use crate::gpu::gpu_session::GpuSession;
use crate::gpu::product::{BlasSession, BlasWorkspace, ProductTarget};
use crate::shared_gpu::SharedGpu;
use operands::NodeOperands;
use stand_in::BounceCopy;

pub(crate) use node::{GraphError, GuestNode};

/// A graph that can be launched, with the objects that it uses.
#[derive(Debug)]
pub(crate) struct GraphInstance {
    /// Instantiated graph, which is dropped before the values that it uses.
    exec: GraphExec,
    /// Operands of the nodes, by node number.
    steps: Vec<NodeOperands>,
    /// Workspace of the products whose messages name none.
    workspace: Option<BlasWorkspace>,
    /// Whether the graph has products.
    has_products: bool,
    /// Value of [`DeviceMemory::changes`] for which all ranges were found to be the session's.
    checked: u64,
    /// Whether memory of the graph stands in for guest memory that the driver does not register.
    stands_in: bool,
    launched: bool,
    /// End of the newest launch, if memory of the graph stands in for guest memory. The next launch must not
    /// use that memory earlier.
    newest: Option<Arc<Fence>>,
}

/// Captures nodes with their operands. Products that share a workspace depend on each other. Without
/// `programmatic` all edges are full.
fn capture(
    gpu: &mut GpuSession,
    nodes: &[GuestNode],
    steps: &[NodeOperands],
    workspace: Option<DeviceRange>,
    programmatic: bool,
) -> Result<DriverGraph, GraphError> {
    let host = gpu.host().clone();
    let (stream, products, memory) = gpu.capturing()?;
    let mut capture = Capture::begin(stream)?;
    let mut product = None;
    for (number, (node, step)) in (0..).zip(nodes.iter().zip(steps)) {
        if host.stopping() {
            return Err(operands::STOPPED.into());
        }
        let after = node.edges(programmatic);
        let full = |node| GraphEdge { node, programmatic: false };
        match step {
            NodeOperands::Point => capture.point(after.chain(node.awaits.map(full)))?,
            NodeOperands::Product => {
                let shares = node.shares_workspace();
                let other = product.filter(|_| shares).map(full);
                capture.work(after.chain(other), |stream| {
                    products.issue(&ProductTarget { stream, memory, workspace }, &node.body)
                })?;
                product = if shares { Some(number) } else { product };
            }
            step => capture.work(after, |stream| step.issue(node, stream))?,
        }
    }
    Ok(capture.end()?)
}

/// Captures and instantiates nodes with their operands. If the driver takes the graph only without its
/// programmatic edges, all edges of this and of later graphs are full.
fn instantiate(
    gpu: &mut GpuSession,
    shared: &SharedGpu,
    nodes: &[GuestNode],
    steps: &[NodeOperands],
    workspace: Option<DeviceRange>,
) -> Result<GraphExec, GraphError> {
    let mut make =
        |programmatic| Ok(GraphExec::instantiate(capture(gpu, nodes, steps, workspace, programmatic)?)?);
    let programmatic = shared.has_edges() && nodes.iter().any(GuestNode::is_early);
    match make(programmatic) {
        Err(GraphError::Driver(error)) if programmatic && !error.loses_context() => {
            let exec = make(false)?;
            shared.give_up_edges(&error);
            Ok(exec)
        }
        made => made,
    }
}

impl GraphInstance {
    /// Captures and instantiates a graph.
    pub(crate) fn new(
        gpu: &mut GpuSession,
        shared: &SharedGpu,
        nodes: &[GuestNode],
    ) -> Result<Self, GraphError> {
        let has_products = nodes.iter().any(GuestNode::is_product);
        if has_products {
            gpu.products.prepare(shared, &gpu.context)?;
        }
        let shares = nodes.iter().any(GuestNode::shares_workspace);
        let workspace = if shares { BlasSession::workspace(shared, &gpu.memory) } else { None };
        let checked = gpu.memory.changes();
        let all: Vec<u32> = (0..nodes.len() as u32).collect();
        let steps = operands::find(gpu, nodes, &all)?;
        let stands_in = operands::stand_in(nodes, &steps)?;
        let exec = instantiate(gpu, shared, nodes, &steps, workspace.as_ref().map(BlasWorkspace::range))?;
        shared.count_instantiation();
        let (launched, newest) = (false, None);
        Ok(Self { exec, steps, workspace, has_products, checked, stands_in, launched, newest })
    }

    /// Updates the instance. `changed` has the numbers of the changed nodes, and their former values. The
    /// instance must be dropped if this fails.
    pub(crate) fn change(
        &mut self,
        gpu: &mut GpuSession,
        shared: &SharedGpu,
        message: u64,
        nodes: &[GuestNode],
        changed: &[(u32, GuestNode)],
    ) -> Result<(), GraphError> {
        let mut numbers: Vec<u32> = changed.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.share_workspace(gpu, shared, nodes);
        let steps = operands::find(gpu, nodes, &numbers)?;
        let mut replaced = Vec::new();
        for (&number, step) in numbers.iter().zip(steps) {
            let old = std::mem::replace(&mut self.steps[number as usize], step);
            if !old.uses_the_same(&self.steps[number as usize]) {
                replaced.push(old);
            }
        }
        if !replaced.is_empty() {
            // Earlier launches may still use it.
            let replaced = gpu.drop_aside(replaced);
            gpu.drop_after_all(message, replaced)?;
        }
        if numbers.iter().any(|&number| nodes[number as usize].span().is_some()) {
            self.stands_in = operands::stand_in(nodes, &self.steps)?;
        }
        let in_place = changed.iter().all(|(number, old)| old.is_set_in_place(&nodes[*number as usize]));
        if !in_place {
            return self.capture_anew(gpu, shared, message, nodes);
        }
        match numbers.iter().try_for_each(|&number| self.set_kernel(number, &nodes[number as usize])) {
            Ok(()) => Ok(()),
            Err(error) if error.loses_context() => Err(error.into()),
            Err(_) => self.capture_anew(gpu, shared, message, nodes),
        }
    }

    /// Allocates a workspace if a changed product needs one.
    fn share_workspace(&mut self, gpu: &GpuSession, shared: &SharedGpu, nodes: &[GuestNode]) {
        if self.has_products && self.workspace.is_none() && nodes.iter().any(GuestNode::shares_workspace) {
            self.workspace = BlasSession::workspace(shared, &gpu.memory);
        }
    }

    /// Captures the graph again and makes later launches use it: by an update of the instance, or by a new
    /// instance, whose launches are ordered after those of the old one.
    fn capture_anew(
        &mut self,
        gpu: &mut GpuSession,
        shared: &SharedGpu,
        message: u64,
        nodes: &[GuestNode],
    ) -> Result<(), GraphError> {
        let checked = gpu.memory.changes();
        let workspace = self.workspace.as_ref().map(BlasWorkspace::range);
        let graph = capture(gpu, nodes, &self.steps, workspace, shared.has_edges())?;
        match self.exec.update(&graph) {
            Ok(()) => {}
            Err(error) if error.loses_context() => return Err(error.into()),
            // Whatever the reason, the driver may still instantiate the new graph.
            Err(_) => {
                let former = std::mem::replace(&mut self.exec, GraphExec::instantiate(graph)?);
                shared.count_instantiation();
                if std::mem::replace(&mut self.launched, false) {
                    gpu.streams.join(JOIN_ALL, message)?;
                }
                let former = gpu.drop_aside(former);
                gpu.drop_after_all(message, former)?;
            }
        }
        self.checked = checked;
        Ok(())
    }

    fn set_kernel(&self, number: u32, node: &GuestNode) -> Result<(), DriverError> {
        match (&node.body, &node.kernel) {
            (Body::Launch(body), Some(kernel)) => {
                self.exec.set_kernel(number, &kernel.function, &node::shape(body), &node.tail)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the instance uses guest memory that is mapped at one of these addresses.
    pub(crate) fn uses(&self, addresses: &[usize]) -> bool {
        self.steps.iter().any(|step| step.grant().is_some_and(|grant| addresses.contains(&grant)))
    }

    /// Checks that the session still owns everything that the graph names, if memory was taken from it since
    /// the last check.
    fn check(
        &mut self,
        gpu: &mut GpuSession,
        shared: &SharedGpu,
        message: u64,
        nodes: &[GuestNode],
    ) -> Result<(), GraphError> {
        let changes = gpu.memory.changes();
        if changes == self.checked {
            return Ok(());
        }
        for node in nodes {
            operands::check_ranges(&gpu.memory, node)?;
        }
        if self.has_products {
            // The operands of a product are checked when it is added to a stream.
            return self.capture_anew(gpu, shared, message, nodes);
        }
        self.checked = changes;
        Ok(())
    }

    /// Launches the graph in a stream.
    pub(crate) fn launch(
        &mut self,
        gpu: &mut GpuSession,
        shared: &SharedGpu,
        nodes: &[GuestNode],
        at: WorkOrigin,
    ) -> Result<(), GraphError> {
        self.check(gpu, shared, at.message, nodes)?;
        if let Some(newest) = self.newest.take() {
            gpu.streams.wait(at.stream, &newest)?;
        }
        let relays = if self.stands_in { self.relays(gpu.host(), nodes)? } else { Vec::new() };
        for relay in relays.iter().filter(|relay| relay.upload) {
            relay.enqueue(gpu, at)?;
        }
        self.launched = true;
        gpu.streams.begin_work(at.stream)?.enqueue_graph(&self.exec)?;
        for relay in relays.iter().filter(|relay| !relay.upload) {
            relay.enqueue(gpu, at)?;
        }
        if !relays.is_empty() {
            self.newest = gpu.streams.fence(at.stream, at.message)?;
        }
        Ok(())
    }

    /// Copies between guest memory and the memory that stands in for it.
    fn relays(&self, host: &SessionHost, nodes: &[GuestNode]) -> Result<Vec<BounceCopy>, Violation> {
        let pairs = nodes.iter().zip(&self.steps);
        pairs.filter_map(|(node, step)| step.relay(host, node).transpose()).collect()
    }
}
