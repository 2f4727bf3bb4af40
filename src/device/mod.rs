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

use vgpu_transport::{PciFunction, sysfs_root};

use crate::error::Failure;
use alive::DeviceQuestion;
pub use error::DeviceError;
pub use prepare::prepare;

/// Finds all functions of this guest, at least one.
pub fn find() -> Result<Vec<PciFunction>, DeviceError> {
    survey::find(&sysfs_root())
}

/// Functions that are being asked whether they can be used.
#[derive(Debug)]
pub struct Questions(Vec<Result<DeviceQuestion, DeviceError>>);

impl Questions {
    /// Starts to open each function, ask it who it is, and have its host answer. What that takes is mostly the
    /// host's time, so that the caller has something else to do meanwhile.
    pub fn ask(functions: &[PciFunction]) -> Self {
        let root = sysfs_root();
        let ask = |function| survey::examine(function).map(|()| DeviceQuestion::ask(function, &root));
        Self(functions.iter().map(ask).collect())
    }

    /// Waits for the answers. All functions must be usable, for CUDA fails with the first that is not; where
    /// `chosen` says that the user chose among them, one that works is enough, and the others are logged.
    pub fn answer(self, chosen: bool) -> Result<(), DeviceError> {
        let all = self.0.len();
        let answers = self.0.into_iter().map(|question| question.and_then(DeviceQuestion::answer));
        let refused: Vec<DeviceError> = answers.filter_map(Result::err).collect();
        let enough = chosen && refused.len() < all;
        for error in refused {
            if !enough {
                return Err(error);
            }
            tracing::warn!(reason = Failure::from(error).sentence(), "a device cannot be used");
        }
        Ok(())
    }
}
