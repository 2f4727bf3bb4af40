//! Frames of the ring between the device's process and a worker: a head, a body, and padding to 16 bytes. The
//! device's process writes them, and the worker, which trusts it, checks only that they are whole.

use vgpu_device::SharedRange;
use vgpu_wire::area::MESSAGE_MAX;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of the ring in bytes, a power of two.
pub(crate) const RING_BYTES: u64 = 1 << 20;
/// Alignment of frames in bytes.
pub(crate) const FRAME_ALIGN: u64 = 16;
/// Size of the longest frame, which holds a refused message and the reason.
pub(crate) const FRAME_MAX: u64 = MESSAGE_MAX + 0x800;
/// Length of the longest reason of a refusal, in bytes.
pub(crate) const REASON_MAX: usize = 1024;
/// Largest part of a payload in one frame, in bytes.
pub(crate) const PIECE_MAX: usize = MESSAGE_MAX as usize;

/// Kinds of frames, which differ in the content of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum FrameKind {
    /// Fills the ring to its end. The body has no meaning.
    Pad = 0,
    /// The body is the message as the guest sent it. Payload frames before it belong to it.
    Message = 1,
    /// The body is a part of the payload of the next message.
    Payload = 2,
    /// The body is a [`RefusalRecord`], the reason, and a message that must not be carried out.
    Refuse = 3,
    /// The body is the number of a stream. Later messages start after all work that was submitted to the
    /// stream so far.
    Join = 4,
    /// The body is empty. All messages up to the head's number have been forwarded.
    Through = 5,
    /// The body is a [`GrantRecord`]. A grant of guest pages has a [`FileRun`] for each run of pages after
    /// it.
    Grant = 6,
    /// The body is a [`GrantRecord`]. The worker reports the head's number once nothing refers to the memory.
    Retire = 7,
    /// The body is empty. The worker reports the head's number once the work of all messages so far is
    /// complete on the GPU.
    Settle = 8,
}

impl FrameKind {
    pub(crate) const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Pad,
            1 => Self::Message,
            2 => Self::Payload,
            3 => Self::Refuse,
            4 => Self::Join,
            5 => Self::Through,
            6 => Self::Grant,
            7 => Self::Retire,
            8 => Self::Settle,
            _ => return None,
        })
    }
}

/// Head of a frame, which precedes the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FrameHead {
    /// Kind of the frame, as the number of a [`FrameKind`].
    pub(crate) kind: u32,
    /// Size of head and body in bytes, without padding.
    pub(crate) bytes: u32,
    /// Number of the message in its session. A `Retire` frame has a number of its own.
    pub(crate) number: u64,
}

/// First part of a refusal's body; the reason and the message follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RefusalRecord {
    /// The `CUresult` of the refusal.
    pub(crate) code: u32,
    /// Length of the reason in bytes. The reason is UTF-8 text.
    pub(crate) reason: u32,
}

/// A range of shared memory that the session gains or releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct GrantRecord {
    /// Segment of the guest pages; 0 is the window.
    segment: u32,
    reserved: u32,
    offset: u64,
    bytes: u64,
}

impl From<SharedRange> for GrantRecord {
    fn from(grant: SharedRange) -> Self {
        match grant {
            SharedRange::Window { offset, bytes } => Self { segment: 0, reserved: 0, offset, bytes },
            SharedRange::Pages { segment } => Self { segment, reserved: 0, offset: 0, bytes: 0 },
        }
    }
}

impl From<GrantRecord> for SharedRange {
    fn from(granted: GrantRecord) -> Self {
        match granted.segment {
            0 => Self::Window { offset: granted.offset, bytes: granted.bytes },
            segment => Self::Pages { segment },
        }
    }
}

/// A run of guest pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct FileRun {
    /// Number under which the file was sent.
    pub(crate) file: u64,
    /// Offset of the run in the file, in bytes.
    pub(crate) offset: u64,
    /// Length of the run in bytes.
    pub(crate) bytes: u64,
}

/// Returns the number of bytes in the ring that a frame of `bytes` bytes occupies.
pub(crate) const fn room(bytes: u64) -> u64 {
    bytes.div_ceil(FRAME_ALIGN) * FRAME_ALIGN
}
