//! Which of three places a payload takes. The device decides, from what it sees; the guest must come to the same answer.

use super::call::{Op, is_bulk};
use super::{INLINE_BYTES, PAYLOAD_MAX};

/// Where payload lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is none.
    Nowhere,
    /// In BAR0.
    Inline,
    /// In BAR1.
    Bar1,
    /// In the shared window: the first half for the host, the second for the guest.
    Window,
}

/// What the device is told by the host's administrator about bulk payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// `prefer_bar1_htod`: copies to the device come from BAR1 when its first bytes are not all zero.
    pub prefer_bar1_htod: bool,
    /// `authoritative_shmem_libload`: a library whose window prefix is zero still comes from the window.
    pub authoritative_library: bool,
    /// `probe_fresh_shmem_libload`: before it decides so for a library it reads the guest's pages anew.
    pub probe_fresh_library: bool,
}

/// How many bytes of a bulk payload the device looks at to find out where it is.
pub const PREFIX_BYTES: u32 = 512;

/// What a device sees of the places when a bulk call comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// The window's first bytes are not all zero.
    pub window: bool,
    /// They are not when read anew from the guest's pages.
    pub window_fresh: bool,
    /// BAR1's first bytes are not all zero.
    pub bar1: bool,
}

/// Where the device reads a call's payload of `bytes`, and how many of them: more than fit are cut off without a word, which
/// makes the mediator hang up (Q7). `half`: bytes of the registered window's first half; 0: there is no window.
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

/// The rule of the prefixes: a bulk payload that would fit the window lies there, unless it looks as if it lay in BAR1 (Q6).
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

/// Where the device writes `bytes` that came back, and how many of them. `half` as for [`to_host`].
#[must_use]
pub fn to_guest(bytes: u32, half: u32) -> (Place, u32) {
    match bytes {
        0 => (Place::Nowhere, 0),
        1..=INLINE_BYTES => (Place::Inline, bytes),
        _ if half != 0 => (Place::Window, bytes.min(half)),
        _ => (Place::Bar1, bytes.min(PAYLOAD_MAX)),
    }
}

/// The most payload of one call that arrives whole, each way. `half` as for [`to_host`].
#[must_use]
pub const fn limit(half: u32) -> u32 {
    match half {
        // BAR1's second half ends with the status (Q3), which takes the 4 bytes before it along when 8 are loaded at once (Q28).
        0 => PAYLOAD_MAX - 8,
        1..PAYLOAD_MAX => half,
        _ => PAYLOAD_MAX,
    }
}
