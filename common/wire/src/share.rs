//! A VM's share of its GPU's time, as the registers from [`V2_SHARE`] on state it.
//!
//! A guest learns its own part of the GPU's time, the sum of the other VMs' parts, and for how long others
//! had the GPU. It learns neither which and how many the other VMs are, nor what any of them does.

use crate::registers::{
    SHARE_ENFORCED, V2_CHARGED_HI, V2_CHARGED_LO, V2_SHARE, V2_SHARE_PPM, V2_WAITED_HI, V2_WAITED_LO,
};

/// Value of [`VmShare::ppm`] that stands for all of the GPU's time.
pub const SHARE_WHOLE: u32 = 1_000_000;

/// Part of a GPU's time that one VM gets, and the times for which it was charged and has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmShare {
    /// Whether the host divides the GPU's time by shares now. Otherwise the driver divides it among contexts.
    pub enforced: bool,
    /// Part of the GPU's time that the VM gets while all VMs of the GPU have work, in parts per million.
    pub ppm: u32,
    /// Time in microseconds that the VM was charged while others had work too. It never decreases while the
    /// device runs.
    pub charged_us: u64,
    /// Time in microseconds for which the VM had work while another VM had the GPU. It never decreases while
    /// the device runs.
    pub waited_us: u64,
}

impl VmShare {
    /// Offsets of the registers, in the order of [`VmShare::words`].
    pub const REGISTERS: [u32; 6] =
        [V2_SHARE, V2_SHARE_PPM, V2_CHARGED_LO, V2_CHARGED_HI, V2_WAITED_LO, V2_WAITED_HI];

    /// Returns the values of the registers.
    #[must_use]
    pub const fn words(&self) -> [u32; 6] {
        let state = if self.enforced { SHARE_ENFORCED } else { 0 };
        let (charged, waited) = (self.charged_us, self.waited_us);
        [state, self.ppm, charged as u32, (charged >> 32) as u32, waited as u32, (waited >> 32) as u32]
    }

    /// Returns the share that registers state. Unknown bits are ignored, and a share above [`SHARE_WHOLE`] is
    /// read as [`SHARE_WHOLE`].
    #[must_use]
    pub fn from_words([state, ppm, charged_lo, charged_hi, waited_lo, waited_hi]: [u32; 6]) -> Self {
        let wide = |low, high| u64::from(high) << 32 | u64::from(low);
        Self {
            enforced: state & SHARE_ENFORCED != 0,
            ppm: ppm.min(SHARE_WHOLE),
            charged_us: wide(charged_lo, charged_hi),
            waited_us: wide(waited_lo, waited_hi),
        }
    }
}
