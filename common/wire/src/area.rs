//! Layout of a channel's area of the window.
//!
//! ```text
//!   0x00000  submit page   the guest writes, the host reads
//!   0x01000  return area   the host writes, the guest reads (unless it is in guest pages)
//!   0x20000  facts         the host writes, guests read (first channel's area only)
//!   0x30000  staging       copies back that find no room in the rest of the window
//!   0x40000  ring          the guest writes, the host reads
//!   0x80000  end
//! ```
//! Fields that different sides write, or that are polled at different rates, are on cache lines
//! of their own (64 bytes).

/// Length of an area in bytes. [`crate::registers::V2_AREA_STRIDE`] is at least as much.
pub const AREA_BYTES: u64 = 0x8_0000;

/// Offset of the submit page in the area.
pub const SUBMIT: u64 = 0;
/// Submit page, u64: bytes ever written to the ring. Storing it publishes the messages up to there.
pub const SUBMIT_TAIL: u64 = 0x00;
/// Submit page, u32: number of guest threads that sleep on the futex word [`RETURN_WAKE`]. The host wakes
/// nobody while it is 0.
pub const SUBMIT_SLEEPERS: u64 = 0x40;
/// Submit page, u32: number of the newest hold that the guest has released. Holds are released in the order
/// of their numbers. A GPU may poll this word itself, so that a release takes effect while the host does not
/// read the ring. To end a session, the host stores [`HOLD_MAX`], which releases every hold.
pub const SUBMIT_RELEASED: u64 = 0x80;
/// Submit page, u32: process id of the session's owner in its PID namespace, 0 if the owner does not state
/// it. The guest stores it after the other three fields that identify the owner; the host reads none of them.
/// A process that finds the channel's lock free learns from them whether the owner has died or has only
/// closed its descriptors.
pub const SUBMIT_PROCESS: u64 = 0xc0;
/// Submit page, u32: inode number of that PID namespace.
pub const SUBMIT_NAMESPACE: u64 = 0xc4;
/// Submit page, u64: start time of the owner, in clock ticks since the guest booted.
pub const SUBMIT_STARTED: u64 = 0xc8;
/// Submit page, u64: inode number of the program that the owner runs, 0 if it is not known.
pub const SUBMIT_PROGRAM: u64 = 0xd0;
/// Largest number that a hold may have ([`crate::body::stream::StreamHold::hold`]).
pub const HOLD_MAX: u32 = i32::MAX as u32;

/// Offset of the return area, unless the guest put it into guest pages.
pub const RETURN: u64 = 0x1000;
/// Length in bytes of the return area, a multiple of the page size.
pub const RETURN_BYTES: u64 = 0x1_8000;
/// Return area, u64: bytes of the ring that the host has consumed. The guest may overwrite them.
pub const RETURN_HEAD: u64 = 0x00;
/// Return area, u64: number of messages that the executor has taken. A message is consumed once it is copied
/// and checked, and counted here later.
pub const RETURN_DONE: u64 = 0x08;
/// Return area, u32: 1 while the host sleeps until the doorbell rings, otherwise 0.
pub const RETURN_HOST_SLEEPS: u64 = 0x40;
/// Return area, u32: futex word on which guest threads sleep. The host adds 1 before each wake.
pub const RETURN_WAKE: u64 = 0x80;
/// Return area, u32: code of the newest late error, a `CUresult`; 0 while there is none.
pub const RETURN_ERROR: u64 = 0xc0;
/// Return area, u32: combination of [`ERROR_STICKY`] and [`ERROR_ENDED`] for the newest late error.
pub const RETURN_ERROR_FLAGS: u64 = 0xc4;
/// Return area, u64: number of the message that caused the newest late error. Stored last: another number is
/// another error.
pub const RETURN_ERROR_MESSAGE: u64 = 0xc8;

/// Return area, u64: number of the message whose late error the fields of `RETURN_WHY` explain; 0 while there
/// is no explanation, and while one is being stored. The host stores the explanation before the error. Hosts
/// that do not explain leave these fields 0.
pub const RETURN_WHY: u64 = 0x100;
/// Return area, u32: 0 or [`WHY_ADDRESS`].
pub const RETURN_WHY_FLAGS: u64 = 0x108;
/// Return area, u32: length in bytes of the text, at most [`WHY_TEXT_MAX`].
pub const RETURN_WHY_BYTES: u64 = 0x10c;
/// Return area, u32: length in bytes of the kernel's mangled name, with which the text starts. The reason
/// follows.
pub const RETURN_WHY_KERNEL: u64 = 0x110;
/// Return area, u64: with [`WHY_ADDRESS`], the address that the work must not access.
pub const RETURN_WHY_AT: u64 = 0x118;
/// Return area: the text of the explanation, UTF-8 and without a trailing zero.
pub const RETURN_WHY_TEXT: u64 = 0x400;
/// Maximum length in bytes of the text: a name and a reason of [`REPLY_TEXT_MAX`] each.
pub const WHY_TEXT_MAX: usize = 2 * REPLY_TEXT_MAX;

