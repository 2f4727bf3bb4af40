//! How much a guest has said to its host. No message carries it: it stands here because the transport counts
//! it, the shims pass it to one another, and this crate is the only one below both.

use core::iter::Sum;
use core::ops::Add;

/// How much a session, or a process over all its devices, has said to the host since it attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Messages written, padding not counted.
    pub messages: u64,
    /// Of these, messages that were answered.
    pub round_trips: u64,
    /// Waits that did not end at once: they spun, or slept.
    pub waits: u64,
    /// Of these, waits that slept.
    pub sleeps: u64,
    /// Doorbells rung.
    pub doorbells: u64,
    /// Bytes of ordinary memory copied to the device.
    pub bytes_in: u64,
    /// Bytes copied from the device to ordinary memory.
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
