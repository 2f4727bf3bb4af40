//! Graphs of the guest's as graphs of the driver's: captured from a stream that is given no other work,
//! instantiated once, and changed in place where the driver can.
//!
//! The guest's nodes are kept as it sent them ([`Node`]). What they name is looked up when the graph is
//! captured ([`step`]): kernels, ranges of device memory, registered guest memory. An [`Instance`] holds what
//! was looked up, so that all of it lives until no launch uses it; whoever takes an instance from a session
//! drops it when all earlier work is complete.
//!
//! Events and marks are no nodes of the driver's graph. A launch waits for events before it starts, and
//! records events and stores marks when all of it is complete, which is later than it must be and never too
//! early.

mod node;
mod relay;
mod step;

use std::sync::Arc;

use vgpu_device::{SessionHost, Violation};
use vgpu_wire::{Body, JOIN_ALL};

use crate::driver::error::DriverError;
use crate::driver::graph::{Capture, Exec, Graph};
use crate::driver::range::DeviceRange;
use crate::gpu::copy::At;
use crate::gpu::fence::Fence;
use crate::gpu::part::Part;
use crate::gpu::product::{Products, Target, Workspace};
use crate::shared::Shared;
use relay::Relay;
use step::Step;

pub(crate) use node::{GraphError, Node};

/// A graph that can be launched, with what it uses.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Before what it uses, so that it is dropped first.
    exec: Exec,
    /// By number of the node.
    steps: Vec<Step>,
    /// What products work in that name no memory for it.
    workspace: Option<Workspace>,
    /// Whether there are products.
    has_products: bool,
    /// The state of the session's memory in which all ranges were the session's.
    checked: u64,
    /// Whether memory of the graph's own stands in for guest memory that the driver does not register.
    stands_in: bool,
    launched: bool,
    /// The end of the newest launch, if memory of the graph's own stands in for the guest's: the next launch
    /// must not touch it before.
    newest: Option<Arc<Fence>>,
}

/// Captures nodes, as their steps have it. Products that share a workspace come one after the other.
fn capture(
    part: &mut Part,
    nodes: &[Node],
    steps: &[Step],
    workspace: Option<DeviceRange>,
) -> Result<Graph, GraphError> {
    let host = part.host().clone();
    let (stream, products, memory) = part.capturing()?;
    let mut capture = Capture::begin(stream)?;
    let mut product = None;
    for (number, (node, step)) in (0..).zip(nodes.iter().zip(steps)) {
        if host.stopping() {
            return Err(step::STOPPED.into());
        }
        let after = node.after.iter().copied();
        match step {
            Step::Point => capture.point(after.chain(node.awaits))?,
            Step::Product => {
                let shares = node.shares_workspace();
                capture.work(after.chain(product.filter(|_| shares)), |stream| {
                    node.product(products, &Target { stream, memory, workspace })
                })?;
                product = if shares { Some(number) } else { product };
            }
            step => capture.work(after, |stream| step.issue(node, stream))?,
        }
    }
    Ok(capture.end()?)
}

impl Instance {
    /// Captures and instantiates a graph.
    pub(crate) fn new(part: &mut Part, shared: &Shared, nodes: &[Node]) -> Result<Self, GraphError> {
        let has_products = nodes.iter().any(Node::is_product);
        if has_products {
            part.products.prepare(shared, &part.context)?;
        }
        let shares = nodes.iter().any(Node::shares_workspace);
        let workspace = if shares { Products::workspace(shared, &part.memory) } else { None };
        let checked = part.memory.changes();
        let all: Vec<u32> = (0..nodes.len() as u32).collect();
        let steps = step::find(part, nodes, &all)?;
        let stands_in = step::stand_in(nodes, &steps)?;
        let graph = capture(part, nodes, &steps, workspace.as_ref().map(Workspace::range))?;
        let exec = Exec::instantiate(graph)?;
        shared.count_instantiation();
        let (launched, newest) = (false, None);
        Ok(Self { exec, steps, workspace, has_products, checked, stands_in, launched, newest })
    }

