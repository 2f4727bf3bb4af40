//! A private folder of libraries, for programs that look for files by path (Ollama to 0.12.3), and for
//! systems that do not let memory files be mapped for execution. Beside libraries in memory it holds only
//! links to them, for programs that ask for a library by another of its names.
//!
//! It is on a tmpfs where there is one, belongs to the user, is open to nobody else, and names the process
//! that it was made for; the next start that finds this process gone removes it. Nothing in it is ever
//! written again.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, mkdtemp};

use super::environment::fits;
use super::mappable::mappable;
use super::owner::Owner;
use crate::embedded::EmbeddedObject;
use crate::env::{Environment, TMPDIR, XDG_RUNTIME_DIR};

/// Start of the directories' names.
const PREFIX: &str = "vgpu-run.";
/// Suffix after the owner's label that mkdtemp replaces.
const RANDOM: &str = ".XXXXXX";
/// The names under which programs ask for the driver's libraries when they leave the version out.
const SHORT_NAMES: [(&str, &str); 2] =
    [("libcuda.so", "libcuda.so.1"), ("libnvidia-ml.so", "libnvidia-ml.so.1")];

/// Reason for which a directory cannot hold the libraries.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// Its path contains a separator of ld.so.
    #[error("its path cannot be written in LD_PRELOAD")]
    Path,
    /// It, or a directory on the way to it, belongs to another user, or others can replace what is in it.
    #[error("other users could replace what is in it")]
    Shared,
    /// The system said no.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Mapping for execution is not allowed there.
    #[error("files there cannot be mapped for execution")]
    NotMappable,
}

/// Content of a private directory.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// The libraries themselves.
    Files(&'a [&'static EmbeddedObject]),
    /// Links: names and where they lead.
    Links(&'a [(&'static str, PathBuf)]),
    /// Nothing: it is a place for files of others.
    Nothing,
}

/// A private directory. Dropping it removes it unless it was persisted.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    kept: bool,
}

/// Candidates for a private directory, best first: the user's runtime directory, tmpfs, then others.
pub fn candidates(environment: &Environment, user: Uid) -> Vec<PathBuf> {
    let given = |name| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut places: Vec<PathBuf> = Vec::new();
    let fixed = [format!("/run/user/{user}"), "/dev/shm".into()].map(PathBuf::from);
    let last = ["/tmp", "/var/tmp"].map(PathBuf::from);
    for place in given(XDG_RUNTIME_DIR).into_iter().chain(fixed).chain(given(TMPDIR)).chain(last) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

impl PrivateFolder {
    /// Creates a directory for `owner` in `place`, after removing those of owners that have ended.
    pub fn create(place: &Path, owner: Owner, content: Content<'_>) -> Result<Self, Unfit> {
        if !fits(place.as_os_str()) {
            return Err(Unfit::Path);
        }
        if !fs::metadata(place)?.is_dir() || vgpu_paths::replaceable(place)?.is_some() {
            return Err(Unfit::Shared);
        }
        sweep(place);
        // The name is new and the folder ours alone, or the call fails: mkdir follows no link.
        let template = place.join(format!("{PREFIX}{}{RANDOM}", owner.label()));
        let path = mkdtemp(&template).map_err(io::Error::from)?;
        let folder = Self { path, kept: false };
        match content {
            Content::Nothing => return Ok(folder),
            Content::Files(objects) => folder.write(objects)?,
            Content::Links(links) => {
                for (name, target) in links {
                    symlink(target, folder.path.join(name))?;
                }
            }
        }
        for (short, soname) in SHORT_NAMES {
            symlink(soname, folder.path.join(short))?;
        }
        Ok(folder)
    }

    fn write(&self, objects: &[&'static EmbeddedObject]) -> Result<(), Unfit> {
        for (index, object) in objects.iter().enumerate() {
            let path = self.path.join(object.soname);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(&path)?;
            file.write_all(object.bytes)?;
            if index == 0 {
                // They are all alike: one speaks for all.
                mappable(File::open(&path)?).map_err(|_| Unfit::NotMappable)?;
            }
        }
        Ok(())
    }

    /// Path of the directory, which ld.so takes verbatim.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it there when this process ends; the next start that finds its owner gone removes it.
    pub fn persist(&mut self) {
        self.kept = true;
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if !self.kept {
            // What stays is removed by the next start.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes this user's folders in `place` whose owners are gone.
pub fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let Some(owner) = owner_of(&entry.file_name()) else { continue };
        // Of a link this is the link's own metadata.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() && metadata.uid() == Uid::effective().as_raw() && owner.is_gone() {
            let removed = fs::remove_dir_all(entry.path());
            tracing::debug!(folder = %entry.path().display(), ?removed, "its process is gone");
        }
    }
}

/// Owner that a directory of this name was created for.
fn owner_of(name: &OsStr) -> Option<Owner> {
    let rest = name.to_str()?.strip_prefix(PREFIX)?;
    let (label, random) = rest.rsplit_once('.')?;
    (random.len() == RANDOM.len() - 1).then(|| Owner::from_label(label))?
}

/// Whether `path` is such a directory or lies in one, of any launcher.
pub fn is_ours(path: &Path) -> bool {
    let last_two = path.ancestors().take(2);
    last_two.filter_map(Path::file_name).any(|name| owner_of(name).is_some())
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
