//! The file that `libvgpu-trace.so` writes, one for each process, and that `vgpu-run trace` reads: a page of
//! header, then records of one size in the order in which they were begun. Both are plain bytes of which
//! every pattern is a value, for a process can be killed at any store.
//!
//! A call is written before it is made and completed when it returns, so that a record without an end is a
//! call in flight. Names travel in the file: a reader needs no table of the build that wrote it.

#![no_std]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The environment variable that names the folder; without it nothing is written.
pub const FOLDER: &str = "VGPU_TRACE";
/// How the files' names begin; the process id and the time of the first call follow.
pub const PREFIX: &str = "calls.";
/// The first word of a file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"vgputrce");
/// Changes with everything below.
pub const VERSION: u32 = 4;
/// No file grows beyond this; what does not fit is counted.
pub const FILE_MOST: usize = 64 << 20;
/// The symbol by which the transport hands in messages and waits; an [`Event`].
pub const EVENT: &str = "vgpu_trace_event";
/// The symbol by which libcuda hands in why the host refused a call; a [`Refused`].
pub const REFUSAL: &str = "vgpu_trace_refusal";

/// The symbol by which libcuda hands in the names of kernels; a [`Kernel`].
pub const KERNEL: &str = "vgpu_trace_kernel";

/// The first page of a file.
#[derive(Clone, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// Always [`MAGIC`].
    pub magic: u64,
    /// The [`VERSION`] of the format.
    pub version: u32,
    /// `size_of::<Record>()` of the writer.
    pub record_bytes: u32,
    /// Process id of the writer.
    pub process: u32,
    /// The one that started it.
    pub parent: u32,
    /// When the file was made, on CLOCK_MONOTONIC, as all times.
    pub opened: u64,
    /// Records that were begun, also those for which there was no room.
    pub begun: u64,
    /// Those for which there was no room.
    pub dropped: u64,
    /// Bytes of [`Self::command`].
    pub command_bytes: u32,
    /// The places of [`Self::current`] that are taken, a bit for each.
    pub taken: u32,
    /// Calls in flight that were begun when there was no more room for records.
    pub current: [Current; CURRENT],
    /// The beginning of `/proc/PID/cmdline`: arguments, each ended by a zero.
    pub command: [u8; COMMAND_MOST],
}

/// Calls in flight that a full file still holds.
pub const CURRENT: usize = 8;
/// Bytes of the command line that a file holds.
pub const COMMAND_MOST: usize = 2504;

/// A call in flight, with its name: who is named in a full file for the first time has no other.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct Current {
    /// Of kind [`RecordKind::Name`].
    pub name: Record,
    /// Of kind [`RecordKind::Call`]; [`RecordKind::Empty`] as soon as it has returned.
    pub call: Record,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// Not written to its end.
    Empty = 0,
    /// A call of an exported function.
    Call = 1,
    /// [`Record::text`] is the name of function [`Record::index`]. `depth` is its library's number, `flags` a
    /// [`Returns`].
    Name = 2,
    /// The file that library number `index` is from; part `depth` of it.
    Library = 3,
    /// The name of a thread.
    Thread = 4,
    /// Calls that are counted only: `result` of them, the first at `begin`, the last at `end`.
    Count = 5,
    /// A message to the host, of kind `index`: `result` bytes with header and padding, number `arguments[0]`.
    Message = 6,
    /// A wait for the host that was not over at once: for completion word `index`, [`WAIT_ANSWER`] or
    /// [`WAIT_ROOM`]. `arguments[0]` is not 0 if it slept.
    Wait = 7,
    /// The host refused the call of message kind `index`, or [`EARLIER_WORK`], with the status `result`. The
    /// parts of its reason follow on the same thread, each a [`RecordKind::Reason`]: `arguments[0]` bytes in
    /// all.
    Refusal = 8,
    /// [`Record::text`] is part `depth` of the reason for the thread's latest [`RecordKind::Refusal`].
    Reason = 9,
    /// A launch of function `index`, or of a [`GRAPH`], by message number `arguments[0]` of session `result`.
    Launch = 10,
    /// [`Record::text`] is part `depth` of the name of function `index` of session `flags`.
    Kernel = 11,
    /// A wait goes on, for what `index` says as of a [`RecordKind::Wait`], in session `arguments[0]`, whose
    /// host has carried out all messages to number `result`.
    Stall = 12,
}

