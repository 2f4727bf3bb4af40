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
use vgpu_wire::Body;

use crate::driver::error::DriverError;
use crate::driver::graph::{Capture, Exec, Graph};
use crate::gpu::copy::At;
use crate::gpu::fence::Fence;
use crate::gpu::part::Part;
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
    /// The state of the session's memory in which all ranges were the session's.
    checked: u64,
    /// Whether memory of the graph's own stands in for guest memory that the driver does not register.
    stands_in: bool,
    /// The end of the newest launch, if memory of the graph's own stands in for the guest's: the next launch
    /// must not touch it before.
    newest: Option<Arc<Fence>>,
}

/// What came of a change.
#[derive(Debug)]
pub(crate) struct Changed {
    /// What launches before the change may use.
    pub(crate) replaced: Replaced,
    /// Whether the driver had to instantiate the graph anew, so that its launches before and after the
    /// change have no order of the driver's.
    pub(crate) anew: bool,
}

/// What launches before a change may use.
#[derive(Debug, Default)]
pub(crate) struct Replaced {
    exec: Option<Exec>,
    steps: Vec<Step>,
}

impl Replaced {
    /// Whether there is nothing to keep.
    pub(crate) const fn is_empty(&self) -> bool {
        self.exec.is_none() && self.steps.is_empty()
    }
}

/// Captures nodes, as their steps have it.
fn capture(part: &mut Part, nodes: &[Node], steps: &[Step]) -> Result<Graph, DriverError> {
    let host = part.host().clone();
    let mut capture = Capture::begin(part.capturing()?)?;
    for (node, step) in nodes.iter().zip(steps) {
        if host.stopping() {
            return Err(step::STOPPED);
        }
        match step {
            Step::Point => capture.point(node.after.iter().copied().chain(node.awaits))?,
            step => capture.work(node.after.iter().copied(), |stream| step.issue(node, stream))?,
        }
    }
    capture.end()
}

impl Instance {
    /// Captures and instantiates a graph.
    pub(crate) fn new(part: &mut Part, nodes: &[Node]) -> Result<Self, GraphError> {
        let checked = part.memory.changes();
        let all: Vec<u32> = (0..nodes.len() as u32).collect();
        let steps = step::find(part, nodes, &all)?;
        let stands_in = step::stand_in(nodes, &steps)?;
        let exec = Exec::instantiate(capture(part, nodes, &steps)?)?;
        Ok(Self { exec, steps, checked, stands_in, newest: None })
    }

    /// Makes changes: `changed` are the numbers of the nodes that are others now, with what they were. The
    /// instance is of no use any more if it fails.
    pub(crate) fn change(
        &mut self,
        part: &mut Part,
        nodes: &[Node],
        changed: &[(u32, Node)],
    ) -> Result<Changed, GraphError> {
        let mut numbers: Vec<u32> = changed.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let steps = step::find(part, nodes, &numbers)?;
        let mut replaced = Replaced::default();
        for (&number, step) in numbers.iter().zip(steps) {
            let old = std::mem::replace(&mut self.steps[number as usize], step);
            if !old.uses_the_same(&self.steps[number as usize]) {
                replaced.steps.push(old);
            }
        }
        if numbers.iter().any(|&number| nodes[number as usize].span().is_some()) {
            self.stands_in = step::stand_in(nodes, &self.steps)?;
        }
        let in_place = changed.iter().all(|(number, old)| old.is_set_in_place(&nodes[*number as usize]));
        let done = if in_place {
            numbers.iter().try_for_each(|&number| self.set_kernel(number, &nodes[number as usize]))
        } else {
            capture(part, nodes, &self.steps).and_then(|graph| self.exec.update(&graph))
        };
        let anew = match done {
            Ok(()) => false,
            Err(error) if error.loses_context() => return Err(error.into()),
            // Whatever the reason: the driver may make of the graph what it would not make of the instance.
            Err(_) => {
                let exec = Exec::instantiate(capture(part, nodes, &self.steps)?)?;
                replaced.exec = Some(std::mem::replace(&mut self.exec, exec));
                true
            }
        };
        Ok(Changed { replaced, anew })
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

    /// Launches the graph in a stream. All ranges must be the session's still.
    pub(crate) fn launch(&mut self, part: &mut Part, nodes: &[Node], at: At) -> Result<(), GraphError> {
        let changes = part.memory.changes();
        if changes != self.checked {
            for node in nodes {
                step::check_ranges(&part.memory, node)?;
            }
            self.checked = changes;
        }
        if let Some(newest) = self.newest.take() {
            part.streams.wait(at.stream, &newest)?;
        }
        let relays = if self.stands_in { self.relays(part.host(), nodes)? } else { Vec::new() };
        for relay in relays.iter().filter(|relay| relay.upload) {
            relay.give(part, at)?;
        }
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
