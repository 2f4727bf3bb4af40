//! The directory that has a file for each GPU.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::geteuid;
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
    /// Opens the directory, and makes it if it does not exist. It must belong to this user, and only root and
    /// this user may be able to change its content or to replace it.
    ///
    /// # Errors
    /// The directory cannot be made or opened, or others could change it.
    pub fn open(path: &Path) -> Result<Self, ShareError> {
        Self::own(path, vgpu_paths::make_private(path))
    }

    /// Opens the directory if it exists. Nothing is made, so that a look leaves nothing behind.
    ///
    /// # Errors
    /// The directory cannot be opened, or others could change it.
    pub fn existing(path: &Path) -> Result<Option<Self>, ShareError> {
        match Dir::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => {
                let private = opened.and_then(|dir| vgpu_paths::require_private(path, &dir).map(|()| dir));
                Self::own(path, private).map(Some)
            }
        }
    }

    fn own(path: &Path, opened: io::Result<Dir>) -> Result<Self, ShareError> {
        let dir = opened.and_then(|dir| {
            // Another user's, such as root's, has no room for this user's files.
            let own = dir.owner()? == geteuid().as_raw();
            if own { Ok(dir) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        });
        match dir {
            Ok(dir) => Ok(Self { dir: Arc::new(dir), path: path.to_owned() }),
            Err(source) => Err(ShareError::File { doing: "open", path: path.to_owned(), source }),
        }
    }

    /// Opens the directory that the device processes of this user share. For root it is below /run, because a
    /// device that falls back to another one would promise memory that others have been promised. For other
    /// users it is there if they have been given it, and otherwise below `XDG_RUNTIME_DIR`, /run/user or the
    /// directory for temporary files: they know of no device of another user.
    ///
    /// # Errors
    /// None of them can be used. The error is that of the first one, which is the one to mend.
    pub fn of_host() -> Result<Self, ShareError> {
        let mut first = None;
        for place in places() {
            match Self::open(&place) {
                Err(error) => first = first.or(Some(error)),
                opened => return opened,
            }
        }
        Err(match first.expect("there is a place for temporary files") {
            ShareError::File { doing, path, source } => ShareError::Host { doing, path, source },
            error => error,
        })
    }

    /// Opens the directory of [`Gpus::of_host`] if it exists.
    ///
    /// # Errors
    /// The directory of root cannot be opened, or others could change it.
    pub fn existing_of_host() -> Result<Option<Self>, ShareError> {
        let mut failed = None;
        for place in places() {
            match Self::existing(&place) {
                Ok(None) => {}
                Err(error) => failed = Some(error),
                found => return found,
            }
        }
        failed.filter(|_| geteuid().is_root()).map_or(Ok(None), Err)
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

    /// Opens the file of a GPU, which must exist.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is not one of this release.
    pub fn existing_gpu(&self, uuid: GpuUuid) -> Result<GpuShare, ShareError> {
        GpuShare::existing(Arc::clone(&self.dir), &self.path, uuid)
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

/// Returns where the directory may be, the best place first.
fn places() -> Vec<PathBuf> {
    let mut places = vgpu_paths::private_places("vgpu-device");
    if geteuid().is_root() {
        places.truncate(1);
    }
    places.iter().map(|place| place.join("gpus")).collect()
}