impl RecordKind {
    /// All that may be in a file.
    pub const ALL: [Self; 13] = [
        Self::Empty,
        Self::Call,
        Self::Name,
        Self::Library,
        Self::Thread,
        Self::Count,
        Self::Message,
        Self::Wait,
        Self::Refusal,
        Self::Reason,
        Self::Launch,
        Self::Kernel,
        Self::Stall,
    ];

    /// Returns the kind of that number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// What a function's result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Returns {
    /// A status code.
    Status = 0,
    /// Something else, or nothing: the number says nothing about success.
    Other = 1,
}

/// A wait for the answer to a message.
pub const WAIT_ANSWER: u32 = u32::MAX;
/// A wait for room in the ring.
pub const WAIT_ROOM: u32 = u32::MAX - 1;

/// What a [`RecordKind::Launch`] launches if it is no kernel alone.
pub const GRAPH: u32 = u32::MAX;
/// What a [`RecordKind::Refusal`] is about if no call waited for it: work that the host was to do later.
pub const EARLIER_WORK: u32 = u32::MAX;

/// Set in `flags` of a call whose end cannot be seen: too deep.
pub const NOT_FOLLOWED: u16 = 1;

/// One record of the file. Its kind says what the fields mean.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// A [`RecordKind`]; written last.
    pub kind: u32,
    /// Of a function, library or message kind.
    pub index: u32,
    /// Linux thread id.
    pub thread: u32,
    /// How many traced calls enclose this one.
    pub depth: u16,
    /// [`NOT_FOLLOWED`], or as the kind says.
    pub flags: u16,
    /// Nanoseconds since boot at which it started.
    pub begin: u64,
    /// Nanoseconds; 0: in flight.
    pub end: u64,
    /// What the function returned in the integer register.
    pub result: u64,
    /// The first six integer registers: whatever the function has of arguments there, then leftovers.
    pub arguments: [u64; 6],
    /// Always 0.
    pub reserved: u64,
}

/// Bytes of text that a record holds.
pub const TEXT_MOST: usize = 80;
/// Where they begin.
pub const TEXT_AT: usize = 16;

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<Record>() == TEXT_AT + TEXT_MOST);

impl Record {
    /// Returns the text of a record that holds one, to its first zero.
    pub fn text(&self) -> &[u8] {
        let text = &self.as_bytes()[TEXT_AT..];
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        &text[..end]
    }
}

/// Writes a record of kind [`RecordKind::Message`], [`RecordKind::Wait`], [`RecordKind::Launch`] or
/// [`RecordKind::Stall`]: kind, index, begin, end (0: now), result, first argument.
pub type Event = extern "C" fn(u32, u32, u64, u64, u64, u64);

/// Bytes of a reason that a file holds: what the host may say, and the name of what it refused.
pub const REASON_MOST: usize = 2048;

/// Writes a record of kind [`RecordKind::Refusal`] and its reason: message kind, status, the reason's bytes
/// and their number.
///
/// # Safety
/// The bytes are readable until it returns.
pub type Refused = unsafe extern "C" fn(u32, u32, *const u8, usize);

/// Bytes of a kernel's name that a file holds.
pub const KERNEL_MOST: usize = 1024;

/// Writes records of kind [`RecordKind::Kernel`]: session, function, the name's bytes and their number.
///
/// # Safety
/// The bytes are readable until it returns.
pub type Kernel = unsafe extern "C" fn(u32, u32, *const u8, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_their_numbers() {
        for (number, kind) in RecordKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(RecordKind::from_number(number as u32), Some(kind));
        }
        assert_eq!(RecordKind::from_number(RecordKind::ALL.len() as u32), None);
    }

    #[test]
    fn text_ends_at_a_zero_or_the_end() {
        let mut record = Record::default();
        assert_eq!(record.text(), b"");
        record.as_mut_bytes()[TEXT_AT..TEXT_AT + 6].copy_from_slice(b"cuInit");
        assert_eq!(record.text(), b"cuInit");
        record.as_mut_bytes()[TEXT_AT..].fill(b'x');
        assert_eq!(record.text().len(), TEXT_MOST);
    }
}
