//! Counters of the messages and data that a guest sends to its host. No message carries them. They are
//! declared here because the transport counts, the shims pass the counters to one another, and only this
//! crate is below both.

use core::iter::Sum;
use core::ops::Add;

/// Messages and bytes that a session has sent since its attach, or that all sessions of a process have sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Number of messages written to the ring, padding not counted.
    pub messages: u64,
    /// Number of messages that were answered.
    pub round_trips: u64,
    /// Number of waits that had to spin or sleep.
    pub waits: u64,
    /// Number of waits that slept.
    pub sleeps: u64,
    /// Number of writes to the doorbell register.
    pub doorbells: u64,
    /// Number of bytes that copies have uploaded. Bytes that the host reads from pinned memory in the window
    /// are not counted.
    pub bytes_in: u64,
    /// Number of bytes that copies have downloaded. Bytes that the host writes to pinned memory in the window
    /// are not counted.
    pub bytes_out: u64,
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            round_trips: self.round_trips + other.round_trips,
            waits: self.waits + other.waits,
            sleeps: self.sleeps + other.sleeps,
            doorbells: self.doorbells + other.doorbells,
            bytes_in: self.bytes_in + other.bytes_in,
            bytes_out: self.bytes_out + other.bytes_out,
        }
    }
}

impl Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}