    /// Makes changes: `changed` are the numbers of the nodes that are others now, with what they were. The
    /// instance is of no use any more if it fails.
    pub(crate) fn change(
        &mut self,
        part: &mut Part,
        shared: &Shared,
        message: u64,
        nodes: &[Node],
        changed: &[(u32, Node)],
    ) -> Result<(), GraphError> {
        let mut numbers: Vec<u32> = changed.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.share_workspace(part, shared, nodes);
        let steps = step::find(part, nodes, &numbers)?;
        let mut replaced = Vec::new();
        for (&number, step) in numbers.iter().zip(steps) {
            let old = std::mem::replace(&mut self.steps[number as usize], step);
            if !old.uses_the_same(&self.steps[number as usize]) {
                replaced.push(old);
            }
        }
        if !replaced.is_empty() {
            // Launches before the change may use it.
            part.after_all(message, replaced)?;
        }
        if numbers.iter().any(|&number| nodes[number as usize].span().is_some()) {
            self.stands_in = step::stand_in(nodes, &self.steps)?;
        }
        let in_place = changed.iter().all(|(number, old)| old.is_set_in_place(&nodes[*number as usize]));
        if !in_place {
            return self.capture_anew(part, shared, message, nodes);
        }
        match numbers.iter().try_for_each(|&number| self.set_kernel(number, &nodes[number as usize])) {
            Ok(()) => Ok(()),
            Err(error) if error.loses_context() => Err(error.into()),
            Err(_) => self.capture_anew(part, shared, message, nodes),
        }
    }

    /// Gets a workspace if a product was changed so that it needs the graph's.
    fn share_workspace(&mut self, part: &Part, shared: &Shared, nodes: &[Node]) {
        if self.has_products && self.workspace.is_none() && nodes.iter().any(Node::shares_workspace) {
            self.workspace = Products::workspace(shared, &part.memory);
        }
    }

    /// Captures the graph as it is now, and gives it to later launches: by an update of the instance, or by
    /// another, whose launches come after those of the first.
    fn capture_anew(
        &mut self,
        part: &mut Part,
        shared: &Shared,
        message: u64,
        nodes: &[Node],
    ) -> Result<(), GraphError> {
        let checked = part.memory.changes();
        let workspace = self.workspace.as_ref().map(Workspace::range);
        let graph = capture(part, nodes, &self.steps, workspace)?;
        match self.exec.update(&graph) {
            Ok(()) => {}
            Err(error) if error.loses_context() => return Err(error.into()),
            // Whatever the reason: the driver may make of the graph what it would not make of the instance.
            Err(_) => {
                let former = std::mem::replace(&mut self.exec, Exec::instantiate(graph)?);
                shared.count_instantiation();
                if std::mem::replace(&mut self.launched, false) {
                    part.streams.join(JOIN_ALL, message)?;
                }
                part.after_all(message, former)?;
            }
        }
        self.checked = checked;
        Ok(())
    }

    fn set_kernel(&self, number: u32, node: &Node) -> Result<(), DriverError> {
        match (&node.body, &node.kernel) {
            (Body::Launch(body), Some(kernel)) => {
                self.exec.set_kernel(number, &kernel.function, &node::shape(body), &node.tail)
            }
            _ => Ok(()),
        }
    }

    /// Whether it uses guest memory that is mapped at one of these addresses.
    pub(crate) fn uses(&self, addresses: &[usize]) -> bool {
        self.steps.iter().any(|step| step.grant().is_some_and(|grant| addresses.contains(&grant)))
    }

    /// Looks whether all that the graph names is the session's, if memory was taken from that since.
    fn check(
        &mut self,
        part: &mut Part,
        shared: &Shared,
        message: u64,
        nodes: &[Node],
    ) -> Result<(), GraphError> {
        let changes = part.memory.changes();
        if changes == self.checked {
            return Ok(());
        }
        for node in nodes {
            step::check_ranges(&part.memory, node)?;
        }
        if self.has_products {
            // What a product reaches is looked at when it is given to a stream.
            return self.capture_anew(part, shared, message, nodes);
        }
        self.checked = changes;
        Ok(())
    }

    /// Launches the graph in a stream.
    pub(crate) fn launch(
        &mut self,
        part: &mut Part,
        shared: &Shared,
        nodes: &[Node],
        at: At,
    ) -> Result<(), GraphError> {
        self.check(part, shared, at.message, nodes)?;
        if let Some(newest) = self.newest.take() {
            part.streams.wait(at.stream, &newest)?;
        }
        let relays = if self.stands_in { self.relays(part.host(), nodes)? } else { Vec::new() };
        for relay in relays.iter().filter(|relay| relay.upload) {
            relay.give(part, at)?;
        }
        self.launched = true;
        part.streams.work(at.stream)?.launch_graph(&self.exec)?;
        for relay in relays.iter().filter(|relay| !relay.upload) {
            relay.give(part, at)?;
        }
        if !relays.is_empty() {
            self.newest = part.streams.fence(at.stream, at.message)?;
        }
        Ok(())
    }

    /// The copies between the guest's memory and that which stands in for it.
    fn relays(&self, host: &SessionHost, nodes: &[Node]) -> Result<Vec<Relay>, Violation> {
        let pairs = nodes.iter().zip(&self.steps);
        pairs.filter_map(|(node, step)| step.relay(host, node).transpose()).collect()
    }
}
