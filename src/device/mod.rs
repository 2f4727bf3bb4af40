//! Examines the device before the program starts: whether one exists, whether it may be opened, and whether
//! its host is of the same build as the shims. Everything is closed before exec; the shims open the device
//! themselves.
//!
//! Each error has a cause in the catalogue ([`error::DeviceError`]), and `check` examines the device with the
//! same functions, so that a problem is reported by the same sentence everywhere.

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

/// Finds all functions of this guest. Fails if there is none.
pub fn find() -> Result<Vec<PciFunction>, DeviceError> {
    survey::find(&sysfs_root())
}

/// Pending tests of whether functions can be used.
#[derive(Debug)]
pub struct Questions(Vec<Result<DeviceQuestion, DeviceError>>);

impl Questions {
    /// Starts to test each function. The test mostly waits for the host, so the caller can do other work in
    /// the meantime.
    pub fn ask(functions: &[PciFunction]) -> Self {
        let root = sysfs_root();
        let ask = |function| survey::examine(function).map(|()| DeviceQuestion::ask(function, &root));
        Self(functions.iter().map(ask).collect())
    }

    /// Waits for the results. All functions must be usable, because CUDA fails with the first unusable one.
    /// If the user selected devices (`chosen`), one usable function is enough, and errors of the others are
    /// logged.
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
