//! Home directory of the server: a private directory for its keys, models and temporary files. It has copies
//! of the files of the user's own home ([`super::copies`]), because what starts the server may read them, and
//! of the key, so that the server creates none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::copies;
use crate::env::{Environment, HOME, TMPDIR};
use crate::inject::folder::{self, Content, PrivateFolder};
use crate::inject::owner::Owner;

/// Directory in the home that is Ollama's own.
const OWN: &str = ".ollama";

/// Home directory of the server. If this process is killed, the next start of vgpu-run removes the directory.
pub struct Home(PrivateFolder);

impl Home {
    /// Creates a home directory where this user's temporary files are. With `whole` it shows the files of
    /// the user's whole home, otherwise only Ollama's own.
    pub fn new(environment: &Environment, whole: bool) -> io::Result<Self> {
        let owner = Owner::this()?;
        let mut refusals = Vec::new();
        for place in places(environment) {
            match PrivateFolder::create(&place, owner, Content::Nothing) {
                Ok(folder) => {
                    let home = Self(folder);
                    fs::create_dir(home.temporary())?;
                    fs::create_dir(home.path().join(OWN))?;
                    if let Some(users) = environment.get(HOME).filter(|users| !users.is_empty()) {
                        copies::show(users.into(), home.path().to_owned(), OWN, whole);
                    }
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
        self.path().join(OWN).join("models")
    }

    /// Returns the path of the directory for temporary files. Its name is unusual, so that it hides nothing of
    /// the user's.
    pub fn temporary(&self) -> PathBuf {
        self.path().join(".vgpu-run-tmp")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_users_files_are_seen_and_stay() {
        let (users, place) = (Scratch::new(), Scratch::new());
        fs::create_dir_all(users.join(".ollama/models")).unwrap();
        fs::write(users.join(".ollama/id_ed25519"), "key").unwrap();
        fs::write(users.join(".profile"), "x").unwrap();
        let [home, place] = [users.path(), place.path()].map(|path| path.display().to_string());
        let environment = Environment::from_iter([("HOME", home.as_str()), ("TMPDIR", place.as_str())]);
        let seen = |whole: bool| {
            let made = Home::new(&environment, whole).unwrap();
            fs::create_dir(made.models()).unwrap();
            let seen = [".ollama/id_ed25519", ".profile"].map(|name| made.path().join(name).is_file());
            // A script that starts the server may do so.
            fs::write(made.path().join(".profile"), "written").unwrap();
            made.remove(&environment);
            seen
        };
        assert_eq!((seen(true), seen(false)), ([true, true], [true, false]));
        assert!(users.join(".ollama/models").is_dir());
        assert_eq!(fs::read(users.join(".profile")).unwrap(), b"x");
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
    }
}
