//! A look at the device before the program starts: is there one, may it be opened, does its host speak as
//! this launcher's shims do. Everything is given back before exec; the shims open it for themselves.
//!
//! What is refused here has a cause of the catalogue ([`error::DeviceError`]), and `check` examines the
//! device with the same functions: one finding has one sentence, wherever it is met.

pub mod alive;
pub mod error;
pub mod facts;
pub mod files;
pub mod judge;
pub mod prepare;
pub mod silence;
pub mod survey;

use std::path::Path;

use vgpu_transport::{PciFunction, sysfs_root};

use crate::error::Failure;
pub use error::DeviceError;
pub use prepare::prepare;

/// All functions of this guest; at least one.
pub fn find() -> Result<Vec<PciFunction>, DeviceError> {
    survey::find(&sysfs_root())
}

/// Opens each function, asks it who it is, and has its host answer. All must be usable, for CUDA fails with
/// the first that is not; where `chosen` says that the user chose among them, one that works is enough, and
/// the others are logged.
pub fn look(functions: &[PciFunction], chosen: bool) -> Result<(), DeviceError> {
    let root = sysfs_root();
    let mut refused = Vec::new();
    for function in functions {
        refused.extend(usable_function(function, &root).err());
    }
    let enough = chosen && refused.len() < functions.len();
    for error in refused {
        if !enough {
            return Err(error);
        }
        tracing::warn!(reason = Failure::from(error).sentence(), "a device cannot be used");
    }
    Ok(())
}

fn usable_function(function: &PciFunction, root: &Path) -> Result<(), DeviceError> {
    survey::examine(function)?;
    alive::answers(function, root)
}
