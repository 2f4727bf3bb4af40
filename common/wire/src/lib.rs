//! # The VGPU-STUB contract, version 2
//!
//! Version 1, which hosts that exist speak, is [`v1`]; all else here is version 2.
//!
//! This crate is the specification of what guest and host say to each other, written so that
//! both ends compile it. It owns numbers, layouts and decoders; it knows nothing of files,
//! mappings, threads or CUDA semantics. Every integer is little endian. Nothing here allocates.
//!
//! ## The device
//!
//! VGPU-STUB is one PCI function, `10de:2331`, class `0x030200` ([`pci`]). BAR0 holds registers
//! ([`registers`]), accessed by aligned 32-bit loads and stores only. Identity, version and
//! capability registers stand where version 1 has them, so that either generation tells which
//! device it met: [`registers::CAPABILITIES`] with [`registers::CAP_V2`] is a device that speaks
//! this contract, with [`registers::CAP_CUDA`] one that speaks version 1. BAR2 is the *window*:
//! memory that guest and host both see.
//!
//! ## Sessions and channels
//!
//! A guest process is a *session*. It owns one *channel*: a block of registers
//! ([`registers::channel`]) and an area of the window ([`area`]). There are
//! [`registers::V2_CHANNELS`] of them.
//!
//! ```text
//!   free ──(guest holds the lock) CONTROL=ATTACH──► attached ──► DETACH_SESSION=number ──► ending ──► free
//!                                   │                  │                                     ▲
//!       the host checks version,    ┘ refused          └─ a violation ──► failed ── the same ┘
//!       digest, area; ERROR says why                      ERROR says why, the host reads no more
//! ```
//!
//! Which process may attach to channel *i* is settled inside the guest: by a POSIX record lock on
//! byte *i* of the function's `resource2` file, taken before `ATTACH` and held for life. The
//! guest's kernel drops it when the process dies, however it dies. A channel that is not free and whose
//! lock is free belongs to a dead process: who attaches, or runs out of memory, tries the locks of the
//! channels that are not free and ends the sessions of those that it gets.
//!
//! **No register access waits for work.** A detach is answered at once, and the channel is ending until the
//! host has freed what the session held: the guest polls, or goes on with another channel. An attach to a
//! channel that is not free is refused. A detach names the session that it ends, so that one which arrives
//! late ends no other.
//!
//! Guest and host compare [`WIRE_VERSION`] and [`TABLE_DIGEST`] at `ATTACH`, each its own with the
//! other's; both numbers of both sides are readable, so that either end can name both.
//!
//! A process that only looks - what is there, how much memory is free - opens no session: the host
//! keeps the device's facts in the window ([`area::FACTS`]) and free memory in a register.
//!
//! ## The ring
//!
//! The guest writes messages to the ring and publishes them by storing the count of bytes ever
//! written to `tail`; the host stores the count of bytes consumed to `head`. Free space is
//! `RING_BYTES - (tail - head)`. A message never wraps: a [`body::session::Pad`] fills the end. A
//! message starts at a multiple of 16 bytes and is a [`Header`], a body of fixed size that its
//! kind names, and for some kinds a tail whose size the body states; zeros pad it to 16.
//!
//! Messages of a session are numbered from 1; the header carries the low half of the number, and
//! the host ends a session whose numbers do not follow each other. Number 0 is no message, kind 0
//! is no kind, word 0 is no word.
//!
//! **One way by default.** Only the kinds marked `reply` in [`Kind`]'s table are answered, each in
//! the reply slot that the body names: status (a `CUresult`), length and data first, then the
//! message's number in the slot's `ticket`.
//!
//! **Words.** A guest that wants to know how far work has come names a completion *word* and a
//! value ([`Mark`]); the host stores the value (with its clock) when the work that the mark
//! belongs to is done. Values of one word never decrease. Events are words; a synchronize is
//! a [`body::stream::Signal`] and a wait for its word; a copy back is a copy with a mark.
//!
//! **Joins.** A synchronize that brings nothing back is the flag [`FLAG_JOIN`] on the next message:
//! all work of the session that follows in the ring, on any stream, starts after what that stream
//! had been given. [`JOIN_ALL`] names every stream. Where more than one stream is to be joined,
//! [`body::stream::Join`] messages carry the others.
//!
//! **Errors.** What the host finds out late it stores in the return area: code, whether it is
//! sticky, the number of the message that caused it. A violation of this contract ends the
//! session and is sticky.
//!
//! **Sleeping.** A side about to sleep says so, fences, looks once more, and sleeps. The guest
//! rings the doorbell only when the host's flag says so; the host wakes only when the guest counts
//! sleepers. Where [`registers::WAKE_FUTEX`] is set the guest sleeps on the futex word
//! [`area::RETURN_WAKE`]; otherwise it sleeps for a time it predicts.
//!
//! **Memory types.** The guest writes the submit half of its area and never reads it back; the host writes
//! the return half. So the former may be a write-combined BAR, and the latter may be guest pages
//! (`RETURN_GPA`), each where it is fastest. No page of the window is both written and polled by the guest,
//! so that each can be mapped in one way by all processes: kernels do not let two memory types be mixed.
//!
//! **Guest pages.** A device with [`registers::CAP_PAGES`] reaches any memory of the guest, whatever the
//! guest's kernel thinks of that. So it takes addresses only from a session that knows a key which only the
//! guest's administrator can read ([`pci::PAGES_KEY`]). It writes to them until the session has ended: pages
//! must stay what they are, even if the process dies, until somebody has detached its channel.
//!
//! ## Addresses
//!
//! Device addresses are the executor's own 64-bit numbers and travel inside kernel parameters. Each function
//! announces the range that they are from ([`AddressRange`]), and no two functions of a machine share one.
//! Streams, events, modules, functions and graphs are small integers that the guest mints, unique
//! within its session and kind; the host maps them. Window memory is named by a [`Span`]:
//! segment 0 is BAR2, [`SEGMENT_INLINE`] is the message's own tail, others are guest pages
//! that the session registered.

#![no_std]
#![forbid(unsafe_code)]

#[macro_use]
mod layout;

mod addresses;
pub mod area;
pub mod body;
mod counters;
pub mod facts;
mod message;
pub mod pci;
pub mod registers;
pub mod share;
pub mod sim_bus;
mod span;
pub mod v1;

pub use addresses::AddressRange;
pub use counters::Counters;
pub use layout::{Layout, fnv1a};
pub use message::{
    Body, DecodeError, FLAG_JOIN, Header, JOIN_ALL, KNOWN_FLAGS, Kind, MESSAGE_ALIGN, Message, Payload,
    RoundTrip, TABLE_DIGEST, extension_digest, padded,
};
pub use span::{Mark, SEGMENT_BAR, SEGMENT_INLINE, Span};

/// Version of this contract: major in the high half, minor in the low. Those of guest and host must be equal.
pub const WIRE_VERSION: u32 = 0x0002_0001;
