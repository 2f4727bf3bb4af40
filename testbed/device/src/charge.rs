//! What a session may make its host hold, and what it does hold: limits, charges, and the guards that return them.
//!
//! Every byte and every handle that exists because a guest asked for it is charged to its session before it is made. Who
//! makes it keeps the [`Charge`] beside it, so that both go together. Over a limit nothing is made, and the guest gets CUDA's
//! out-of-memory. A session that has ended is charged nothing; the device looks, and its own total shows what was not returned.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log_budget::LogBudget;

/// `CUDA_ERROR_OUT_OF_MEMORY`: what a guest gets over a limit.
pub const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`: what it gets for a kernel that is too large to be made ready.
pub const OUT_OF_RESOURCES: u32 = 701;

/// A kind of resource that sessions are charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of the host's memory: images on their way, kernels made ready, graphs, queued messages, scratch memory of kernels.
    HostBytes,
    /// Bytes of device memory.
    DeviceBytes,
    /// Allocations of device memory.
    Allocations,
    /// Streams, the default one not counted.
    Streams,
    /// Events.
    Events,
    /// Streams held for functions of the guest, until it releases them.
    Holds,
    /// Modules, open or loaded.
    Modules,
    /// Kernels that the guest has asked for.
    Functions,
    /// Instantiated graphs.
    Graphs,
    /// Nodes of all graphs.
    GraphNodes,
    /// Handles of physical memory.
    Physical,
    /// Reserved ranges of device addresses.
    Reservations,
    /// Mappings of physical memory: each may cost the host's process mappings of its own.
    Mappings,
    /// Messages and nodes of graphs that wait for other work.
    Queued,
}

impl Resource {
    const COUNT: usize = Self::Queued as usize + 1;
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::HostBytes,
        Self::DeviceBytes,
        Self::Allocations,
        Self::Streams,
        Self::Events,
        Self::Holds,
        Self::Modules,
        Self::Functions,
        Self::Graphs,
        Self::GraphNodes,
        Self::Physical,
        Self::Reservations,
        Self::Mappings,
        Self::Queued,
    ];

    /// What it is called in messages, in the plural.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostBytes => "bytes of host memory",
            Self::DeviceBytes => "bytes of device memory",
            Self::Allocations => "allocations",
            Self::Streams => "streams",
            Self::Events => "events",
            Self::Holds => "held streams",
            Self::Modules => "modules",
            Self::Functions => "functions",
            Self::Graphs => "graphs",
            Self::GraphNodes => "nodes of graphs",
            Self::Physical => "handles of physical memory",
            Self::Reservations => "reserved address ranges",
            Self::Mappings => "mappings of physical memory",
            Self::Queued => "queued pieces of work",
        }
    }
}

/// The most that one session may have of each resource, and write to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// [`Resource::HostBytes`]; 4 GiB.
    pub host_bytes: u64,
    /// [`Resource::DeviceBytes`]; none of its own: the device's size.
    pub device_bytes: u64,
    /// [`Resource::Allocations`]; 65,536.
    pub allocations: u64,
    /// [`Resource::Streams`]; 4,096.
    pub streams: u64,
    /// [`Resource::Events`]; 65,536.
    pub events: u64,
    /// [`Resource::Holds`]; 4,096.
    pub holds: u64,
    /// [`Resource::Modules`]; 16,384.
    pub modules: u64,
    /// [`Resource::Functions`]; 65,536.
    pub functions: u64,
    /// [`Resource::Graphs`]; 4,096.
    pub graphs: u64,
    /// [`Resource::GraphNodes`]; 1,048,576.
    pub graph_nodes: u64,
    /// [`Resource::Physical`]; 16,384.
    pub physical: u64,
    /// [`Resource::Reservations`]; 4,096.
    pub reservations: u64,
    /// [`Resource::Mappings`]; 4,096, or less where Linux allows this process few mappings.
    pub mappings: u64,
    /// [`Resource::Queued`]; 65,536.
    pub queued: u64,
    /// Lines that may be written to the log at once; 500. A line counts for each 256 bytes that it has.
    pub log_lines: u64,
    /// Lines a minute after that; 60.
    pub log_lines_per_minute: u64,
}

impl Default for Limits {
    /// As documented at each.
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
            mappings: 4_096.min(mappings_of_process() / MAPPINGS_SHARE),
            queued: 65_536,
            log_lines: 500,
            log_lines_per_minute: 60,
        }
    }
}

/// All sessions of a device together may use half of the mappings of a process, where each of theirs counts twice: it can cut another in two.
const MAPPINGS_SHARE: u64 = 2 * 2 * vgpu_wire::registers::MAX_CHANNELS as u64;
/// What Linux allows where it does not say: `DEFAULT_MAX_MAP_COUNT`.
const MAPPINGS_USUAL: u64 = 65_530;

/// How many mappings Linux allows a process: `vm.max_map_count`.
fn mappings_of_process() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(MAPPINGS_USUAL)
}

impl Limits {
    /// The most of a resource.
    #[must_use]
    pub const fn of(&self, resource: Resource) -> u64 {
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

/// A session would have more than it may. The guest gets [`OUT_OF_MEMORY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} more {}: the session has {used} of {limit}{}", .resource.name(), if *.host_lacks { ", and the host has no memory" } else { "" })]
pub struct OverLimit {
    /// Of what.
    pub resource: Resource,
    /// How much it asked for.
    pub wanted: u64,
    /// How much it has.
    pub used: u64,
    /// The most that it may have.
    pub limit: u64,
    /// It may have it, and the host has not.
    pub host_lacks: bool,
}

