//! Home directory of the server: a private directory for its keys, models and temporary files, which is empty
//! when the server starts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::env::{Environment, TMPDIR};
use crate::inject::folder::{self, Content, PrivateFolder};
use crate::inject::owner::Owner;

/// Home directory of the server. If this process is killed, the next start of vgpu-run removes the directory.
pub struct Home(PrivateFolder);

impl Home {
    /// Creates a home directory where this user's temporary files are.
    pub fn new(environment: &Environment) -> io::Result<Self> {
        let owner = Owner::this()?;
        let mut refusals = Vec::new();
        for place in places(environment) {
            match PrivateFolder::create(&place, owner, Content::Nothing) {
                Ok(folder) => {
                    let home = Self(folder);
                    fs::create_dir(home.temporary())?;
                    return Ok(home);
                }
                Err(unfit) => refusals.push(format!("{}: {unfit}", place.display())),
            }
        }
        Err(io::Error::other(format!("there is no place for a private directory: {}", refusals.join("; "))))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of the directory for models.
    pub fn models(&self) -> PathBuf {
        self.path().join("models")
    }

    /// Returns the path of the directory for temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.path().join("tmp")
    }

    /// Removes the server's home and the directories that the launcher created for it. The server must have
    /// ended.
    pub fn remove(self, environment: &Environment) {
        let temporary = self.temporary();
        drop(self);
        for place in places(environment).into_iter().filter(|place| !place.starts_with(&temporary)) {
            folder::sweep(&place);
        }
    }
}

/// Returns the possible locations. The user's TMPDIR comes first, so that the server has the same file system
/// as usual.
fn places(environment: &Environment) -> Vec<PathBuf> {
    let given = environment.get(TMPDIR).filter(|value| !value.is_empty()).map(PathBuf::from);
    given.into_iter().chain(folder::candidates(environment, Uid::effective())).collect()
}
