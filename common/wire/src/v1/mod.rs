//! # The VGPU-STUB contract, version 1
//!
//! Existing hosts speak this version. One function has one call in flight, for all processes of its guest:
//! the guest writes the call's number, arguments and length into *staging registers* of BAR0, stores the
//! payload in BAR0, in a shared window or in BAR1, and rings a doorbell. The device sends the call as one
//! frame to a *mediator* process on the host, and stores the status and the results of its answer in BAR0.
//!
//! ```text
//!   guest ── BAR0: op, args[16], data_len, doorbell ──► device ── frame: header, call, payload ──► mediator
//!         ── payload: BAR0 inline │ shared window │ BAR1          ◄── frame: header, result, payload ──
//! ```
//!
//! [`registers`] has the offsets and values of registers, [`call`] the numbers of calls with their arguments
//! and results, [`route`] the rules for where a payload lies in each direction, [`payload`] the structures
//! that travel as payloads, and [`frame`] the messages between device and mediator. Where this version's
//! headers and its running code disagree, the running code counts; quirks that a user of this module must
//! know are named `Q1` to `Q32` in the comments here, as in the protocol's catalogue of quirks.
//!
//! All integers are little endian. A 64-bit argument takes two of the sixteen, the low half first ([`split`],
//! [`join`]). Structures have no alignment, since they lie at any byte of a frame.

pub mod call;
pub mod frame;
pub mod payload;
pub mod registers;
pub mod route;

/// Maximum number of arguments of a call, 32 bits each.
pub const ARGS: usize = 16;
/// Maximum number of results of a call, 64 bits each.
pub const RESULTS: usize = 8;
/// Maximum length in bytes of a payload in BAR0, in each direction. Longer ones use another route
/// ([`route`]).
pub const INLINE_BYTES: u32 = 1024;
/// Maximum length in bytes of one call's payload, each way.
pub const PAYLOAD_MAX: u32 = 8 << 20;
/// Minimum length in bytes of a shared window, both halves together, that a device registers.
pub const WINDOW_MIN_BYTES: u32 = 32 << 10;

/// Returns the two registers, low half first, that carry a 64-bit argument.
#[must_use]
pub const fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Returns the 64-bit argument that starts at register `at`; 0 if it would end beyond the last.
#[must_use]
pub const fn join(args: &[u32; ARGS], at: usize) -> u64 {
    if at + 1 >= ARGS {
        return 0;
    }
    args[at] as u64 | (args[at + 1] as u64) << 32
}

/// Returns the owner of the objects that a call creates, as the device writes it into the call's header: the
/// number of the virtual machine, and below it the guest's token (`SCRATCH`). Token 0 is the virtual machine
/// itself.
#[must_use]
pub const fn owner(vm_id: u32, token: u32) -> u32 {
    if token == 0 { vm_id } else { (vm_id & 0xff) << 24 | token & TOKEN_MASK }
}

/// Mask of the bits of `SCRATCH` that distinguish owners.
pub const TOKEN_MASK: u32 = 0x00ff_ffff;

/// Returns whether a function with these BAR sizes and registers speaks version 1. A real H100 has the same
/// ids, but neither these sizes nor these values.
#[must_use]
pub const fn is_device(bar0_bytes: u64, bar1_bytes: u64, protocol: u32, capabilities: u32) -> bool {
    bar0_bytes == crate::pci::V1_BAR0_BYTES
        && (bar1_bytes == crate::pci::V1_BAR1_BYTES || bar1_bytes == 0)
        && protocol == crate::registers::PROTOCOL_V1
        && capabilities & crate::registers::CAP_CUDA != 0
}
