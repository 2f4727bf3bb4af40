//! Frames of the ring between the device's process and a worker: a head, a body, and padding to 16 bytes. The
//! device's process writes them, and the worker, which trusts it, checks only that they are whole.

use vgpu_device::SharedRange;
use vgpu_wire::area::MESSAGE_MAX;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of the ring, a power of two.
pub(crate) const RING_BYTES: u64 = 1 << 20;
/// Frames begin at multiples of this many bytes.
pub(crate) const FRAME_ALIGN: u64 = 16;
/// The longest frame: a refused message and the reason.
pub(crate) const FRAME_MAX: u64 = MESSAGE_MAX + 0x800;
/// The longest reason of a refusal.
pub(crate) const REASON_MAX: usize = 1024;
/// The most of a payload in one frame.
pub(crate) const PIECE_MAX: usize = MESSAGE_MAX as usize;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum FrameKind {
    /// Fills the ring to its end.
    Pad = 0,
    /// A message as the guest sent it; payloads before it are its own.
    Message = 1,
    /// A piece of the payload of the message that follows.
    Payload = 2,
    /// [`Refusal`], the reason, and a message that is not carried out.
    Refuse = 3,
    /// A stream: later messages start after what it has been given so far.
    Join = 4,
    /// Nothing: all messages up to the head's number have been handed over.
    Through = 5,
    /// [`Granted`]; of guest pages, followed by a [`RunOf`] for each run.
    Grant = 6,
    /// [`Granted`], with the number by which the worker says that nothing refers to it any more.
    Retire = 7,
}

impl FrameKind {
    pub(crate) const fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Pad,
            1 => Self::Message,
            2 => Self::Payload,
            3 => Self::Refuse,
            4 => Self::Join,
            5 => Self::Through,
            6 => Self::Grant,
            7 => Self::Retire,
            _ => return None,
        })
    }
}

/// Head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Head {
    /// A [`FrameKind`].
    pub(crate) kind: u32,
    /// Bytes of head and body, without padding.
    pub(crate) bytes: u32,
    /// Number of the message in its session; of `Retire` another number.
    pub(crate) number: u64,
}

/// What precedes reason and message in a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Refusal {
    /// A `CUresult`.
    pub(crate) code: u32,
    /// Bytes of the reason, UTF-8.
    pub(crate) reason: u32,
}

/// Shared memory that becomes the session's or is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Granted {
    /// 0: the window.
    segment: u32,
    reserved: u32,
    offset: u64,
    bytes: u64,
}

impl From<SharedRange> for Granted {
    fn from(grant: SharedRange) -> Self {
        match grant {
            SharedRange::Window { offset, bytes } => Self { segment: 0, reserved: 0, offset, bytes },
            SharedRange::Pages { segment } => Self { segment, reserved: 0, offset: 0, bytes: 0 },
        }
    }
}

impl From<Granted> for SharedRange {
    fn from(granted: Granted) -> Self {
        match granted.segment {
            0 => Self::Window { offset: granted.offset, bytes: granted.bytes },
            segment => Self::Pages { segment },
        }
    }
}

/// A run of guest pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RunOf {
    /// The number that the file came with.
    pub(crate) file: u64,
    /// Where in the file.
    pub(crate) offset: u64,
    /// Length.
    pub(crate) bytes: u64,
}

/// What a frame of so many bytes takes of the ring.
pub(crate) const fn room(bytes: u64) -> u64 {
    bytes.div_ceil(FRAME_ALIGN) * FRAME_ALIGN
}
