//! # The VGPU-STUB contract, version 2
//!
//! Version 1, which existing hosts speak, is in [`v1`]. Every other module is part of version 2.
//!
//! This crate is the specification of the messages and the shared memory of guest and host, and both compile
//! it. It owns numbers, layouts and decoders, and knows nothing of files, mappings, threads or CUDA
//! semantics. Every integer is little endian. Nothing here allocates.
//!
//! ## The device
//!
//! VGPU-STUB is one PCI function, `10de:2331`, class `0x030200` ([`pci`]). BAR0 holds registers
//! ([`registers`]), accessed by aligned 32-bit loads and stores only. The registers for identity, version and
//! capabilities have the offsets of version 1, so that a guest of either version recognises the device: one
//! that sets [`registers::CAP_V2`] in [`registers::CAPABILITIES`] speaks this contract, one that sets
//! [`registers::CAP_CUDA`] speaks version 1. BAR2 is the *window*: memory that guest and host share.
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
//! A process attaches to channel *i* only while it holds a POSIX record lock on byte *i* of the function's
//! `resource2` file. It takes the lock before `ATTACH` and holds it until it has detached. The guest's kernel
//! drops the lock when the process dies, however it dies. A channel that is not free and whose lock is free
//! belongs to a dead process: a process that attaches, or that finds no memory, tries the locks of the
//! channels that are not free, and ends the sessions of those that it gets.
//!
//! **No register access waits for work.** A detach is answered at once, and the channel is ending until the
//! host has freed what the session held: the guest polls, or attaches to another channel. An attach to a
//! channel that is not free is refused. A detach names the session that it ends, so that a detach which
//! arrives late ends no other session.
//!
//! Guest and host compare [`WIRE_VERSION`] and [`TABLE_DIGEST`] at `ATTACH`, each its own with the
//! other's; both numbers of both sides are readable, so that either end can name both.
//!
//! A process that only queries the device's properties or its free memory opens no session: the host keeps
//! the device's facts in the window ([`area::FACTS`]) and the amount of free memory in a register.
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
//! **One way by default.** The host answers only the kinds marked `reply` in [`Kind`]'s table, each in the
//! reply slot that the body names: it stores status (a `CUresult`), length and data, and then the message's
//! number in the slot's `ticket`.
//!
//! **Words.** To learn how far work has completed, a guest names a completion *word* and a value ([`Mark`]).
//! The host stores the time of its clock and then the value once the work that the mark belongs to has
//! completed. Values of one word never decrease. An event is a word; a synchronize is a
//! [`body::stream::Signal`] and a wait for its word; a download is a copy with a mark.
//!
//! **Joins.** A synchronize after which the program reads no result is the flag [`FLAG_JOIN`] on the next
//! message: all later work of the session, on any stream, starts after the work that the named stream has
//! been given so far. [`JOIN_ALL`] names every stream. Where more than one stream is to be joined,
//! [`body::stream::Join`] messages carry the others.
//!
//! **Errors.** An error of a message that is not answered is stored in the return area: its code, whether it
//! is sticky, and the number of the message that caused it. A violation of this contract ends the session and
//! is sticky.
//!
//! **Sleeping.** Before a side sleeps it stores that it will, executes a full memory fence, and checks once
//! more for what it waits for. The guest rings the doorbell only while [`area::RETURN_HOST_SLEEPS`] is set;
//! the host wakes the guest only while [`area::SUBMIT_SLEEPERS`] is not 0. Where [`registers::WAKE_FUTEX`] is
//! set the guest sleeps on the futex word [`area::RETURN_WAKE`], otherwise for a time that it predicts.
//!
//! **Memory types.** The guest only writes the submit half of its area, except that it reads the fields of
//! the owner; the host writes the return half. So the former may be a write-combined BAR, and the latter may
//! be guest pages (`RETURN_GPA`), each where it is fastest. No page of the window is both written and polled
//! by the guest, so that all processes can map it with the same memory type: kernels do not let two memory
//! types be mixed.
//!
//! **Guest pages.** A device with [`registers::CAP_PAGES`] accesses guest memory by addresses that the
//! guest's kernel does not check. So it takes addresses only from a session that knows a key which only the
//! guest's administrator can read ([`pci::PAGES_KEY`]). It may write to the pages until the session has
//! ended: they must not be reused before the channel has been detached, even if the process dies.
//!
//! ## Addresses
//!
//! Device addresses are the executor's own 64-bit numbers and travel inside kernel parameters. Each function
//! announces the range that contains them ([`AddressRange`]), and no two functions of a machine share one.
//! Streams, events, modules, functions and graphs are small integers that the guest mints, unique within its
//! session and kind; the host maps them to its objects. Window memory is named by a [`Span`]: segment 0 is
//! BAR2, [`SEGMENT_INLINE`] is the message's own tail, others are guest pages that the session registered.

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
