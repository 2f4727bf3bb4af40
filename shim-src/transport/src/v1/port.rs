//! The BARs and guest pages through which calls reach a device of version 1, and what is known of its
//! registers.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use vgpu_wire::registers::MAX_CHANNELS;
use vgpu_wire::v1::registers as reg;

use crate::pages::Contiguous;
use crate::registers::{Access, BATCH, DataBar, Registers};
use crate::session_error::GoneReason;

use super::call::{Failure, Payload};
use super::staged::Staged;

/// Bytes that are copied at a time between a BAR and memory to which no reference may exist.
pub(super) const BOUNCE: usize = 32 << 10;

/// The way to a device.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) registers: Arc<dyn Registers>,
    pub(super) data: Option<Box<dyn DataBar>>,
    /// Guest pages, taken when a payload first needs them: most processes only look.
    pages: OnceLock<Option<Contiguous>>,
    /// Guest memory as a file, on a simulated bus.
    memory: Option<PathBuf>,
}

/// What this process knows to be registered as the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registered {
    Ours,
    Nothing,
    Unknown,
}

/// What old guests had registered as the window when this process took the device's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The registers have not been read yet.
    Unknown,
    /// Nothing, or pages of new guests, which read the registers themselves.
    Nothing,
    /// Low and high half of the address, and the size.
    Theirs([u32; 3]),
}

/// What is known of the device as long as no other process takes its lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) staged: Staged,
    /// What is registered as the window: this process's pages, nothing, or unknown.
    pub(super) window: Registered,
    /// The first bytes of BAR1 are known to be zero.
    pub(super) clean: bool,
    /// The device does not take this process's pages.
    pub(super) refused: bool,
    /// The registers hold the address of this process's pages.
    pub(super) staged_window: bool,
    /// While there are old guests: what was the window when this process, holding the lock, first needed to
    /// know.
    pub(super) found: Found,
    /// The last call of this machine was turned away, whosever it was. The mediator hangs up after that, and
    /// a call that the device sends before it notices is lost unread.
    pub(super) hanging_up: bool,
}

impl State {
    /// Nothing is known.
    pub(super) fn new() -> Self {
        Self {
            staged: Staged::new(),
            window: Registered::Unknown,
            clean: false,
            refused: false,
            staged_window: false,
            found: Found::Unknown,
            hanging_up: false,
        }
    }
}

impl Port {
    pub(super) fn new(
        registers: Arc<dyn Registers>,
        data: Option<Box<dyn DataBar>>,
        memory: Option<PathBuf>,
    ) -> Self {
        Self { registers, data, pages: OnceLock::new(), memory }
    }

    /// This process's pages, if it has some and the device takes them.
    pub(super) fn pages(&self, state: &State) -> Option<&Contiguous> {
        let pages = self.pages.get_or_init(|| Contiguous::find(self.memory.as_deref()));
        pages.as_ref().filter(|_| !state.refused)
    }

    /// Makes any number of accesses, in batches that a bus takes. Returns the value of the last one.
    pub(super) fn access(&self, accesses: &[Access]) -> Result<u32, Failure> {
        let mut values = [0; BATCH];
        let mut last = 0;
        for piece in accesses.chunks(BATCH) {
            let values = &mut values[..piece.len()];
            self.registers.access(piece, values)?;
            last = values.last().copied().unwrap_or(0);
        }
        Ok(last)
    }

    /// Loads an answer's payload from BAR0.
    pub(super) fn load_inline(&self, to: &mut [u8]) -> Result<(), Failure> {
        let mut words = [0; BATCH];
        for (piece, at) in to.chunks_mut(4 * BATCH).zip((reg::INLINE_RESPONSE..).step_by(4 * BATCH)) {
            let words = &mut words[..piece.len().div_ceil(4)];
            let reads: Vec<Access> = (at..).step_by(4).take(words.len()).map(Access::Read).collect();
            self.registers.access(&reads, words)?;
            for (bytes, word) in piece.chunks_mut(4).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            }
        }
        Ok(())
    }

    /// Stores a payload to BAR1.
    pub(super) fn store(&self, payload: Payload<'_>) -> Result<(), Failure> {
        let data = self.data.as_ref().ok_or(GoneReason::Nonsense)?;
        let mut piece = vec![0; payload.len().min(BOUNCE)];
        let mut at = 0;
        while at < payload.len() {
            let bytes = payload.copy(at, &mut piece);
            data.write(reg::BAR1_TO_HOST + at as u32, &piece[..bytes])?;
            at += bytes;
        }
        Ok(())
    }
}

/// A token as `SCRATCH` holds it. Old guests write their process id there, which is below 2^22.
pub(super) const fn scratch(token: u32) -> u32 {
    TOKEN_MARK | token
}

/// Marks a token in `SCRATCH`.
const TOKEN_MARK: u32 = 0x80_0000;

/// Whether `SCRATCH` holds the process id of an old guest. All ones: no device is there.
pub(super) const fn is_old(scratch: u32) -> bool {
    scratch != 0 && scratch & TOKEN_MARK == 0
}

/// The token that `SCRATCH` names. `None`: it names an old guest's process, or nobody.
pub(super) fn token_of(scratch: u32) -> Option<u32> {
    scratch.checked_sub(TOKEN_MARK).filter(|&token| token < MAX_CHANNELS)
}
