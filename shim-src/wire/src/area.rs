//! A channel's area of the window: what lies where.
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

/// Bytes of an area.
pub const AREA_BYTES: u64 = 0x8_0000;

/// Offset of the submit page.
pub const SUBMIT: u64 = 0;
/// Submit page, u64: bytes ever written to the ring.
pub const SUBMIT_TAIL: u64 = 0x00;
/// Submit page, u32: how many guest threads sleep and want to be woken.
pub const SUBMIT_SLEEPERS: u64 = 0x40;

/// Offset of the return area, when it is not in guest pages.
pub const RETURN: u64 = 0x1000;
/// Bytes of the return area.
pub const RETURN_BYTES: u64 = 0x1_8000;
/// Return area, u64: bytes of the ring consumed; their space may be written again.
pub const RETURN_HEAD: u64 = 0x00;
/// Return area, u64: messages carried out. A message is consumed when copied and checked, and
/// counted here when the executor has taken it.
pub const RETURN_DONE: u64 = 0x08;
/// Return area, u32: 1 while the host sleeps and wants the doorbell.
pub const RETURN_HOST_SLEEPS: u64 = 0x40;
/// Return area, u32: the futex word; the host adds 1 before each wake.
pub const RETURN_WAKE: u64 = 0x80;
/// Return area, u32: code of the newest late error, a `CUresult`; 0: none so far.
pub const RETURN_ERROR: u64 = 0xc0;
/// Return area, u32: [`ERROR_STICKY`] and [`ERROR_ENDED`].
pub const RETURN_ERROR_FLAGS: u64 = 0xc4;
/// Return area, u64: number of the message that caused it. Stored last: a new number is a new error.
pub const RETURN_ERROR_MESSAGE: u64 = 0xc8;

/// [`RETURN_ERROR_FLAGS`]: every later call reports it.
pub const ERROR_STICKY: u32 = 1 << 0;
/// [`RETURN_ERROR_FLAGS`]: the host ended the session and reads no more.
pub const ERROR_ENDED: u32 = 1 << 1;

/// Return area: the completion words, [`WORDS`] records of [`WORD_BYTES`].
pub const RETURN_WORDS: u64 = 0x1000;
/// How many completion words a channel has; word 0 is none.
pub const WORDS: u32 = 1024;
/// Bytes of a completion word's record: u64 value, u64 time.
pub const WORD_BYTES: u64 = 16;
/// In a word's record, u64: the value of the newest mark that is done.
pub const WORD_VALUE: u64 = 0;
/// In a word's record, u64: nanoseconds on the executor's clock at that moment; stored first.
pub const WORD_TIME: u64 = 8;

/// Return area: the reply slots, [`REPLIES`] of [`REPLY_BYTES`].
pub const RETURN_REPLIES: u64 = 0x8000;
/// How many replies can be outstanding.
pub const REPLIES: u32 = 32;
/// Bytes of a reply slot.
pub const REPLY_BYTES: u64 = 0x800;
/// In a reply slot, u64: number of the message that is answered; stored last.
pub const REPLY_TICKET: u64 = 0;
/// In a reply slot, u32: status, a `CUresult`.
pub const REPLY_STATUS: u64 = 8;
/// In a reply slot, u32: bytes of data.
pub const REPLY_LEN: u64 = 12;
/// In a reply slot: the data.
pub const REPLY_DATA: u64 = 16;
/// The most data a reply can carry.
pub const REPLY_DATA_MAX: u64 = REPLY_BYTES - REPLY_DATA;
/// The most bytes of text that the reply of a failed call can carry: why it failed, UTF-8.
pub const REPLY_TEXT_MAX: usize = 1024;

/// As much of a text as the reply of a failed call can carry.
#[must_use]
pub fn reply_text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(REPLY_TEXT_MAX)]
}

/// Offset, in the first channel's area, of [`crate::facts::DeviceFacts`]: the host writes them before the first guest
/// can attach, so that a process which only looks at the device needs no session.
pub const FACTS: u64 = 0x2_0000;
/// Bytes of window that the facts have for themselves.
pub const FACTS_BYTES: u64 = 0x1000;

/// Offset of a little window memory that is always the session's: a copy back makes progress however full the window is. What
/// goes to the device needs none, the ring carries it.
pub const STAGING: u64 = 0x3_0000;
/// Bytes of it.
pub const STAGING_BYTES: u64 = 0x1_0000;

/// Offset of the ring.
pub const RING: u64 = 0x4_0000;
/// Bytes of the ring, a power of two.
pub const RING_BYTES: u64 = 0x4_0000;
/// The longest message, header and padding included. A quarter of the ring, so that a writer never waits for an empty one.
pub const MESSAGE_MAX: u64 = RING_BYTES / 4;

/// Granule of window memory handed out by `WindowAlloc`.
pub const WINDOW_GRANULE: u64 = 0x1_0000;

const _: () = {
    assert!(RING_BYTES.is_power_of_two());
    assert!(RING + RING_BYTES == AREA_BYTES);
    assert!(RETURN + RETURN_BYTES <= FACTS);
    assert!(FACTS + FACTS_BYTES <= STAGING);
    assert!(STAGING + STAGING_BYTES <= RING);
    assert!(RETURN_WORDS + WORDS as u64 * WORD_BYTES <= RETURN_REPLIES);
    assert!(RETURN_REPLIES + REPLIES as u64 * REPLY_BYTES == RETURN_BYTES);
};
