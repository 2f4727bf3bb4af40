//! The report of the control socket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::accesses::Accesses;

/// State of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Index of the session's channel.
    pub channel: u32,
    /// The session's number.
    pub session: u32,
    /// Process id of the guest, as it stated it.
    pub process: u32,
    /// State of the session: "attached", "held", "failed", or "ending" if it was told to end and its work
    /// continues.
    pub state: String,
    /// Number of bytes of device memory that the session has allocated.
    pub allocated: u64,
    /// Number of allocations of device memory that the session has.
    pub allocations: u32,
    /// Number of bytes of host and device memory that are charged to the session.
    #[serde(default)]
    pub charged_bytes: u64,
    /// Time in microseconds that the executor has worked for the session. The soft executor counts the time
    /// of each operation. The cuda executor counts the time during which the session has work on the GPU that
    /// is not known to be complete, which is at least the time that the GPU took, because waiting for its
    /// turn counts too.
    #[serde(default)]
    pub busy_us: u64,
    /// Number of GPU contexts of the session, which is 0 for an executor without contexts.
    #[serde(default)]
    pub contexts: u32,
    /// Number of bytes of window memory that the session owns.
    pub window_bytes: u64,
    /// Number of bytes of guest pages that the device has mapped for the session.
    #[serde(default)]
    pub page_bytes: u64,
    /// Number of streams other than the default one.
    pub streams: u32,
    /// Number of events that the guest has created.
    pub events: u32,
    /// Number of modules that the session has.
    pub modules: u32,
    /// Process id of the worker process that carries the session's messages out, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// Number of messages read from the ring.
    pub messages: u64,
    /// Number of messages carried out.
    pub done: u64,
    /// Number of times that the session's thread went to sleep.
    pub host_sleeps: u64,
    /// Number of bytes in the ring that are not reported as read. If it is 0 and all messages that were read
    /// are carried out, the counters below include everything that the guest has sent.
    pub unread: u64,
    /// Number of messages that passed their checks, by the name of their kind.
    pub kinds: BTreeMap<String, u64>,
    /// Number of joins, as flags of other messages and as messages of their own.
    pub joins: u64,
    /// Number of messages whose effect the guest has to wait for: those that have an answer, signals, and
    /// copies to the guest.
    pub waits: u64,
    /// Number of bytes copied to the device.
    pub bytes_in: u64,
    /// Number of bytes copied from the device.
    pub bytes_out: u64,
    /// Number of doorbells since the session started.
    pub doorbells: u64,
}

/// State of a device and its sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// PCI address of the device.
    pub address: String,
    /// Name of the executor.
    pub executor: String,
    /// Number of this start of the device, which distinguishes it from others.
    pub generation: u32,
    /// Number of bytes of device memory.
    pub total: u64,
    /// Number of these bytes that are in use.
    pub allocated: u64,
    /// Number of bytes of host and device memory that are charged to sessions.
    #[serde(default)]
    pub charged_bytes: u64,
    /// Number of bytes of images that the device keeps for later sessions and charges to none.
    #[serde(default)]
    pub kept_image_bytes: u64,
    /// Number of worker processes that were started. Absent for an executor without worker processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_started: Option<u64>,
    /// Number of these processes that have not been reaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_running: Option<u64>,
    /// Number of GPU contexts of all sessions.
    #[serde(default)]
    pub contexts: u64,
    /// Number of bytes of device memory that each context costs. `allocated` includes them.
    #[serde(default)]
    pub context_bytes: u64,
    /// Sessions that are attached, have failed or are ending, in the order of their channels.
    pub sessions: Vec<SessionStatus>,
    /// Number of free channels. A device of version 1 has no channels, and reports 0.
    pub free_channels: usize,
    /// Duration in microseconds of the longest access to a register.
    #[serde(default)]
    pub longest_access_us: u64,
    /// Duration in microseconds of the longest attach. A device of version 1 reports 0.
    #[serde(default)]
    pub longest_attach_us: u64,
    /// Number of accesses of guests to the device's registers and data window. Each access is an exit of a
    /// virtual machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accesses: Option<Accesses>,
}

/// State of all devices of a bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusStatus {
    /// Devices in the order of their addresses.
    pub devices: Vec<DeviceStatus>,
}
