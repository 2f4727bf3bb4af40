//! Format of the file that `libvgpu-trace.so` writes, one for each process, and that `vgpu-run trace` reads:
//! a page of header, then records of one size in the order in which they were started. Both consist of plain
//! integers and bytes for which every pattern is valid, because a process can be killed at any store.
//!
//! A call is written before it is made and completed when it returns, so a record without an end is a call in
//! flight. Names are stored in the file: a reader needs no table of the build that wrote it.

#![no_std]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Environment variable that names the directory of the files. Without it nothing is written.
pub const FOLDER: &str = "VGPU_TRACE";
/// Prefix of the files' names. The process id and the time of the first call follow.
pub const PREFIX: &str = "calls.";
/// First word of a file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"vgputrce");
/// Version of the format, which changes with every change below.
pub const VERSION: u32 = 4;
/// Maximum length of a file in bytes. Records that do not fit are counted.
pub const FILE_MOST: usize = 64 << 20;
/// Symbol of the function by which the transport writes messages and waits, an [`Event`].
pub const EVENT: &str = "vgpu_trace_event";
/// Symbol of the function by which libcuda writes why the host refused a call, a [`Refused`].
pub const REFUSAL: &str = "vgpu_trace_refusal";

/// Symbol of the function by which libcuda writes the names of kernels, a [`Kernel`].
pub const KERNEL: &str = "vgpu_trace_kernel";

/// First page of a file.
#[derive(Clone, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// Magic number, always [`MAGIC`].
    pub magic: u64,
    /// The [`VERSION`] of the format.
    pub version: u32,
    /// `size_of::<Record>()` of the writer.
    pub record_bytes: u32,
    /// Process id of the writer.
    pub process: u32,
    /// Process id of the parent of the writer.
    pub parent: u32,
    /// Time at which the file was created, in nanoseconds on CLOCK_MONOTONIC like all times.
    pub opened: u64,
    /// Number of records started, including those for which there was no room.
    pub begun: u64,
    /// Number of records for which there was no room.
    pub dropped: u64,
    /// Length of [`Self::command`] in bytes.
    pub command_bytes: u32,
    /// Bit mask of the entries of [`Self::current`] that are in use.
    pub taken: u32,
    /// Calls in flight that started when there was no more room for records.
    pub current: [Current; CURRENT],
    /// Start of `/proc/PID/cmdline`: arguments, each with a zero at its end.
    pub command: [u8; COMMAND_MOST],
}

/// Maximum number of calls in flight that a full file can hold.
pub const CURRENT: usize = 8;
/// Maximum length in bytes of the command line that a file holds.
pub const COMMAND_MOST: usize = 2504;

/// A call in flight with its name, since a function that is first called when the file is full has no other
/// record of its name.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct Current {
    /// Record of kind [`RecordKind::Name`].
    pub name: Record,
    /// Record of kind [`RecordKind::Call`], or [`RecordKind::Empty`] once the call has returned.
    pub call: Record,
}

/// Kind of a record, which determines the meaning of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// Not written to its end.
    Empty = 0,
    /// The record is a call of an exported function.
    Call = 1,
    /// [`Record::text`] is the name of function [`Record::index`]. `depth` is its library's number, `flags` a
    /// [`Returns`].
    Name = 2,
    /// [`Record::text`] is part `depth` of the path of the file that library number `index` was loaded from.
    Library = 3,
    /// [`Record::text`] is the name of a thread.
    Thread = 4,
    /// Calls that are only counted: `result` of them, the first at `begin`, the last at `end`.
    Count = 5,
    /// A message to the host, of kind `index`: `result` bytes with header and padding, number `arguments[0]`.
    Message = 6,
    /// A wait for the host that was not over at once: for completion word `index`, [`WAIT_ANSWER`] or
    /// [`WAIT_ROOM`]. `arguments[0]` is not 0 if the thread slept.
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

/// Meaning of a function's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Returns {
    /// The result is a status code.
    Status = 0,
    /// The result is another value, or there is none. It does not tell whether the call succeeded.
    Other = 1,
}

/// [`Record::index`] of a wait for the reply to a message.
pub const WAIT_ANSWER: u32 = u32::MAX;
/// [`Record::index`] of a wait for room in the ring.
pub const WAIT_ROOM: u32 = u32::MAX - 1;

/// [`Record::index`] of a launch of a graph instead of a kernel.
pub const GRAPH: u32 = u32::MAX;
/// [`Record::index`] of a refusal that no call waited for: it concerns work that the host was to execute
/// later.
pub const EARLIER_WORK: u32 = u32::MAX;

/// Flag of a call whose end cannot be recorded, because it is nested too deeply.
pub const NOT_FOLLOWED: u16 = 1;

/// One record of the file. Its kind determines what the fields mean.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Number of a [`RecordKind`]. It is written last.
    pub kind: u32,
    /// Index of a function, a library or a message kind.
    pub index: u32,
    /// Linux thread id.
    pub thread: u32,
    /// Number of traced calls that enclose this one.
    pub depth: u16,
    /// [`NOT_FOLLOWED`], or flags that the kind defines.
    pub flags: u16,
    /// Time at which the call started, in nanoseconds on CLOCK_MONOTONIC.
    pub begin: u64,
    /// Time at which the call ended, in nanoseconds on CLOCK_MONOTONIC; 0 while it is in flight.
    pub end: u64,
    /// Value of the integer register in which the function returns its result.
    pub result: u64,
    /// Values of the first six integer argument registers. Those that the function has no arguments for hold
    /// leftovers.
    pub arguments: [u64; 6],
    /// Reserved, always 0.
    pub reserved: u64,
}

/// Maximum length in bytes of the text of a record.
pub const TEXT_MOST: usize = 80;
/// Offset of the text in a record.
pub const TEXT_AT: usize = 16;

const _: () = assert!(size_of::<Header>() == 4096 && size_of::<Record>() == TEXT_AT + TEXT_MOST);

impl Record {
    /// Returns the text of a record that holds one, up to its first zero.
    pub fn text(&self) -> &[u8] {
        let text = &self.as_bytes()[TEXT_AT..];
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        &text[..end]
    }
}

/// Writes a record of kind [`RecordKind::Message`], [`RecordKind::Wait`], [`RecordKind::Launch`] or
/// [`RecordKind::Stall`]: kind, index, start and end time (0: now), result, first argument.
pub type Event = extern "C" fn(u32, u32, u64, u64, u64, u64);

/// Maximum length in bytes of a reason that a file holds: the host's text, and the name of what it refused.
pub const REASON_MOST: usize = 2048;

/// Writes a record of kind [`RecordKind::Refusal`] and its reason: message kind, status, the reason's bytes
/// and their number.
///
/// # Safety
/// The bytes are readable until the call returns.
pub type Refused = unsafe extern "C" fn(u32, u32, *const u8, usize);

/// Maximum length in bytes of a kernel's name that a file holds.
pub const KERNEL_MOST: usize = 1024;

/// Writes records of kind [`RecordKind::Kernel`]: session, function, the name's bytes and their number.
///
/// # Safety
/// The bytes are readable until the call returns.
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
