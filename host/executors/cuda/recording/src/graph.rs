//! Graphs, their nodes, and what is made of them.

use std::collections::HashMap;

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

    const fn same_kind(self, other: Self) -> bool {
        matches!((self, other), (Self::Host(_), Self::Host(_)) | (Self::Device(_), Self::Device(_)))
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
    /// A graph, as it was when it was added.
    Child(Vec<(usize, NodeKind, Vec<usize>)>),
    /// Nothing.
    Empty,
    /// A record of an event.
    Record(usize),
    /// A wait for an event.
    Wait(usize),
    /// Memory operations.
    Words(Vec<Effect>),
    /// A call of a function of the program.
    Call(HostFunction),
}

impl NodeKind {
    /// `CUgraphNodeType`
    pub const fn number(&self) -> u32 {
        match self {
            Self::Kernel { .. } | Self::Product { .. } => graph_node::KERNEL,
            Self::Copy { .. } => graph_node::MEMCPY,
            Self::Fill { .. } => graph_node::MEMSET,
            Self::Child(_) => graph_node::GRAPH,
            Self::Empty => graph_node::EMPTY,
            Self::Record(_) => graph_node::EVENT_RECORD,
            Self::Wait(_) => graph_node::WAIT_EVENT,
            Self::Words(_) => graph_node::BATCH_MEM_OP,
            Self::Call(_) => graph_node::HOST,
        }
    }

    /// Whether an instantiated node can be changed into `new`.
    fn takes(&self, new: &Self) -> Answer {
        match (self, new) {
            (Self::Kernel { context: old, .. }, Self::Kernel { context, .. }) if old != context => {
                Err(Rule::NodeContext.into())
            }
            (
                Self::Copy { sides: old, flat: was_flat, context: before },
                Self::Copy { sides, flat, context },
            ) => {
                let kinds = old.iter().zip(sides).all(|(old, new)| old.same_kind(*new));
                let bytes = old.iter().chain(sides).all(|side| side.range().bytes > 0);
                if before != context {
                    return Err(Rule::NodeContext.into());
                }
                if kinds && bytes && *flat && *was_flat { Ok(()) } else { Err(Rule::NodeOperands.into()) }
            }
            (Self::Fill { flat: was_flat, context: before, .. }, Self::Fill { range, flat, context }) => {
                if before != context {
                    return Err(Rule::NodeContext.into());
                }
                if *flat && *was_flat && range.bytes > 0 { Ok(()) } else { Err(Rule::NodeOperands.into()) }
            }
            (Self::Child(old), Self::Child(new)) => {
                let place = |nodes: &[(usize, Self, Vec<usize>)], raw: usize| {
                    nodes.iter().position(|(node, ..)| *node == raw)
                };
                let shape = |nodes: &[(usize, Self, Vec<usize>)]| -> Vec<(u32, Vec<Option<usize>>)> {
                    let after = |raws: &[usize]| raws.iter().map(|&raw| place(nodes, raw)).collect();
                    nodes.iter().map(|(_, kind, raws)| (kind.number(), after(raws))).collect()
                };
                if shape(old) == shape(new) { Ok(()) } else { Err(Rule::ChildTopology.into()) }
            }
            _ if self.number() != new.number() => Err(Rule::NodeKind.into()),
            _ => Ok(()),
        }
    }