/// [`RETURN_WHY_FLAGS`]: [`RETURN_WHY_AT`] is an address.
pub const WHY_ADDRESS: u32 = 1 << 0;

/// [`RETURN_ERROR_FLAGS`]: every later call of the session reports this error.
pub const ERROR_STICKY: u32 = 1 << 0;
/// [`RETURN_ERROR_FLAGS`]: the host has ended the session and reads its ring no more.
pub const ERROR_ENDED: u32 = 1 << 1;

/// Return area: the completion words, [`WORDS`] records of [`WORD_BYTES`].
pub const RETURN_WORDS: u64 = 0x1000;
/// Number of completion words of a channel. Word 0 means that no word is wanted.
pub const WORDS: u32 = 1024;
/// Length in bytes of a completion word's record: u64 value, u64 time.
pub const WORD_BYTES: u64 = 16;
/// In a word's record, u64: value of the newest mark whose work has completed.
pub const WORD_VALUE: u64 = 0;
/// In a word's record, u64: when that work completed, in nanoseconds of the host's clock. Stored before the
/// value.
pub const WORD_TIME: u64 = 8;

/// Return area: the reply slots, [`REPLIES`] records of [`REPLY_BYTES`].
pub const RETURN_REPLIES: u64 = 0x8000;
/// Number of reply slots, and so of round trips that can be outstanding.
pub const REPLIES: u32 = 32;
/// Length of a reply slot in bytes, header included.
pub const REPLY_BYTES: u64 = 0x800;
/// In a reply slot, u64: number of the message that is answered. Stored last.
pub const REPLY_TICKET: u64 = 0;
/// In a reply slot, u32: outcome of the call, a `CUresult`.
pub const REPLY_STATUS: u64 = 8;
/// In a reply slot, u32: length of the data in bytes, at most [`REPLY_DATA_MAX`].
pub const REPLY_LEN: u64 = 12;
/// In a reply slot: offset of the data.
pub const REPLY_DATA: u64 = 16;
/// Maximum length in bytes of a reply's data.
pub const REPLY_DATA_MAX: u64 = REPLY_BYTES - REPLY_DATA;
/// Maximum length in bytes of the UTF-8 text in which the reply of a failed call says why it failed.
pub const REPLY_TEXT_MAX: usize = 1024;

/// Returns the longest prefix of a text that the reply of a failed call, or the explanation of a late error,
/// can carry, cut between characters.
#[must_use]
pub fn reply_text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(REPLY_TEXT_MAX)]
}

/// Offset, in the first channel's area, of [`crate::facts::DeviceFacts`]. The host writes them before the
/// first guest can attach, so that a process can query the device without a session.
pub const FACTS: u64 = 0x2_0000;
/// Length in bytes of the window reserved for the facts, one page.
pub const FACTS_BYTES: u64 = 0x1000;

/// Offset of window memory that belongs to the channel, so that a download makes progress however full the
/// window is. An upload needs none: the ring carries it.
pub const STAGING: u64 = 0x3_0000;
/// Length of the staging memory in bytes.
pub const STAGING_BYTES: u64 = 0x1_0000;

/// Offset of the ring in the area.
pub const RING: u64 = 0x4_0000;
/// Length of the ring in bytes, a power of two.
pub const RING_BYTES: u64 = 0x4_0000;
/// Maximum length of a message in bytes, header and padding included. It is a quarter of the ring, so that a
/// writer never waits for an empty one.
pub const MESSAGE_MAX: u64 = RING_BYTES / 4;

/// Granularity in bytes of window memory: `WindowAlloc` rounds up to it.
pub const WINDOW_GRANULE: u64 = 0x1_0000;

const _: () = {
    assert!(RING_BYTES.is_power_of_two());
    assert!(RING + RING_BYTES == AREA_BYTES);
    assert!(RETURN + RETURN_BYTES <= FACTS);
    assert!(FACTS + FACTS_BYTES <= STAGING);
    assert!(STAGING + STAGING_BYTES <= RING);
    assert!(RETURN_WHY_TEXT + WHY_TEXT_MAX as u64 <= RETURN_WORDS);
    assert!(RETURN_WORDS + WORDS as u64 * WORD_BYTES <= RETURN_REPLIES);
    assert!(RETURN_REPLIES + REPLIES as u64 * REPLY_BYTES == RETURN_BYTES);
};
