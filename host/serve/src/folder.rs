//! The directory of a bus's socket, which an operator's first `serve` may lack.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use vgpu_host_check::makeable;

/// Mode of the directory. The mode of the socket says who may connect.
const MODE: u32 = 0o755;

/// Reason for which there is no directory for a socket.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    /// The directory is not there, and is not made: more of its path is missing, or others could replace it.
    #[error(
        "there is no directory {folder} for the socket {socket}: make it (install -d -m 0755 {folder}), or name a \
         socket elsewhere (--bus vfio-user:SOCKET)",
        folder = folder.display(),
        socket = socket.display()
    )]
    Missing { folder: PathBuf, socket: PathBuf },
    /// The directory cannot be made.
    #[error("make the directory {} of the socket; another user, such as root, may", folder.display())]
    Make {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Makes the directory of a socket if it is not there and only root and this user can change the one above
/// it.
pub(crate) fn make_for(socket: &Path) -> Result<(), FolderError> {
    let Some(folder) = socket.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    if folder.exists() {
        return Ok(());
    }
    if !makeable(folder) {
        return Err(FolderError::Missing { folder: folder.to_owned(), socket: socket.to_owned() });
    }
    let failed = |source| FolderError::Make { folder: folder.to_owned(), source };
    match fs::create_dir(folder) {
        Ok(()) => {
            // The umask may have kept the VM's user out.
            fs::set_permissions(folder, Permissions::from_mode(MODE)).map_err(failed)?;
            tracing::info!("made the directory {} for the socket", folder.display());
            Ok(())
        }
        // Another device, which starts at the same time, has made it.
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_is_made_where_nobody_else_can_replace_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        make_for(&at("vgpu/vm1.sock")).unwrap();
        assert!(at("vgpu").is_dir());
        make_for(&at("vgpu/vm2.sock")).unwrap();
        make_for(Path::new("vm.sock")).unwrap();

        let error = make_for(&at("no/such/vm.sock")).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(&format!("install -d -m 0755 {}", at("no/such").display())), "{said}");
        assert!(!at("no").exists());

        std::fs::create_dir(at("open")).unwrap();
        std::fs::set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(make_for(&at("open/vgpu/vm.sock")), Err(FolderError::Missing { .. })));
        assert!(!at("open/vgpu").exists());
    }
}
