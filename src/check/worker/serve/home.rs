//! Home directory of the server: a private directory for its keys, models and temporary files. It shows the
//! files of the user's own home through links, because what starts the server may read them, and the key, so
//! that the server creates none.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use crate::env::{Environment, HOME, TMPDIR};
use crate::inject::folder::{self, Content, PrivateFolder};
use crate::inject::owner::Owner;

/// Directory in the home that is Ollama's own.
const OWN: &str = ".ollama";
/// Maximum number of entries of a home that are shown.
const SHOWN: usize = 512;

/// Home directory of the server. If this process is killed, the next start of vgpu-run removes the directory.
pub struct Home(PrivateFolder);

impl Home {
    /// Creates a home directory where this user's temporary files are. With `whole` it shows all files of the
    /// user's home, otherwise only Ollama's own.
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
                        home.show(Path::new(users), whole);
                    }
                    return Ok(home);
                }
                Err(unfit) => refusals.push(format!("{}: {unfit}", place.display())),
            }
        }
        Err(io::Error::other(format!("there is no place for a private directory: {}", refusals.join("; "))))
    }

    /// Links the files of the user's home into this one. Directories of Ollama's own are left out, because the
    /// server writes into them.
    fn show(&self, users: &Path, whole: bool) {
        let link = |from: PathBuf, to: PathBuf| {
            // What cannot be linked is not seen, as if it were not there.
            let _ = symlink(from, to);
        };
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().take(SHOWN);
        let others = entries(users).filter(|entry| whole && entry.file_name() != OWN);
        for entry in others.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"vgpu-run.")) {
            link(entry.path(), self.path().join(entry.file_name()));
        }
        let own = entries(&users.join(OWN)).filter(|entry| entry.path().is_file());
        for entry in own {
            link(entry.path(), self.path().join(OWN).join(entry.file_name()));
        }
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
            made.remove(&environment);
            seen
        };
        assert_eq!((seen(true), seen(false)), ([true, true], [true, false]));
        assert!(users.join(".profile").is_file() && users.join(".ollama/models").is_dir());
        assert_eq!(fs::read_dir(place).unwrap().count(), 0);
    }
}
