//! Graphs, their nodes, and what is made of them.

use std::collections::HashMap;
use std::mem::discriminant;

use vgpu_abi::driver::graph_node;

use crate::handle::{Handles, Kind};
use crate::memory::Range;
use crate::raw::HostFunction;
use crate::rule::{Answer, Rule};
use crate::work::Effect;

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The program's memory.
    Host(Range),
    /// The device's memory.
    Device(Range),
}

impl Side {
    /// Its addresses.
    pub const fn range(self) -> Range {
        match self {
            Self::Host(range) | Self::Device(range) => range,
        }
    }
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A launch of a function of a context.
    Kernel {
        /// The function's context.
        context: usize,
        /// The function.
        function: usize,
    },
    /// A copy.
    Copy {
        /// Destination and source.
        sides: [Side; 2],
        /// Whether it is of one row.
        flat: bool,
        /// Context that it runs in.
        context: usize,
    },
    /// A fill.
    Fill {
        /// What is filled.
        range: Range,
        /// Whether it is of one row.
        flat: bool,
        /// Context that it runs in.
        context: usize,
    },
    /// Kernels of a library, which read and write these ranges.
    Product {
        /// Operands and workspace.
        ranges: Vec<Range>,
    },
    /// Nothing.
    Empty,
    /// Memory operations.
    Words(Vec<Effect>),
    /// A call of a function of the program.
    Call(HostFunction),
}

impl NodeKind {
    /// `CUgraphNodeType`
    const fn number(&self) -> u32 {
        match self {
            Self::Kernel { .. } | Self::Product { .. } => graph_node::KERNEL,
            Self::Copy { .. } => graph_node::MEMCPY,
            Self::Fill { .. } => graph_node::MEMSET,
            Self::Empty => graph_node::EMPTY,
            Self::Words(_) => graph_node::BATCH_MEM_OP,
            Self::Call(_) => graph_node::HOST,
        }
    }

    /// Refuses a new kind that the node of an instantiated graph cannot be set to.
    fn check_change(&self, new: &Self) -> Answer {
        match (self, new) {
            (Self::Kernel { context: old, .. }, Self::Kernel { context, .. }) if old != context => {
                Err(Rule::NodeContext.into())
            }
            _ if self.number() != new.number() => Err(Rule::NodeKind.into()),
            _ => Ok(()),
        }
    }

    /// Whether an update of the instantiated graph can change this node into `new`. Copies and fills must
    /// stay in their context and between the same kinds of memory; those of several rows cannot change.
    fn is_updatable(&self, new: &Self) -> bool {
        match (self, new) {
            (
                Self::Copy { sides: old, flat: was_flat, context: before },
                Self::Copy { sides, flat, context },
            ) => {
                let kinds = old.iter().zip(sides).all(|(old, new)| discriminant(old) == discriminant(new));
                let bytes = old.iter().chain(sides).all(|side| side.range().bytes > 0);
                old == sides || (before == context && kinds && bytes && *flat && *was_flat)
            }
            (
                Self::Fill { range: old, flat: was_flat, context: before },
                Self::Fill { range, flat, context },
            ) => old == range || (before == context && *flat && *was_flat && range.bytes > 0),
            _ => self.check_change(new).is_ok(),
        }
    }

    /// What it does when it completes, and the memory that it uses.
    pub fn effects(&self, effects: &mut Vec<Effect>, uses: &mut Vec<Range>) {
        match self {
            Self::Kernel { .. } => effects.push(Effect::Kernel),
            Self::Copy { sides, .. } => uses.extend(sides.map(Side::range)),
            Self::Fill { range, .. } => uses.push(*range),
            Self::Product { ranges } => uses.extend(ranges),
            Self::Words(words) => effects.extend(words.iter().copied()),
            Self::Call(function) => effects.push(Effect::Call(*function)),
            Self::Empty => {}
        }
    }
}

/// A node.
#[derive(Debug)]
pub struct Node {
    graph: usize,
    /// What it does.
    pub kind: NodeKind,
    /// Nodes before it.
    pub after: Vec<usize>,
}

/// An instantiated graph.
#[derive(Debug)]
struct Exec {
    /// Nodes in the order of their creation.
    order: Vec<usize>,
    nodes: HashMap<usize, NodeKind>,
    /// By node in that order: the places of the nodes before it.
    after: Vec<Vec<usize>>,
    /// Work of the newest launch.
    newest: Option<u64>,
}

