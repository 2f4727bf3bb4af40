//! Profile of the time of a session's work, as far as its executor counts it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Profile of the launches of one kernel in grids and blocks of about the same size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelProfile {
    /// Name of the kernel in its image, which is empty for launches that exceed the number of rows.
    pub kernel: String,
    /// Maximum number of blocks of the grids. Each grid had more than half as many.
    pub most_blocks: u64,
    /// Number of threads of a block.
    pub threads: u32,
    /// Number of launches of the kernel with this size.
    pub launches: u64,
    /// Time of these launches together, in nanoseconds.
    pub ns: u64,
    /// Number of blocks of all these launches.
    pub blocks: u64,
    /// Number of warps of all these blocks.
    pub warps: u64,
    /// Number of launches without machine code, of which every instruction was interpreted.
    pub interpreted: u64,
    /// Number of launches whose machine code passed instructions to the interpreter.
    pub handed: u64,
    /// Number of instructions that machine code passed to the interpreter, including barriers at which warps
    /// wait.
    pub handed_steps: u64,
}

/// Profile of one kind of work other than kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProfile {
    /// Number of pieces of work.
    pub count: u64,
    /// Time of these pieces together, in nanoseconds.
    pub ns: u64,
}

/// Profile of a session since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Profiles of kernels, in no particular order.
    pub kernels: Vec<KernelProfile>,
    /// Profiles of copies, fills and products, by the names of their kinds.
    pub tasks: BTreeMap<String, TaskProfile>,
    /// Time during which messages were carried out, in nanoseconds. It includes the times above unless work
    /// is queued.
    pub messages_ns: u64,
}

/// The profile of one session of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionProfile {
    /// The session's number.
    pub session: u32,
    /// Process id of the guest, as it stated it.
    pub process: u32,
    /// Profile that the executor keeps.
    #[serde(flatten)]
    pub profile: Profile,
}

/// Profiles of all sessions of a bus whose executor keeps one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusProfile {
    /// Profiles in the order of the devices' addresses and channels.
    pub sessions: Vec<SessionProfile>,
}
