//! Where the time of a session's work went, as far as its executor counts it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Launches of one kernel in grids and blocks of about one size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelProfile {
    /// Name of the kernel, as its image has it. Empty for the launches for which there was no row of their own.
    pub kernel: String,
    /// The grids had at most so many blocks, and more than half as many.
    pub most_blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Number of launches.
    pub launches: u64,
    /// Time of these launches together, in nanoseconds.
    pub ns: u64,
    /// Blocks of these launches together.
    pub blocks: u64,
    /// Warps of these blocks together.
    pub warps: u64,
    /// Launches for which there was no machine code: all of their steps were interpreted.
    pub interpreted: u64,
    /// Launches with machine code that handed steps to the interpreter.
    pub handed: u64,
    /// Steps that machine code handed to the interpreter. A barrier at which warps wait is such a step.
    pub handed_steps: u64,
}

/// Work of one kind other than kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProfile {
    /// Number of pieces of work.
    pub count: u64,
    /// Time of these pieces together, in nanoseconds.
    pub ns: u64,
}

/// Where the time of a session's work went since the session started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Kernels, in no order.
    pub kernels: Vec<KernelProfile>,
    /// Copies, fills and products, by the names of their kinds.
    pub tasks: BTreeMap<String, TaskProfile>,
    /// Time in which messages were carried out, in nanoseconds. Includes the above where work is not queued.
    pub messages_ns: u64,
}

/// The profile of one session of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionProfile {
    /// The session's number.
    pub session: u32,
    /// The guest's process id, as it said.
    pub process: u32,
    /// What the executor has counted.
    #[serde(flatten)]
    pub profile: Profile,
}

/// The profiles of a bus: of all sessions whose executor counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusProfile {
    /// In the order of the devices' addresses and channels.
    pub sessions: Vec<SessionProfile>,
}
