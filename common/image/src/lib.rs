//! Reads images of code as programs pass them to CUDA: fat binaries, PTX text and cubins. Guest and host use
//! this crate. It reads only headers, the parameter lists of kernels and the sizes of variables; the code
//! itself is left to the driver.

#![forbid(unsafe_code)]

pub mod cubin;
pub mod fatbin;
pub mod layout;
pub mod ptx;
pub mod variables;
mod words;

use vgpu_wire::facts::exec;

use fatbin::Kind;
use ptx::Specific;

/// The code that a device accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Compute capability as in `sm_NUMBER`: 10 * major + minor.
    pub sm: u32,
    /// Kinds of code that the device accepts, as bits of [`exec`].
    pub abilities: u32,
}

impl Target {
    /// Returns whether code for `sm` runs on the device.
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

/// Returns the rank of code among the images that a device accepts; the highest is used. The newest
/// architecture ranks first, because programs choose their kernels by it, and a cubin ranks before PTX for
/// the same architecture.
#[must_use]
pub fn rank(kind: Kind, sm: u32, specific: Specific) -> impl Ord {
    (sm, kind == Kind::Cubin, specific)
}
