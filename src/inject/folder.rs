//! A private directory of libraries, for programs that look for files by path (Ollama up to 0.12.3), and for
//! systems on which memory files cannot be mapped for execution. If the libraries are in memory, the
//! directory holds only links to them, for programs that load a library by another of its names.
//!
//! The directory is on a tmpfs if there is one, belongs to the user, is accessible to nobody else, and its
//! name identifies the process that it was made for. The next start removes it once that process has ended.
//! Its content never changes.

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

/// Prefix of the directories' names.
const PREFIX: &str = "vgpu-run.";
/// Template after the owner's label that mkdtemp replaces by random characters.
const RANDOM: &str = ".XXXXXX";
/// Names without a version by which programs load the driver's libraries, with their SONAMEs.
const SHORT_NAMES: [(&str, &str); 2] =
    [("libcuda.so", "libcuda.so.1"), ("libnvidia-ml.so", "libnvidia-ml.so.1")];

/// Reason why a directory cannot hold the libraries.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// The directory's path contains a separator of ld.so.
    #[error("its path cannot be written in LD_PRELOAD")]
    Path,
    /// The directory, or a parent of it, belongs to another user, or others can replace its content.
    #[error("other users could replace what is in it")]
    Shared,
    /// The system reported an error.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Files in the directory cannot be mapped for execution.
    #[error("files there cannot be mapped for execution")]
    NotMappable,
}

/// Content of a private directory.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// The directory holds the libraries themselves.
    Files(&'a [&'static EmbeddedObject]),
    /// The directory holds links: their names and targets.
    Links(&'a [(&'static str, PathBuf)]),
    /// The directory is empty, and others will put files into it.
    Nothing,
}

/// A private directory. Dropping it removes it unless it was persisted.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    kept: bool,
}

/// Returns the possible locations of a private directory, best first: the user's runtime directory, tmpfs,
/// then others.
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
    /// Creates a directory for `owner` in `place`, after removing those whose owners have ended.
    pub fn create(place: &Path, owner: Owner, content: Content<'_>) -> Result<Self, Unfit> {
        if !fits(place.as_os_str()) {
            return Err(Unfit::Path);
        }
        if !fs::metadata(place)?.is_dir() || vgpu_paths::replaceable(place)?.is_some() {
            return Err(Unfit::Shared);
        }
        sweep(place);
        // The name is new and the directory belongs to this process alone, or the call fails, because mkdir
        // follows no link.
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
                // All files are on the same file system, so one test is enough.
                mappable(File::open(&path)?).map_err(|_| Unfit::NotMappable)?;
            }
        }
        Ok(())
    }

    /// Returns the path of the directory, which ld.so can parse without escaping.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory when this value is dropped. The next start removes it once its owner has ended.
    pub fn persist(&mut self) {
        self.kept = true;
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        if !self.kept {
            // The next start removes what remains.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes this user's directories in `place` whose owners have ended.
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

/// Returns the owner for which a directory of this name was created.
fn owner_of(name: &OsStr) -> Option<Owner> {
    let rest = name.to_str()?.strip_prefix(PREFIX)?;
    let (label, random) = rest.rsplit_once('.')?;
    (random.len() == RANDOM.len() - 1).then(|| Owner::from_label(label))?
}

/// Returns whether `path` is such a directory, or lies in one, of any launcher.
pub fn is_ours(path: &Path) -> bool {
    let last_two = path.ancestors().take(2);
    last_two.filter_map(Path::file_name).any(|name| owner_of(name).is_some())
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
