//! The resources that a session may make its host hold, and the limit of each.

use serde::{Deserialize, Serialize};

use crate::charges::host_memory::mappings_allowed;

/// A kind of resource that sessions are charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of host memory: arriving images, prepared kernels, graphs, queued messages, scratch memory of
    /// kernels.
    HostBytes,
    /// Bytes of device memory.
    DeviceBytes,
    /// Allocations of device memory.
    Allocations,
    /// Streams other than the default one.
    Streams,
    /// Events that the guest has created.
    Events,
    /// Streams held for functions of the guest, until it releases them.
    Holds,
    /// Modules that are open or loaded.
    Modules,
    /// Handles of kernels (`CUfunction`) that the guest has taken from its modules.
    Functions,
    /// Graphs that are instantiated and not destroyed.
    Graphs,
    /// Nodes of all graphs together.
    GraphNodes,
    /// Handles of physical memory.
    Physical,
    /// Reserved ranges of device addresses.
    Reservations,
    /// Mappings of physical memory. Each may need several mappings of the host's process.
    Mappings,
    /// Messages and nodes of graphs that wait for other work.
    Queued,
}

impl Resource {
    pub(crate) const COUNT: usize = Self::Queued as usize + 1;
    /// All resources in the order of their numbers, each with its name in messages, in the plural.
    pub const NAMES: [(Self, &str); Self::COUNT] = [
        (Self::HostBytes, "bytes of host memory"),
        (Self::DeviceBytes, "bytes of device memory"),
        (Self::Allocations, "allocations"),
        (Self::Streams, "streams"),
        (Self::Events, "events"),
        (Self::Holds, "held streams"),
        (Self::Modules, "modules"),
        (Self::Functions, "functions"),
        (Self::Graphs, "graphs"),
        (Self::GraphNodes, "nodes of graphs"),
        (Self::Physical, "handles of physical memory"),
        (Self::Reservations, "reserved address ranges"),
        (Self::Mappings, "mappings of physical memory"),
        (Self::Queued, "queued pieces of work"),
    ];

    /// Returns the name of the resource in messages, in the plural.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }
}

/// Limits of the resources that one session may hold, and of the lines that it may write to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Limit of [`Resource::HostBytes`]; default 4 GiB.
    pub host_bytes: u64,
    /// Limit of [`Resource::DeviceBytes`]. The default does not restrict a session: the size of the device
    /// bounds it.
    pub device_bytes: u64,
    /// Limit of [`Resource::Allocations`]; default 65,536.
    pub allocations: u64,
    /// Limit of [`Resource::Streams`]; default 4,096.
    pub streams: u64,
    /// Limit of [`Resource::Events`]; default 65,536.
    pub events: u64,
    /// Limit of [`Resource::Holds`]; default 4,096.
    pub holds: u64,
    /// Limit of [`Resource::Modules`]; default 16,384.
    pub modules: u64,
    /// Limit of [`Resource::Functions`]; default 65,536.
    pub functions: u64,
    /// Limit of [`Resource::Graphs`]; default 4,096.
    pub graphs: u64,
    /// Limit of [`Resource::GraphNodes`]; default 1,048,576.
    pub graph_nodes: u64,
    /// Limit of [`Resource::Physical`]; default 16,384.
    pub physical: u64,
    /// Limit of [`Resource::Reservations`]; default 4,096.
    pub reservations: u64,
    /// Limit of [`Resource::Mappings`]; default 4,096, or less where Linux allows this process few mappings.
    pub mappings: u64,
    /// Limit of [`Resource::Queued`]; default 65,536.
    pub queued: u64,
    /// Number of lines that may be written to the log in one burst; default 500. A long line counts once for
    /// each 256 bytes.
    pub log_lines: u64,
    /// Number of lines per minute after the burst; default 60.
    pub log_lines_per_minute: u64,
}

impl Default for Limits {
    /// Returns the defaults that the documentation of each field gives.
    fn default() -> Self {
        Self {
            host_bytes: 4 << 30,
            device_bytes: u64::MAX,
            allocations: 65_536,
            streams: 4_096,
            events: 65_536,
            holds: 4_096,
            modules: 16_384,
            functions: 65_536,
            graphs: 4_096,
            graph_nodes: 1 << 20,
            physical: 16_384,
            reservations: 4_096,
            mappings: 4_096.min(mappings_allowed() / MAPPINGS_SHARE),
            queued: 65_536,
            log_lines: 500,
            log_lines_per_minute: 60,
        }
    }
}

/// Divisor of the process's mappings for the limit of one session. All sessions of a device together may use
/// half of the process's mappings, and each counts twice, because it can split another in two.
const MAPPINGS_SHARE: u64 = 2 * 2 * vgpu_wire::registers::MAX_CHANNELS as u64;

impl Limits {
    /// Returns the limit of a resource, in its units.
    #[must_use]
    pub const fn limit(&self, resource: Resource) -> u64 {
        match resource {
            Resource::HostBytes => self.host_bytes,
            Resource::DeviceBytes => self.device_bytes,
            Resource::Allocations => self.allocations,
            Resource::Streams => self.streams,
            Resource::Events => self.events,
            Resource::Holds => self.holds,
            Resource::Modules => self.modules,
            Resource::Functions => self.functions,
            Resource::Graphs => self.graphs,
            Resource::GraphNodes => self.graph_nodes,
            Resource::Physical => self.physical,
            Resource::Reservations => self.reservations,
            Resource::Mappings => self.mappings,
            Resource::Queued => self.queued,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_all_sessions_stay_far_below_what_a_process_may_have() {
        let all = Limits::default().mappings * u64::from(vgpu_wire::registers::MAX_CHANNELS);
        assert!(2 * all <= mappings_allowed() / 2, "{all}");
        assert!(Limits::default().mappings > 0);
    }
}
