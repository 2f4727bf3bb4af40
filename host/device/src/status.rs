//! What the control socket reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accesses::Accesses;

/// A session's share of its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Index of the channel.
    pub channel: u32,
    /// The session's number.
    pub session: u32,
    /// The guest's process id, as it said.
    pub process: u32,
    /// "attached", "held", "failed", or "ending": it was told to end and is in the middle of work.
    pub state: String,
    /// Bytes of device memory.
    pub allocated: u64,
    /// Allocations of device memory.
    pub allocations: u32,
    /// Bytes of host and device memory that the session is charged.
    #[serde(default)]
    pub charged_bytes: u64,
    /// Microseconds that the executor has worked for the session. The soft executor counts the time of each
    /// operation. The cuda executor counts the time during which the session has work on the GPU that is not
    /// known to be complete, which is at least the time that the GPU took: waiting for its turn counts too.
    #[serde(default)]
    pub busy_us: u64,
    /// GPU contexts that the session has; 0 for an executor that makes none.
    #[serde(default)]
    pub contexts: u32,
    /// Bytes of window memory.
    pub window_bytes: u64,
    /// Bytes of guest pages that the device has mapped for it.
    #[serde(default)]
    pub page_bytes: u64,
    /// Streams, the default one not counted.
    pub streams: u32,
    /// Number of events.
    pub events: u32,
    /// Number of modules.
    pub modules: u32,
    /// Process id of the worker process that carries the session's messages out, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// Messages taken from the ring.
    pub messages: u64,
    /// Messages carried out.
    pub done: u64,
    /// How often the session's thread went to sleep.
    pub host_sleeps: u64,
    /// Bytes in the ring that are not reported read. With none, and as many messages done as taken, all that
    /// the guest sent so far is in the counters below.
    pub unread: u64,
    /// Messages carried out, by the name of their kind.
    pub kinds: BTreeMap<String, u64>,
    /// Joins: flags on other messages, and messages of their own.
    pub joins: u64,
    /// Messages whose effect the guest has to wait for: those that are answered, signals, and copies to the
    /// guest.
    pub waits: u64,
    /// Bytes that copies brought to the device.
    pub bytes_in: u64,
    /// Bytes that copies brought from the device.
    pub bytes_out: u64,
    /// How often the guest rang.
    pub doorbells: u64,
}

/// A device and its sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// PCI address of the device.
    pub address: String,
    /// Name of the executor.
    pub executor: String,
    /// The device's generation.
    pub generation: u32,
    /// Bytes of device memory.
    pub total: u64,
    /// Of these, bytes in use.
    pub allocated: u64,
    /// Bytes of host and device memory that are charged to sessions: 0 when none is left.
    #[serde(default)]
    pub charged_bytes: u64,
    /// Bytes of images that the device keeps for later sessions, charged to none.
    #[serde(default)]
    pub kept_image_bytes: u64,
    /// Worker processes that were started; not there for an executor without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_started: Option<u64>,
    /// Of these, processes that have not been reaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_running: Option<u64>,
    /// GPU contexts of the sessions; 0 for an executor that makes none.
    #[serde(default)]
    pub contexts: u64,
    /// Sessions that are attached, have failed or are ending, in the order of their channels.
    pub sessions: Vec<SessionStatus>,
    /// Channels that nobody is attached to; 0 for a device of version 1, which has none.
    pub free_channels: usize,
    /// The longest time that a guest's access to a register took to be served, in microseconds.
    #[serde(default)]
    pub longest_access_us: u64,
    /// The longest of these that was an attach. Of a device of version 1, which has none: 0.
    #[serde(default)]
    pub longest_attach_us: u64,
    /// How often guests reached for the device's registers and data window: each access is an exit of a
    /// virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses: Option<Accesses>,
}

/// All devices of a bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusStatus {
    /// In the order of their addresses.
    pub devices: Vec<DeviceStatus>,
}