/// The places of nodes in the order of their graph.
fn places(order: &[usize], nodes: &[usize]) -> Vec<usize> {
    let mut places: Vec<usize> =
        nodes.iter().filter_map(|node| order.iter().position(|one| one == node)).collect();
    places.sort_unstable();
    places
}

/// All graphs.
#[derive(Debug)]
pub struct Graphs {
    /// By graph: its nodes in the order of their creation.
    contents: Handles<Vec<usize>>,
    nodes: Handles<Node>,
    execs: Handles<Exec>,
}

impl Graphs {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            contents: Handles::new(Kind::Graph),
            nodes: Handles::new(Kind::Node),
            execs: Handles::new(Kind::Exec),
        }
    }

    /// `cuGraphCreate`
    pub fn create(&mut self) -> usize {
        self.contents.add(Vec::new())
    }

    /// `cuGraphDestroy`
    pub fn destroy(&mut self, graph: usize) -> Answer {
        for node in self.contents.remove(graph)? {
            self.nodes.remove(node)?;
        }
        Ok(())
    }

    /// A node.
    pub fn node(&self, node: usize) -> Answer<&Node> {
        self.nodes.get(node)
    }

    /// Refuses nodes of other graphs, and such that are named twice.
    pub fn check_dependencies(&self, graph: usize, after: &[usize]) -> Answer {
        for (at, &node) in after.iter().enumerate() {
            if self.nodes.get(node).ok().is_none_or(|one| one.graph != graph) || after[..at].contains(&node) {
                return Err(Rule::ForeignNode.into());
            }
        }
        Ok(())
    }

    /// `cuGraphAdd*Node`
    pub fn add_node(&mut self, graph: usize, after: &[usize], kind: NodeKind) -> Answer<usize> {
        self.contents.get(graph)?;
        self.check_dependencies(graph, after)?;
        let node = self.nodes.add(Node { graph, kind, after: after.to_vec() });
        self.contents.get_mut(graph)?.push(node);
        Ok(node)
    }

    /// `cuGraphInstantiate`
    pub fn instantiate(&mut self, graph: usize) -> Answer<usize> {
        let order = self.contents.get(graph)?.clone();
        let (mut nodes, mut after) = (HashMap::new(), Vec::new());
        for &raw in &order {
            let node = self.nodes.get(raw)?;
            nodes.insert(raw, node.kind.clone());
            after.push(places(&order, &node.after));
        }
        Ok(self.execs.add(Exec { order, nodes, after, newest: None }))
    }

    /// `cuGraphExecDestroy`
    pub fn destroy_exec(&mut self, exec: usize) -> Answer {
        self.execs.remove(exec)?;
        Ok(())
    }

    /// `cuGraphExec*NodeSetParams`: the node of the graph, which must still be there, names that of `exec`.
    pub fn set_node(&mut self, exec: usize, node: usize, new: NodeKind) -> Answer {
        self.nodes.get(node)?;
        let kind = self.execs.get_mut(exec)?.nodes.get_mut(&node).ok_or(Rule::NodeOfOther)?;
        kind.check_change(&new)?;
        *kind = new;
        Ok(())
    }

    /// `cuGraphExecUpdate`: gives the instantiated graph the nodes of a graph of the same shape. False: it has
    /// another shape.
    pub fn update(&mut self, exec: usize, graph: usize) -> Answer<bool> {
        let order = self.contents.get(graph)?;
        let new = order.iter().map(|&raw| {
            let node = self.nodes.get(raw)?;
            Ok((node.kind.clone(), places(order, &node.after)))
        });
        let new = new.collect::<Answer<Vec<_>>>()?;
        let Exec { order, nodes, after, .. } = self.execs.get_mut(exec)?;
        let same = order.len() == new.len()
            && order
                .iter()
                .zip(&*after)
                .zip(&new)
                .all(|((raw, before), (kind, now))| before == now && nodes[raw].is_updatable(kind));
        if same {
            nodes.extend(order.iter().copied().zip(new.into_iter().map(|(kind, _)| kind)));
        }
        Ok(same)
    }

    /// `cuGraphLaunch`: the work of the launch before, which comes first, and the nodes.
    pub fn contents_of_launch(&self, exec: usize) -> Answer<(Option<u64>, Vec<NodeKind>)> {
        let exec = self.execs.get(exec)?;
        Ok((exec.newest, exec.order.iter().map(|raw| exec.nodes[raw].clone()).collect()))
    }

    /// Names the piece of work that is the newest launch of a graph.
    pub fn set_newest(&mut self, exec: usize, number: u64) -> Answer {
        self.execs.get_mut(exec)?.newest = Some(number);
        Ok(())
    }
}
