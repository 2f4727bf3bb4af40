//! The processor's floating-point mode, which determines whether subnormal operands count as zero.
//!
//! A change takes as long as a dozen instructions. The mode of machine code therefore stays set until other
//! code computes.

use std::arch::asm;

use zerocopy::FromZeros;

/// Value of the MXCSR register under which subnormal operands count as zero. All exceptions are masked.
const FLUSHES: u32 = 0x1fc0;

/// Value of the MXCSR register under which subnormal operands keep their value, as processes start. All
/// exceptions are masked.
const KEEPS: u32 = 0x1f80;

/// Makes subnormal operands keep their value on this thread. A new thread has the mode that its creator has
/// at that moment, which its [`FloatMode`] does not know.
pub(crate) fn keep_subnormals() {
    exchange(KEEPS);
}

/// Floating-point mode of this thread, with the value to restore.
#[derive(Debug, FromZeros)]
pub(crate) struct FloatMode {
    /// Whether the register has been changed.
    changed: bool,
    /// Value of the register before it was changed.
    saved: u32,
}

impl FloatMode {
    /// Makes subnormal operands count as zero from now on.
    #[inline]
    pub(crate) fn flush_subnormals(&mut self) {
        if !self.changed {
            (self.changed, self.saved) = (true, exchange(FLUSHES));
        }
    }

    /// Restores the mode that the thread had before [`FloatMode::flush_subnormals`].
    #[inline]
    pub(crate) fn restore(&mut self) {
        if self.changed {
            self.changed = false;
            exchange(self.saved);
        }
    }
}

/// Sets the MXCSR register. Returns its old value.
fn exchange(value: u32) -> u32 {
    let mut old = 0u32;
    // SAFETY: the register is stored to a variable of its size.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut old, options(nostack, preserves_flags)) };
    // SAFETY: the value is one that the register had, `FLUSHES` or `KEEPS`: no reserved bit is set, and all
    // exceptions are masked.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, preserves_flags, readonly)) };
    old
}
