//! The server's home: a private directory with its keys, its models and its temporary files, of which there
//! are none when it starts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::env::{Environment, TMPDIR};
use crate::inject::folder::{self, Content, PrivateFolder};
use crate::inject::owner::Owner;

/// The home. Should this process be killed, the next start of vgpu-run removes it.
pub struct Home(PrivateFolder);

impl Home {
    /// Makes one where this user's temporary files are.
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

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Directory of the models.
    pub fn models(&self) -> PathBuf {
        self.path().join("models")
    }

    /// Directory of the temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.path().join("tmp")
    }

    /// Removes it, and what the launcher made for the server, which has ended.
    pub fn remove(self, environment: &Environment) {
        let temporary = self.temporary();
        drop(self);
        for place in places(environment).into_iter().filter(|place| !place.starts_with(&temporary)) {
            folder::sweep(&place);
        }
    }
}

/// The user's own choice first: what can be done with files there is then as it is for the server.
fn places(environment: &Environment) -> Vec<PathBuf> {
    let given = environment.get(TMPDIR).filter(|value| !value.is_empty()).map(PathBuf::from);
    given.into_iter().chain(folder::candidates(environment, Uid::effective())).collect()
}
