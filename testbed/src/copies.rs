//! A guest process, played by this one, that copies to a device and back and compares: through the registers
//! and the window of a simulated bus, without shims.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use vgpu_host_testing::commands::{allocate, copy_in, window};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::CopyOut;
use vgpu_wire::registers as reg;
use vgpu_wire::{Mark, Span};

use crate::vmm::address;

/// Rounds of a guest that comes and goes.
const ROUNDS: usize = 40;
/// Bytes that are copied in a round.
const BYTES: u64 = 1024;
/// Completion word of the rounds.
const WORD: u32 = 7;

/// A guest process that copies to the device and back, and compares.
#[allow(missing_debug_implementations, reason = "it is mapped memory")]
pub struct Copies {
    guest: Guest,
    generation: u32,
    address: u64,
    offset: u64,
    rng: StdRng,
}

impl Copies {
    /// Attaches to a channel.
    #[must_use]
    pub fn attach(sysfs: &Path, channel: u32, seed: u64) -> Self {
        let mut guest = Guest::attach(sysfs, address(), channel);
        let generation = guest.function.read(reg::V2_GENERATION);
        let (address, offset) = (allocate(&mut guest, BYTES), window(&mut guest, BYTES));
        Self { guest, generation, address, offset, rng: StdRng::seed_from_u64(seed) }
    }

    /// Returns whether the device is another one, or does not answer.
    fn is_lost(&self) -> bool {
        self.guest.function.read(reg::V2_GENERATION) != self.generation
    }

    /// Copies a round. Returns whether the session lives on.
    pub fn round(&mut self) -> bool {
        let mut bytes = vec![0; BYTES as usize];
        self.rng.fill(&mut bytes[..]);
        copy_in(&mut self.guest, 0, self.address, &bytes);
        let value = self.guest.number + 1;
        let destination = Span::bar(self.offset, BYTES);
        let back = CopyOut {
            stream: 0,
            reserved: 0,
            source: self.address,
            destination,
            written: Mark::new(WORD, value),
        };
        self.guest.send(&back, &[]);
        while self.guest.word(WORD) < value {
            if self.is_lost() {
                return false;
            }
        }
        let copied = self.guest.function.get(self.offset, BYTES);
        // The next process clears the window.
        assert!(copied == bytes || self.is_lost(), "wrong bytes");
        copied == bytes
    }

    /// Ends the session.
    pub fn detach(self) {
        self.guest.detach();
    }
}

/// Checks that a new guest attaches and gets back what it has copied.
pub fn is_right(sysfs: &Path, seed: u64) {
    let mut copies = Copies::attach(sysfs, 0, seed);
    assert!((0..ROUNDS).all(|_| copies.round()), "the device is lost");
    copies.guest.detach();
}
