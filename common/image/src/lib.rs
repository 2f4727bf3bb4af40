//! Images of code, as programs hand them over and as both ends read them: containers of several, PTX text,
//! cubins, and where their kernels' parameters lie. Reads headers and parameter lists; what code does is the
//! driver's to know.

#![forbid(unsafe_code)]

pub mod cubin;
pub mod fatbin;
pub mod layout;
pub mod ptx;
mod words;

use vgpu_wire::facts::exec;

use fatbin::Kind;
use ptx::Specific;

/// What a device takes: its compute capability as in `sm_NUMBER`, and which kinds of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// 10 * major + minor.
    pub sm: u32,
    /// Bits of [`exec`].
    pub abilities: u32,
}

impl Target {
    /// Whether code for `sm` runs there.
    #[must_use]
    pub fn takes(&self, kind: Kind, sm: u32, specific: Specific) -> bool {
        match kind {
            Kind::Cubin => self.abilities & exec::CUBIN != 0 && cubin::runs_on(sm, specific, self.sm),
            Kind::Ptx if self.abilities & exec::PTX == 0 => false,
            Kind::Ptx => match specific {
                Specific::No => sm <= self.sm,
                Specific::Family => sm / 10 == self.sm / 10 && sm <= self.sm,
                Specific::Architecture => sm == self.sm,
            },
        }
    }
}

/// How well code fits a device that takes it, more is better: the highest architecture, since programs choose
/// their kernels by it; of two for the same a cubin before PTX.
#[must_use]
pub fn rank(kind: Kind, sm: u32, specific: Specific) -> impl Ord {
    (sm, kind == Kind::Cubin, specific)
}