/// What all sessions of a device are charged.
#[derive(Debug, Default)]
pub struct DeviceCharges {
    bytes: AtomicU64,
    host: HostMemory,
    pub(crate) log: LogBudget,
}

/// What sessions hold of the host's memory, and whether there is more. Work in small pieces allocates where a failure would end the process: so
/// the host is asked first, for more than is needed now.
#[derive(Debug, Default)]
struct HostMemory {
    bytes: AtomicU64,
    /// Up to how many bytes the host has been asked.
    asked: AtomicU64,
}

impl HostMemory {
    /// Bytes for which the host is asked ahead: more than one message makes it hold beside what is charged.
    const AHEAD: u64 = 4 << 20;

    /// Counts bytes that are going to be held; false, and nothing is counted: the host does not have them.
    fn take(&self, wanted: u64) -> bool {
        let bytes = self.bytes.fetch_add(wanted, Ordering::Relaxed).saturating_add(wanted);
        if bytes <= self.asked.load(Ordering::Relaxed) {
            return true;
        }
        let mut room = Vec::<u8>::new();
        let more = usize::try_from(wanted.saturating_add(Self::AHEAD));
        let there = more.is_ok_and(|more| room.try_reserve_exact(more).is_ok());
        // Else the compiler may leave out memory that nobody uses.
        std::hint::black_box(&mut room);
        if there {
            self.asked.fetch_max(bytes.saturating_add(Self::AHEAD), Ordering::Relaxed);
        } else {
            self.give_back(wanted);
        }
        there
    }

    /// What is returned may be somebody else's soon: the host is asked again.
    fn give_back(&self, less: u64) {
        let bytes = self.bytes.fetch_sub(less, Ordering::Relaxed).saturating_sub(less);
        self.asked.fetch_min(bytes.saturating_add(Self::AHEAD), Ordering::Relaxed);
    }
}

impl DeviceCharges {
    /// Bytes of host and device memory that are charged to sessions, those included that ended without returning them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What one session is charged.
#[derive(Debug)]
pub struct Charges {
    session: u32,
    limits: Limits,
    used: [AtomicU64; Resource::COUNT],
    device: Arc<DeviceCharges>,
    log: LogBudget,
}

impl Charges {
    /// A session that has nothing, of a device.
    #[must_use]
    pub fn new(session: u32, limits: Limits, device: Arc<DeviceCharges>) -> Arc<Self> {
        let log = LogBudget::new(limits.log_lines, limits.log_lines_per_minute);
        Arc::new(Self { session, limits, used: Default::default(), device, log })
    }

    /// The session's number.
    #[must_use]
    pub const fn session(&self) -> u32 {
        self.session
    }

    /// The limits that hold for the session.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How much of a resource the session has.
    #[must_use]
    pub fn used(&self, resource: Resource) -> u64 {
        self.used[resource as usize].load(Ordering::Relaxed)
    }

    /// Bytes of host and device memory that the session has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.used(Resource::HostBytes) + self.used(Resource::DeviceBytes)
    }

    /// Charges `amount` until the guard is dropped, unless the session would have more than it may.
    pub fn take(self: &Arc<Self>, resource: Resource, amount: u64) -> Result<Charge, OverLimit> {
        self.add(resource, amount)?;
        Ok(Charge { charges: Arc::clone(self), resource, amount })
    }

    /// Writes to the log on behalf of the session, unless it has written too much. `bytes`: what the guest made the line long by.
    pub fn log(&self, bytes: usize, write: impl FnOnce()) {
        if self.log.take(bytes, |text| tracing::warn!(session = self.session, "{text}"))
            && self.device.log.take(bytes, |text| tracing::warn!("all sessions of the device: {text}"))
        {
            write();
        }
    }

    /// The session has ended: says so where it is still charged something, which is a bug of its executor.
    pub(crate) fn check_returned(&self) {
        if let Some(left) = self.remaining() {
            tracing::error!(session = self.session, "an ended session is still charged {left}");
        }
    }

    /// What the session has, if it has anything.
    fn remaining(&self) -> Option<String> {
        let left = Resource::ALL.into_iter().filter(|&resource| self.used(resource) > 0);
        let text: Vec<String> =
            left.map(|resource| format!("{} {}", self.used(resource), resource.name())).collect();
        (!text.is_empty()).then(|| text.join(", "))
    }

