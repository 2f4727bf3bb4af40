//! Rules for where a payload lies: in the inline registers of BAR0, in the shared window, or in BAR1. The
//! device decides by the contents of these, and the guest must predict its decision.

use super::call::{Op, is_bulk};
use super::{INLINE_BYTES, PAYLOAD_MAX};

/// Location of the payload of a call, or of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The call or the answer has no payload.
    Nowhere,
    /// The payload lies in the inline registers of BAR0.
    Inline,
    /// The payload lies in BAR1.
    Bar1,
    /// The payload lies in the shared window: in its first half for the host, in its second for the guest.
    Window,
}

/// Settings of a device for bulk payloads, made by the host's administrator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// `prefer_bar1_htod`: uploads are read from BAR1 when its first bytes are not all zero.
    pub prefer_bar1_htod: bool,
    /// `authoritative_shmem_libload`: a library is read from the window even if the window's first bytes are
    /// zero.
    pub authoritative_library: bool,
    /// `probe_fresh_shmem_libload`: the device reads the guest's pages anew before it decides where a library
    /// is.
    pub probe_fresh_library: bool,
}

/// Length in bytes of the prefix that the device checks for nonzero bytes to find a bulk payload.
pub const PREFIX_BYTES: u32 = 512;

/// Where a device finds nonzero bytes when a bulk call arrives. Each field covers the first [`PREFIX_BYTES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Whether the window's first bytes are not all zero.
    pub window: bool,
    /// Whether the first bytes of the guest's pages, read anew, are not all zero.
    pub window_fresh: bool,
    /// Whether BAR1's first bytes are not all zero.
    pub bar1: bool,
}

/// Returns where the device reads a call's payload of `bytes` bytes, and how many it reads. A payload that
/// does not fit is truncated silently, and the mediator then closes the connection (Q7). `half` is the length
/// in bytes of the registered window's first half, 0 without a window.
#[must_use]
pub fn to_host(op: u32, bytes: u32, half: u32, seen: Prefixes, prefer: Preferences) -> (Place, u32) {
    if bytes == 0 {
        return (Place::Nowhere, 0);
    }
    if bytes <= INLINE_BYTES {
        return (Place::Inline, bytes);
    }
    if is_bulk(op) && bytes <= PAYLOAD_MAX {
        let place = if half != 0 && bytes <= half { bulk(op, seen, prefer) } else { Place::Bar1 };
        return (place, bytes);
    }
    if half != 0 { (Place::Window, bytes.min(half)) } else { (Place::Bar1, bytes.min(PAYLOAD_MAX)) }
}

/// Returns where the device reads a bulk payload that fits the window. That is the window, except for an
/// upload or a library of which only BAR1 shows nonzero first bytes (Q6), and as [`Preferences`] changes it.
fn bulk(op: u32, seen: Prefixes, prefer: Preferences) -> Place {
    let copy = op == Op::MemcpyHtoD as u32 || op == Op::MemcpyHtoDAsync as u32;
    let library = op == Op::LibraryLoadData as u32;
    if prefer.prefer_bar1_htod && seen.bar1 && copy {
        return Place::Bar1;
    }
    if seen.window {
        return Place::Window;
    }
    if library && (prefer.probe_fresh_library && seen.window_fresh || prefer.authoritative_library) {
        return Place::Window;
    }
    if seen.bar1 && (copy || library) { Place::Bar1 } else { Place::Window }
}

/// Returns where the device writes a payload of `bytes` bytes that came back, and how many it writes. `half`
/// is as for [`to_host`].
#[must_use]
pub fn to_guest(bytes: u32, half: u32) -> (Place, u32) {
    match bytes {
        0 => (Place::Nowhere, 0),
        1..=INLINE_BYTES => (Place::Inline, bytes),
        _ if half != 0 => (Place::Window, bytes.min(half)),
        _ => (Place::Bar1, bytes.min(PAYLOAD_MAX)),
    }
}

/// Returns the maximum length in bytes of a payload that arrives whole, each way. `half` is as for
/// [`to_host`].
#[must_use]
pub const fn limit(half: u32) -> u32 {
    match half {
        // BAR1's second half ends with the status (Q3). A load of 8 bytes that ends with it loses the 4 bytes
        // before it, too (Q28).
        0 => PAYLOAD_MAX - 8,
        1..PAYLOAD_MAX => half,
        _ => PAYLOAD_MAX,
    }
}