    /// Whether it is a copy or a fill of the same memory as another.
    fn is_same_transfer(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Copy { sides: old, .. }, Self::Copy { sides, .. }) => old == sides,
            (Self::Fill { range: old, .. }, Self::Fill { range, .. }) => old == range,
            _ => false,
        }
    }

    /// What it does when it completes, and the memory that it uses.
    pub fn effects(&self, effects: &mut Vec<Effect>, uses: &mut Vec<Range>) {
        match self {
            Self::Kernel { .. } => effects.push(Effect::Kernel),
            Self::Copy { sides, .. } => uses.extend(sides.map(Side::range)),
            Self::Fill { range, .. } => uses.push(*range),
            Self::Product { ranges } => uses.extend(ranges),
            Self::Child(nodes) => nodes.iter().for_each(|(_, kind, _)| kind.effects(effects, uses)),
            Self::Record(event) => effects.push(Effect::Record { event: *event }),
            Self::Words(words) => effects.extend(words.iter().copied()),
            Self::Call(function) => effects.push(Effect::Call(*function)),
            Self::Empty | Self::Wait(_) => {}
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
    /// Nodes in the order of their creation, switched off or on.
    order: Vec<usize>,
    nodes: HashMap<usize, (NodeKind, bool)>,
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

/// What a launch of a graph gives to its stream.
#[derive(Debug, Default)]
pub struct Launch {
    /// The nodes that are switched on.
    pub kinds: Vec<NodeKind>,
    /// Work of the launch before, which comes first.
    pub before: Option<u64>,
    /// What it does when it completes.
    pub effects: Vec<Effect>,
    /// Memory that it uses.
    pub uses: Vec<Range>,
    /// Events that it waits for.
    pub waits: Vec<usize>,
    /// Events that it records.
    pub records: Vec<usize>,
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

    /// The nodes of a graph.
    pub fn nodes_of(&self, graph: usize) -> Answer<&[usize]> {
        Ok(self.contents.get(graph)?)
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

    /// `cuGraphAddDependencies`: `to` comes after `from`, pair by pair. A circle is refused when the graph is
    /// instantiated; here each node comes after earlier ones only.
    pub fn add_dependencies(&mut self, graph: usize, from: &[usize], to: &[usize]) -> Answer {
        for (&from, &to) in from.iter().zip(to) {
            self.check_dependencies(graph, &[from])?;
            self.check_dependencies(graph, &[to])?;
            let node = self.nodes.get_mut(to)?;
            if from >= to || node.after.contains(&from) {
                return Err(Rule::ForeignNode.into());
            }
            node.after.push(from);
        }
        Ok(())
    }

    /// `cuGraphDestroyNode`
    pub fn destroy_node(&mut self, node: usize) -> Answer {
        let graph = self.nodes.remove(node)?.graph;
        let nodes = self.contents.get_mut(graph)?;
        nodes.retain(|&one| one != node);
        for one in nodes.clone() {
            self.nodes.get_mut(one)?.after.retain(|&before| before != node);
        }
        Ok(())
    }

    /// The content of a graph as a child.
    pub fn child(&self, graph: usize) -> Answer<NodeKind> {
        let mut nodes = Vec::new();
        for &raw in self.contents.get(graph)? {
            let node = self.nodes.get(raw)?;
            nodes.push((raw, node.kind.clone(), node.after.clone()));
        }
        Ok(NodeKind::Child(nodes))
    }

    /// `cuGraphInstantiate`
    pub fn instantiate(&mut self, graph: usize) -> Answer<usize> {
        let order = self.contents.get(graph)?.clone();
        let (mut nodes, mut after) = (HashMap::new(), Vec::new());
        for &raw in &order {
            let node = self.nodes.get(raw)?;
            nodes.insert(raw, (node.kind.clone(), true));
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
        let (kind, _) = self.execs.get_mut(exec)?.nodes.get_mut(&node).ok_or(Rule::NodeOfOther)?;
        kind.takes(&new)?;
        *kind = new;
        Ok(())
    }

    /// `cuGraphNodeSetEnabled`: kernels, copies and fills only.
    pub fn enable(&mut self, exec: usize, node: usize, enabled: bool) -> Answer {
        self.nodes.get(node)?;
        let (kind, on) = self.execs.get_mut(exec)?.nodes.get_mut(&node).ok_or(Rule::NodeOfOther)?;
        if !matches!(kind, NodeKind::Kernel { .. } | NodeKind::Copy { .. } | NodeKind::Fill { .. }) {
            return Err(Rule::NodeKind.into());
        }
        *on = enabled;
        Ok(())
    }

    /// `cuGraphExecUpdate`: whether the graph has the same shape, and if so its nodes.
    pub fn update(&mut self, exec: usize, graph: usize) -> Answer<bool> {
        let new: Vec<usize> = self.contents.get(graph)?.clone();
        let Exec { order: old, nodes, after, .. } = self.execs.get(exec)?;
        let NodeKind::Child(content) = self.child(graph)? else { return Ok(false) };
        let same = old.len() == new.len()
            && old.iter().zip(after).zip(&content).all(|((raw, before), (_, kind, now))| {
                let was = &nodes[raw].0;
                *before == places(&new, now) && (was.is_same_transfer(kind) || was.takes(kind).is_ok())
            });
        if same {
            let order = old.clone();
            let exec = self.execs.get_mut(exec)?;
            for (raw, (_, kind, _)) in order.iter().zip(content) {
                exec.nodes.insert(*raw, (kind, true));
            }
        }
        Ok(same)
    }

    /// `cuGraphLaunch`
    pub fn launch(&self, exec: usize) -> Answer<Launch> {
        let exec = self.execs.get(exec)?;
        let mut launch = Launch { before: exec.newest, ..Launch::default() };
        for raw in &exec.order {
            let (kind, on) = &exec.nodes[raw];
            if *on {
                launch.kinds.push(kind.clone());
                kind.effects(&mut launch.effects, &mut launch.uses);
                match kind {
                    NodeKind::Wait(event) => launch.waits.push(*event),
                    NodeKind::Record(event) => launch.records.push(*event),
                    _ => {}
                }
            }
        }
        Ok(launch)
    }

    /// A launch of a graph is a piece of work.
    pub fn launched(&mut self, exec: usize, number: u64) -> Answer {
        self.execs.get_mut(exec)?.newest = Some(number);
        Ok(())
    }

    /// The graph of a node.
    pub fn graph_of(&self, node: usize) -> Answer<usize> {
        Ok(self.nodes.get(node)?.graph)
    }
}
