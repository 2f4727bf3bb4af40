//! The form of a device's saved state, with a structure for each part of the device. `device/state_check.rs`
//! says which values are possible.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::saved::bytes::HexBytes;

/// The state of a paused device, without its descriptors. It is written and read as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceState {
    /// [`super::error::STATE_VERSION`] of the program that wrote it.
    pub(crate) version: u32,
    /// Version and digest of the contract that the attached guests were built for.
    pub(crate) wire_version: u32,
    pub(crate) wire_digest: u64,
    pub(crate) address: String,
    pub(crate) executor: String,
    /// [`vgpu_wire::facts::DeviceFacts`] that guests have read.
    pub(crate) facts: HexBytes,
    pub(crate) generation: u32,
    /// Key of guest pages, or 0 if the device accepts none.
    pub(crate) pages_key: u64,
    pub(crate) window_bytes: u64,
    /// Time on the device's clock, in nanoseconds. It stands still until the device is restored: the marks of
    /// a session all come from its worker process, whose clock goes on.
    pub(crate) clock: u64,
    pub(crate) next_session: u32,
    /// Whether an operator holds the sessions.
    pub(crate) held: bool,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) ended: EndedState,
    pub(crate) channels: Vec<ChannelState>,
    /// State that the executor keeps for all its sessions, in its own form.
    pub(crate) executor_state: Value,
}

/// Work of the sessions that have ended, and the number of those that ended for each reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndedState {
    pub(crate) busy_ns: u64,
    pub(crate) launches: u64,
    pub(crate) copied_in: u64,
    pub(crate) copied_out: u64,
    pub(crate) out_of_memory: u64,
    pub(crate) violation: u64,
    pub(crate) worker: u64,
    pub(crate) operator: u64,
}

/// A channel and its session, if it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChannelState {
    /// Registers that keep what a guest wrote, in the order of the channel's list.
    pub(crate) written: [u32; 8],
    pub(crate) doorbells: u64,
    pub(crate) earlier_doorbells: u64,
    /// Whether the area has storage.
    pub(crate) reserved: bool,
    pub(crate) error: u32,
    pub(crate) session: Option<SessionState>,
}

/// A session that is attached or has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionState {
    pub(crate) number: u32,
    pub(crate) process: u32,
    pub(crate) memory: MemoryState,
    /// Whether a sticky error is stored.
    pub(crate) sticky: bool,
    pub(crate) figures: FiguresState,
    /// What the session's thread knows, or `None` if the session has failed.
    pub(crate) running: Option<RunningState>,
}

/// Shared memory that a session owns beside its channel's area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryState {
    /// Whether the session may register guest pages.
    pub(crate) may_register: bool,
    /// Guest-physical address of the return area, if that is in guest pages.
    pub(crate) returns: Option<u64>,
    /// Offset and bytes of each range of the window.
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) segments: Vec<SegmentState>,
}

/// A segment of guest pages: guest-physical address and bytes of each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SegmentState {
    pub(crate) number: u32,
    pub(crate) runs: Vec<(u64, u64)>,
}

/// Memory that a session has retired and that is still in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum RetiredState {
    /// A range of the window.
    Window {
        /// Offset in the window.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A segment of guest pages, whose guest waits for an answer.
    Pages {
        /// Number of the segment.
        segment: u32,
        /// Guest-physical address and bytes of each run.
        runs: Vec<(u64, u64)>,
        /// Slot of the answer.
        slot: u32,
        /// Number of the message that is answered.
        number: u64,
    },
}

/// Counters of a session, which go on from these values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FiguresState {
    pub(crate) busy_ns: u64,
    pub(crate) out_of_memory: u64,
    pub(crate) out_of_memory_in_worker: u64,
    pub(crate) messages: u64,
    pub(crate) done: u64,
    pub(crate) host_sleeps: u64,
    /// Number and count of each kind of message that has occurred.
    pub(crate) kinds: Vec<(u16, u64)>,
    pub(crate) joins: u64,
    pub(crate) waits: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) in_graphs: u64,
}

/// State of a session's thread between two messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunningState {
    /// Number of bytes of the ring that were returned as messages.
    pub(crate) head: u64,
    /// Number of carried-out messages that was last stored for the guest by this process.
    pub(crate) done: u64,
    /// Number of the newest message that was dispatched.
    pub(crate) number: u64,
    /// A message that was taken from the ring and not dispatched.
    pub(crate) taken: Option<HexBytes>,
    pub(crate) dispatch: DispatchState,
    /// State of the executor's session, in the executor's own form.
    pub(crate) executor: Value,
}

/// The tables that messages are checked against.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DispatchState {
    /// Word and highest value of each completion word that was promised.
    pub(crate) promised: Vec<(u32, u64)>,
    /// Numbers of the streams, events, holds and graphs that are charged.
    pub(crate) handles: [Vec<u32>; 4],
    pub(crate) graphs: Vec<GraphState>,
    /// Whether a stream, event, hold or graph was ever refused.
    pub(crate) refused: [bool; 4],
    /// A message that was checked and waits to be carried out. It is number [`RunningState::number`].
    pub(crate) pending: Option<PendingState>,
}

/// A graph, as far as the checks of its launches and updates need it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GraphState {
    pub(crate) number: u32,
    /// Kind of each node.
    pub(crate) kinds: Vec<u16>,
    /// Index of each node that copies, with the bytes that it copies to and from the device.
    pub(crate) copies: Vec<(u32, u64, u64)>,
}

/// A message that was checked and waits to be carried out, because the device was paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingState {
    pub(crate) message: HexBytes,
    /// Number of bytes of the records of a graph that did not come in the message itself. They are a
    /// descriptor of the session.
    pub(crate) records: Option<u64>,
}
