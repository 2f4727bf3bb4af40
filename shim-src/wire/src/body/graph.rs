//! Graphs. A node is an ordinary message; a graph goes over once, changes alone are sent, and a
//! launch is one message.

use crate::span::Span;

wire_struct! {
    /// `cuGraphInstantiate`. The payload is `nodes` records, each a [`GraphNode`], its
    /// dependencies as u32 node indices padded to 8 bytes, and a message padded to 16 whose number is 0.
    /// A node depends on earlier nodes only.
    pub struct GraphDefine = 40 {
        /// Minted number.
        pub graph: u32 = 0,
        /// Nodes.
        pub nodes: u32 = 4,
        /// `CUgraphInstantiate_flags`.
        pub flags: u64 = 8,
        /// The records.
        pub records: Span = 16,
    }
}

wire_struct! {
    /// Head of a node's record.
    pub struct GraphNode = 8 {
        /// Bytes of the whole record, a multiple of 8.
        pub bytes: u32 = 0,
        /// How many dependencies follow.
        pub dependencies: u32 = 4,
    }
}

wire_struct! {
    /// `cuGraphExecUpdate`: new messages for some nodes, of the same kinds. The payload is `nodes`
    /// records, each a [`GraphPatch`] and a message padded to 16. If the executor refuses, it instantiates anew.
    pub struct GraphUpdate = 40 {
        /// The graph.
        pub graph: u32 = 0,
        /// Records.
        pub nodes: u32 = 4,
        /// Zero.
        pub reserved: u64 = 8,
        /// The records.
        pub records: Span = 16,
    }
}

wire_struct! {
    /// Head of a patch.
    pub struct GraphPatch = 8 {
        /// Bytes of the whole record, a multiple of 8.
        pub bytes: u32 = 0,
        /// Index of the node.
        pub node: u32 = 4,
    }
}

wire_struct! {
    /// `cuGraphLaunch`.
    pub struct GraphLaunch = 8 {
        /// The graph.
        pub graph: u32 = 0,
        /// The stream.
        pub stream: u32 = 4,
    }
}

wire_struct! {
    /// `cuGraphExecDestroy`: after its launches.
    pub struct GraphDestroy = 8 {
        /// The graph.
        pub graph: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
    }
}
