//! The form of a worker's part of a device's saved state, and which values are possible.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vgpu_device::{RestoreError, RetiredState};
use zerocopy::FromBytes;

use crate::shared::frame::{FRAME_ALIGN, FRAME_MAX, FrameHead, FrameKind};
use crate::shared::protocol;

/// Greatest number of anything that is counted, such as the nanoseconds of 146 years.
const COUNT_MOST: u64 = 1 << 62;
/// Maximum number of bytes of frames that wait: those of one message with the longest payload, and a few small
/// ones.
const BACKLOG_MAX: u64 = 66 << 20;

/// The executor's own numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecutorState {
    /// Number of workers that were started.
    pub(crate) started: u64,
    /// Unit in which workers take memory, in bytes.
    pub(crate) unit: u64,
    /// Device memory that a context is charged with, in bytes.
    pub(crate) context_bytes: u64,
}

/// A session, with its worker if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerSessionState {
    pub(crate) worker: Option<WorkerState>,
}

/// A worker process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerState {
    /// Number of the protocol that the worker was started with.
    pub(crate) protocol: u32,
    pub(crate) pid: u32,
    /// Whether there is a descriptor of the process.
    pub(crate) pidfd: bool,
    /// Time since the worker was started, in nanoseconds.
    pub(crate) age: u64,
    pub(crate) newest: u64,
    pub(crate) done_here: u64,
    pub(crate) asked: u64,
    pub(crate) known: u64,
    pub(crate) retirements: u64,
    pub(crate) files: u64,
    /// Number and kind of memory that the worker has not released yet.
    pub(crate) retired: Vec<(u64, RetiredState)>,
    /// Number of bytes ever written to the ring, all of which the worker may read.
    pub(crate) tail: u64,
    /// Number of bytes of the frames for which the ring has no room. They are a descriptor of the session.
    pub(crate) backlog: u64,
    pub(crate) usage: UsageState,
}

/// Device memory that a session holds beside what its worker reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageState {
    pub(crate) context: bool,
    /// Number and bytes of each request that the worker has not carried out.
    pub(crate) pending: Vec<(u64, u64)>,
    /// Number of requests of the worker's own that were granted, and their bytes that it has not reported.
    pub(crate) granted: u64,
    pub(crate) granted_bytes: u64,
}

fn require(possible: bool, field: &'static str, value: impl std::fmt::Display) -> Result<(), RestoreError> {
    if possible { Ok(()) } else { Err(RestoreError::field(field, value)) }
}

impl WorkerState {
    /// Checks the state of a worker of a session whose newest message has this number.
    pub(crate) fn check(&self, number: u64) -> Result<(), RestoreError> {
        protocol::accept(self.protocol)
            .map_err(|other| RestoreError::field("protocol of a worker", other))?;
        // Other numbers name no process, or several.
        require((2..=i32::MAX as u32).contains(&self.pid), "process of a worker", self.pid)?;
        require(self.age < COUNT_MOST, "age of a worker", self.age)?;
        for (field, value) in [
            ("number of the newest message that was forwarded", self.newest),
            ("number of messages that were done without the worker", self.done_here),
            ("number of the newest message that was asked about", self.asked),
            ("number of messages that the worker knows", self.known),
        ] {
            require(value <= number, field, value)?;
        }
        let mut numbers = BTreeSet::new();
        for (id, _) in &self.retired {
            let possible = (1..=self.retirements).contains(id) && numbers.insert(id);
            require(possible, "number of retired memory", id)?;
        }
        require(self.known <= self.newest, "number of messages that the worker knows", self.known)?;
        let counts = [self.retirements, self.files, self.usage.granted, self.usage.granted_bytes];
        let most = counts.into_iter().max().unwrap_or(0);
        require(most < COUNT_MOST, "number of something of a worker", most)?;
        let possible = self.tail.is_multiple_of(FRAME_ALIGN) && self.tail < COUNT_MOST;
        require(possible, "position in a worker's ring", self.tail)?;
        require(self.backlog <= BACKLOG_MAX, "size of frames that wait", self.backlog)?;
        let requests = &self.usage.pending;
        let ordered = requests.is_sorted_by_key(|request| request.0);
        let newest = requests.last().map_or(0, |request| request.0);
        require(ordered && newest <= number, "order of requests for memory", newest)
    }
}

/// Splits the first frame off, which could stand in the ring. Returns it and the rest.
pub(crate) fn split_frame(frames: &[u8]) -> Result<(&[u8], &[u8]), RestoreError> {
    let wrong = || RestoreError::field("frame of a worker's ring", format_args!("{} bytes", frames.len()));
    let (head, _) = FrameHead::read_from_prefix(frames).map_err(|_| wrong())?;
    let kind = FrameKind::from_number(head.kind).filter(|kind| *kind != FrameKind::Pad);
    let whole = (size_of::<FrameHead>() as u64..=FRAME_MAX).contains(&head.bytes.into());
    let split = frames.split_at_checked(head.bytes as usize);
    split.filter(|_| whole && kind.is_some()).ok_or_else(wrong)
}