    fn add(&self, resource: Resource, wanted: u64) -> Result<(), OverLimit> {
        let limit = self.limits.of(resource);
        let more = |used: u64| used.checked_add(wanted).filter(|&used| used <= limit);
        let added = self.used[resource as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let over = |used, host_lacks| OverLimit { resource, wanted, used, limit, host_lacks };
        let used = added.map_err(|used| over(used, false))?;
        if resource == Resource::HostBytes && !self.device.host.take(wanted) {
            self.used[resource as usize].fetch_sub(wanted, Ordering::Relaxed);
            return Err(over(used, true));
        }
        if is_bytes(resource) {
            self.device.bytes.fetch_add(wanted, Ordering::Relaxed);
        }
        Ok(())
    }

    fn give_back(&self, resource: Resource, amount: u64) {
        self.used[resource as usize].fetch_sub(amount, Ordering::Relaxed);
        if resource == Resource::HostBytes {
            self.device.host.give_back(amount);
        }
        if is_bytes(resource) {
            self.device.bytes.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}

const fn is_bytes(resource: Resource) -> bool {
    matches!(resource, Resource::HostBytes | Resource::DeviceBytes)
}

/// An amount that is charged to a session while this lives.
#[derive(Debug)]
#[must_use = "dropping it returns the charge"]
pub struct Charge {
    charges: Arc<Charges>,
    resource: Resource,
    amount: u64,
}

impl Charge {
    /// How much it is.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Charges more, unless the session would have more than it may: then it stays as it is.
    pub fn grow(&mut self, more: u64) -> Result<(), OverLimit> {
        self.charges.add(self.resource, more)?;
        self.amount += more;
        Ok(())
    }

    /// Returns all but `amount`, which is at most what it is.
    pub fn shrink_to(&mut self, amount: u64) {
        let less = self.amount.saturating_sub(amount);
        self.charges.give_back(self.resource, less);
        self.amount -= less;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.charges.give_back(self.resource, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charges(limits: Limits) -> (Arc<Charges>, Arc<DeviceCharges>) {
        let device = Arc::new(DeviceCharges::default());
        (Charges::new(1, limits, Arc::clone(&device)), device)
    }

    #[test]
    fn a_charge_is_counted_until_its_guard_is_dropped() {
        let (one, device) = charges(Limits { host_bytes: 100, ..Limits::default() });
        let two = Charges::new(2, Limits { host_bytes: 100, ..Limits::default() }, Arc::clone(&device));
        let mut first = one.take(Resource::HostBytes, 60).unwrap();
        let second = two.take(Resource::HostBytes, 100).unwrap();
        assert_eq!((one.bytes(), two.bytes(), device.bytes()), (60, 100, 160));
        let over =
            OverLimit { resource: Resource::HostBytes, wanted: 41, used: 60, limit: 100, host_lacks: false };
        assert_eq!(one.take(Resource::HostBytes, 41).unwrap_err(), over);
        assert_eq!(first.grow(41).unwrap_err(), over);
        assert_eq!(one.take(Resource::HostBytes, u64::MAX).unwrap_err().used, 60);
        first.grow(40).unwrap();
        first.shrink_to(10);
        assert_eq!((first.amount(), one.bytes()), (10, 10));
        drop((first, second));
        assert_eq!((one.bytes(), two.bytes(), device.bytes()), (0, 0, 0));
        assert_eq!(one.remaining(), None);
    }

    /// "Every allocation made for a guest can fail": what no host has is refused before anybody allocates it, and is not charged.
    #[test]
    fn what_the_host_does_not_have_is_refused_though_the_session_may_have_it() {
        let (one, device) = charges(Limits { host_bytes: u64::MAX, ..Limits::default() });
        let held = one.take(Resource::HostBytes, 5000).unwrap();
        let over = one.take(Resource::HostBytes, 1 << 62).unwrap_err();
        assert!(over.host_lacks && over.to_string().ends_with(", and the host has no memory"), "{over}");
        assert_eq!((one.bytes(), device.bytes()), (5000, 5000));
        drop(held);
        assert_eq!((one.bytes(), device.bytes()), (0, 0));
        assert_eq!(device.host.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_resource_has_its_own_limit() {
        let (charges, device) = charges(Limits { streams: 2, events: 1, ..Limits::default() });
        let held = (charges.take(Resource::Streams, 2).unwrap(), charges.take(Resource::Events, 1).unwrap());
        assert!(charges.take(Resource::Streams, 1).is_err() && charges.take(Resource::Events, 1).is_err());
        assert_eq!(charges.remaining().unwrap(), "2 streams, 1 events");
        assert_eq!(device.bytes(), 0, "handles are no bytes");
        drop(held);
        assert_eq!(charges.used(Resource::Streams), 0);
        for (index, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource as usize, index);
        }
    }

    #[test]
    fn mappings_of_all_sessions_stay_far_below_what_a_process_may_have() {
        let all = Limits::default().mappings * u64::from(vgpu_wire::registers::MAX_CHANNELS);
        assert!(2 * all <= mappings_of_process() / 2, "{all}");
        assert!(Limits::default().mappings > 0);
    }
}
