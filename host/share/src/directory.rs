//! The directory that has a file for each GPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vgpu_paths::Dir;

use crate::error::ShareError;
use crate::gpu::GpuShare;
use crate::uuid::GpuUuid;

/// The directory in which the devices of one host find each other.
#[derive(Debug)]
pub struct Gpus {
    dir: Arc<Dir>,
    path: PathBuf,
}

impl Gpus {
    /// Opens the directory, and makes it if it does not exist. Only root and this user may be able to change
    /// its content or to replace it.
    ///
    /// # Errors
    /// The directory cannot be made or opened, or others could change it.
    pub fn open(path: &Path) -> Result<Self, ShareError> {
        let failed = |source| ShareError::File { doing: "open", path: path.to_owned(), source };
        let dir = vgpu_paths::make_private(path).map_err(failed)?;
        Ok(Self { dir: Arc::new(dir), path: path.to_owned() })
    }

    /// Opens the directory that the device processes of this user share: below /run if this process may make it
    /// or has been given it, and otherwise below `XDG_RUNTIME_DIR`, /run/user or the directory for temporary
    /// files.
    ///
    /// # Errors
    /// None of them can be used. The error is that of the first one, which is the one to mend.
    pub fn of_host() -> Result<Self, ShareError> {
        let mut first = None;
        for place in vgpu_paths::private_places("vgpu-device") {
            match Self::open(&place.join("gpus")) {
                Ok(gpus) => return Ok(gpus),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.expect("there is a place for temporary files"))
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file of a GPU, and makes it if it does not exist.
    ///
    /// # Errors
    /// The file cannot be made, opened or mapped, or is not one of this release.
    pub fn gpu(&self, uuid: GpuUuid) -> Result<GpuShare, ShareError> {
        GpuShare::open(Arc::clone(&self.dir), &self.path, uuid)
    }

    /// Returns the GPUs that have a file, in the order of their UUIDs. Devices need not be running.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all(&self) -> Result<Vec<GpuUuid>, ShareError> {
        let failed = |source| ShareError::File { doing: "read", path: self.path.clone(), source };
        let names = self.dir.entries().map_err(failed)?;
        let mut all: Vec<GpuUuid> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
        all.sort_unstable();
        Ok(all)
    }
}
