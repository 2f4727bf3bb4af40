//! Graphs. A node is an ordinary message. The guest sends a graph once and later only the nodes that change;
//! a launch is one message.

use crate::span::Span;

wire_struct! {
    /// `cuGraphInstantiate`. The payload is `nodes` records, each a [`GraphNode`], its
    /// dependencies as u32 node indices padded to 8 bytes, and a message padded to 16 whose number is 0.
    /// A node depends on earlier nodes only.
    pub struct GraphDefine = 40 {
        /// Number for the graph, minted by the guest and not in use.
        pub graph: u32 = 0,
        /// Number of nodes, and of records.
        pub nodes: u32 = 4,
        /// `CUgraphInstantiate_flags` that the program gave.
        pub flags: u64 = 8,
        /// The records, one after the other, inline or in shared memory. They fill the span exactly.
        pub records: Span = 16,
    }
}

wire_struct! {
    /// Header of a node's record in [`GraphDefine::records`].
    pub struct GraphNode = 8 {
        /// Length of the whole record in bytes, a multiple of 8.
        pub bytes: u32 = 0,
        /// Number of dependencies, which follow as u32 indices of earlier nodes, possibly with
        /// [`EDGE_PROGRAMMATIC`].
        pub dependencies: u32 = 4,
    }
}

/// Bit of a dependency in a [`GraphNode`]'s record: the edge between the two launches is programmatic. The
/// later kernel may start before the earlier one has ended, and waits for it by itself
/// (`griddepcontrol.wait`). A host may order the kernels fully instead. Only for hosts with
/// [`exec::EDGES`](crate::facts::exec::EDGES); without the bit the dependency is a full one.
pub const EDGE_PROGRAMMATIC: u32 = 1 << 31;

wire_struct! {
    /// `cuGraphExecUpdate`: replaces nodes by messages of the same kinds. The payload is `nodes` records,
    /// each a [`GraphPatch`] and a message padded to 16. If the executor refuses the update, it instantiates
    /// the graph anew.
    pub struct GraphUpdate = 40 {
        /// Number of the graph to change.
        pub graph: u32 = 0,
        /// Number of records, one for each node that changes.
        pub nodes: u32 = 4,
        /// Must be zero, or the host ends the session.
        pub reserved: u64 = 8,
        /// The records, one after the other, inline or in shared memory. They fill the span exactly.
        pub records: Span = 16,
    }
}

wire_struct! {
    /// Header of a node's record in [`GraphUpdate::records`].
    pub struct GraphPatch = 8 {
        /// Length of the whole record in bytes, a multiple of 8.
        pub bytes: u32 = 0,
        /// Index of the node that the message replaces, from 0 in the order of [`GraphDefine`].
        pub node: u32 = 4,
    }
}

wire_struct! {
    /// `cuGraphLaunch`: runs the graph once.
    pub struct GraphLaunch = 8 {
        /// Number of the graph to launch.
        pub graph: u32 = 0,
        /// Stream that orders the launch; 0 is the legacy default stream.
        pub stream: u32 = 4,
    }
}

wire_struct! {
    /// `cuGraphExecDestroy`. Takes effect after the graph's launches.
    pub struct GraphDestroy = 8 {
        /// Number of the graph to destroy.
        pub graph: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
    }
}
