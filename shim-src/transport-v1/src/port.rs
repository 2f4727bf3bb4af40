//! The BARs and guest pages through which calls reach a device of version 1, and the register values that
//! this process knows.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use vgpu_transport::GoneReason;
use vgpu_transport::parts::{Access, BATCH, Registers};
use vgpu_wire::registers::MAX_CHANNELS;
use vgpu_wire::v1::registers as reg;

use crate::call::{CallError, Payload};
use crate::contiguous_pages::ContiguousPages;
use crate::data_bar::DataBar;
use crate::staged_registers::StagedRegisters;

/// Size in bytes of the buffer for copies between a BAR and memory to which no reference may exist.
pub(super) const BOUNCE: usize = 32 << 10;

/// The memory through which a device is reached.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) registers: Arc<dyn Registers>,
    /// BAR1; `None` if the function has none.
    pub(super) data: Option<Box<dyn DataBar>>,
    /// Guest pages, allocated when a payload first needs them. Most processes need none.
    pages: OnceLock<Option<ContiguousPages>>,
    /// The file that is the guest's memory; `None` if the bus is real.
    memory: Option<PathBuf>,
}

/// Whose pages are registered as the window, as far as this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowOwner {
    /// The pages of this process are registered.
    Ours,
    /// No pages are registered, so payload travels through BAR1.
    Nothing,
    /// The owner is unknown until the registers are read.
    Unknown,
}

/// The window that old guests had registered when this process acquired the device's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OldGuestWindow {
    /// The registers have not been read yet.
    Unknown,
    /// There is nothing to restore, because processes of new guests read the registers before they rely on
    /// the window.
    Nothing,
    /// Low and high half of the window's address, and its size.
    Theirs([u32; 3]),
}

/// State of the device as this process knows it. Valid until another process acquires the lock.
#[derive(Debug)]
pub(super) struct MailboxState {
    pub(super) staged: StagedRegisters,
    pub(super) window: WindowOwner,
    /// Whether the first bytes of BAR1 are known to be zero.
    pub(super) clean: bool,
    /// Whether the device has rejected this process's pages.
    pub(super) refused: bool,
    /// Whether the registers hold the address of this process's pages.
    pub(super) staged_window: bool,
    /// Window to restore before the lock is released. Used only where old guests run.
    pub(super) old_guest_window: OldGuestWindow,
    /// Whether the mediator rejected the machine's last call, of whichever process. The mediator then closes
    /// its connection, and a call that the device sends before it notices is lost unread.
    pub(super) hanging_up: bool,
}

impl MailboxState {
    /// Creates the state of a device whose registers have not been read.
    pub(super) fn new() -> Self {
        Self {
            staged: StagedRegisters::new(),
            window: WindowOwner::Unknown,
            clean: false,
            refused: false,
            staged_window: false,
            old_guest_window: OldGuestWindow::Unknown,
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

    /// Returns the pages of this process, or `None` if there are none, or the device has rejected them.
    pub(super) fn pages(&self, state: &MailboxState) -> Option<&ContiguousPages> {
        let pages = self.pages.get_or_init(|| ContiguousPages::find(self.memory.as_deref()));
        pages.as_ref().filter(|_| !state.refused)
    }

    /// Makes any number of accesses, in batches of [`BATCH`]. Returns the value of the last one.
    pub(super) fn access(&self, accesses: &[Access]) -> Result<u32, CallError> {
        let mut values = [0; BATCH];
        let mut last = 0;
        for piece in accesses.chunks(BATCH) {
            let values = &mut values[..piece.len()];
            self.registers.access(piece, values)?;
            last = values.last().copied().unwrap_or(0);
        }
        Ok(last)
    }

    /// Loads the payload of an answer from BAR0.
    pub(super) fn load_inline(&self, to: &mut [u8]) -> Result<(), CallError> {
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
    pub(super) fn store(&self, payload: Payload<'_>) -> Result<(), CallError> {
        let data = self.data.as_ref().ok_or(GoneReason::Nonsense)?;
        let mut piece = vec![0; payload.len().min(BOUNCE)];
        let mut at = 0;
        while at < payload.len() {
            let bytes = payload.copy_to(at, &mut piece);
            data.write(reg::BAR1_TO_HOST + at as u32, &piece[..bytes])?;
            at += bytes;
        }
        Ok(())
    }
}

/// Returns the value of `SCRATCH` that names a token. Old guests write their process id there, which is below
/// 2^22.
pub(super) const fn scratch(token: u32) -> u32 {
    TOKEN_MARK | token
}

/// Bit of `SCRATCH` that marks a token.
const TOKEN_MARK: u32 = 0x80_0000;

/// Returns whether `SCRATCH` holds the process id of an old guest. All ones mean that no device answers.
pub(super) const fn is_old(scratch: u32) -> bool {
    scratch != 0 && scratch & TOKEN_MARK == 0
}

/// Returns the token that `SCRATCH` names, or `None` if it names the process of an old guest, or no process.
pub(super) fn token_of(scratch: u32) -> Option<u32> {
    scratch.checked_sub(TOKEN_MARK).filter(|&token| token < MAX_CHANNELS)
}
