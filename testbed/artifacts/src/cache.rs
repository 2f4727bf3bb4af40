//! The directory in which artifacts are kept.
//!
//! In the cache, `files/` contains every file once, named by its digest. An artifact is a directory of hard
//! links to them, named by the artifact and a part of its digest. A directory is renamed into place last, so
//! one that exists is complete: nobody needs a lock to use it, and a change of `artifacts.toml` creates a new
//! one.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use crate::error::ArtifactError;
use crate::hashing::Hashing;
use crate::spec::{Artifact, Join, Spec};
use crate::{debian, download, unpack};

/// A directory of fetched artifacts, which all checkouts of a user share.
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
    spec: Spec,
}

impl Cache {
    /// Opens the cache below `XDG_CACHE_HOME`, or below the user's home.
    pub fn open() -> Result<Self, ArtifactError> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = set("XDG_CACHE_HOME")
            // The XDG specification requires relative paths to be ignored.
            .filter(|path| path.is_absolute())
            .or_else(|| Some(set("HOME")?.join(".cache")))
            .ok_or(ArtifactError::NoHome)?;
        Ok(Self { root: root.join("vgpu-run"), spec: Spec::own()? })
    }

    /// Returns the artifacts that can be fetched.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Returns the directory of an artifact, whether or not it has been fetched.
    pub fn path(&self, name: &str) -> Result<PathBuf, ArtifactError> {
        let identity = self.spec.identity(self.spec.artifact(name)?)?;
        Ok(self.root.join(format!("{name}-{identity}")))
    }

    /// Returns the directory for data derived from artifacts, which is kept between runs. The directory need
    /// not exist yet.
    pub fn derived(&self, name: &str) -> PathBuf {
        self.root.join("derived").join(name)
    }

    /// Returns the directory of an artifact and fetches the artifact first if it is missing.
    pub fn fetch(&self, name: &str) -> Result<PathBuf, ArtifactError> {
        let artifact = self.spec.artifact(name)?;
        let path = self.path(name)?;
        if path.is_dir() {
            return Ok(path);
        }
        let _lock = self.lock()?;
        // Another process may have fetched it while this one waited for the lock.
        if path.is_dir() {
            return Ok(path);
        }
        let temporary = self.temporary()?;
        let folder = temporary.join("folder");
        create_folder(&folder)?;
        match &artifact.whole {
            Some(package) => {
                let package = self.spec.package(package)?;
                let archive = download::download(package, &temporary)?;
                unpack::whole(package, &archive, &folder)?;
            }
            None if !artifact.debian.is_empty() => {
                debian::unpack(name, &artifact.debian, &temporary, &folder)?;
            }
            None => self.assemble(artifact, &temporary, &folder)?,
        }
        fs::rename(&folder, &path).map_err(at(&path))?;
        remove_folder(&temporary)?;
        Ok(path)
    }

    /// Assembles the content of an artifact in `folder`.
    fn assemble(&self, artifact: &Artifact, temporary: &Path, folder: &Path) -> Result<(), ArtifactError> {
        for name in &artifact.sets {
            let package = &self.spec.set(name)?.package;
            let have = self.spec.set(name)?.files.values().all(|digest| self.file(digest).exists());
            if !have {
                self.unpack(package, temporary)?;
            }
        }
        if let Some(join) = &artifact.join {
            return self.join(artifact, join, &folder.join(&join.name));
        }
        for set in &artifact.sets {
            for (name, digest) in &self.spec.set(set)?.files {
                let path = folder.join(name);
                fs::hard_link(self.file(digest), &path).map_err(at(&path))?;
            }
        }
        Ok(())
    }

    /// Fetches a package once and keeps every file of it that any artifact uses.
    fn unpack(&self, name: &str, temporary: &Path) -> Result<(), ArtifactError> {
        let package = self.spec.package(name)?;
        let wanted: BTreeMap<String, String> = self
            .spec
            .sets
            .values()
            .filter(|set| set.package == name)
            .flat_map(|set| {
                set.files.iter().map(|(file, digest)| (format!("{}/{file}", set.folder), digest.clone()))
            })
            .collect();
        let archive = download::download(package, temporary)?;
        let files = self.root.join("files");
        create_folder(&files)?;
        unpack::members(package, &archive, &wanted, &files)?;
        fs::remove_file(&archive).map_err(at(&archive))
    }

    /// Concatenates the files of all sets into one file at `path` and deletes the parts from the cache.
    fn join(&self, artifact: &Artifact, join: &Join, path: &Path) -> Result<(), ArtifactError> {
        let mut parts = Vec::new();
        for set in &artifact.sets {
            parts.extend(self.spec.set(set)?.files.values().map(|digest| self.file(digest)));
        }
        let mut joined = Hashing::new(File::create(path).map_err(at(path))?);
        for part in &parts {
            let mut file = File::open(part).map_err(at(part))?;
            io::copy(&mut file, &mut joined).map_err(at(path))?;
        }
        let found = joined.finish();
        if found != join.sha256 {
            return Err(ArtifactError::Join { name: join.name.clone(), found });
        }
        parts.iter().try_for_each(|part| fs::remove_file(part).map_err(at(part)))
    }

    fn file(&self, digest: &str) -> PathBuf {
        self.root.join("files").join(digest)
    }

    /// Creates and returns an empty scratch directory. The caller must hold the cache's lock.
    fn temporary(&self) -> Result<PathBuf, ArtifactError> {
        let path = self.root.join("temporary");
        remove_folder(&path)?;
        create_folder(&path)?;
        Ok(path)
    }

    fn lock(&self) -> Result<File, ArtifactError> {
        create_folder(&self.root)?;
        let path = self.root.join("lock");
        let fail = |source| ArtifactError::File { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("waiting for another process that fetches into {}", self.root.display());
                file.lock().map_err(fail)?;
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        Ok(file)
    }
}

fn create_folder(path: &Path) -> Result<(), ArtifactError> {
    fs::create_dir_all(path).map_err(at(path))
}

fn remove_folder(path: &Path) -> Result<(), ArtifactError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
        _ => Ok(()),
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> ArtifactError {
    let path = path.to_owned();
    move |source| ArtifactError::File { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashing::sha256;
    use crate::spec::SpecError;

    /// Creates a cache that already holds `files`, so that no test fetches from the network.
    fn cache(name: &str, spec: &str, files: &[&[u8]]) -> Cache {
        let root = env::temp_dir().join(format!("vgpu-cache-{name}-{}", std::process::id()));
        // Fails if the directory exists, because other users may write to the temporary directory.
        fs::create_dir(&root).unwrap();
        fs::create_dir(root.join("files")).unwrap();
        for content in files {
            fs::write(root.join("files").join(sha256(content)), content).unwrap();
        }
        Cache { root, spec: toml::from_str(spec).unwrap() }
    }

    fn spec(joined: &str) -> String {
        let package =
            "[package.p]\nregistry = 'npm'\nname = 'p'\nversion = '1'\nfile = 'p'\nbytes = 1\nsha256 = ''\n";
        let set = |name: &str, file: &str, content: &[u8]| {
            format!(
                "[set.{name}]\npackage = 'p'\nfolder = 'f'\nfiles = {{ {file} = '{}' }}\n",
                sha256(content)
            )
        };
        format!(
            "{package}{}{}[artifact.plain]\nabout = ''\nsets = ['one', 'two']\n\
             [artifact.joined]\nabout = ''\nsets = ['one', 'two']\njoin = {{ name = 'all', sha256 = '{joined}' }}\n",
            set("one", "x", b"first"),
            set("two", "y", b"second"),
        )
    }

    #[test]
    fn an_artifact_is_links_to_files() {
        let cache = cache("plain", &spec(""), &[b"first", b"second"]);
        let folder = cache.fetch("plain").unwrap();
        assert_eq!(fs::read(folder.join("x")).unwrap(), b"first");
        assert_eq!(fs::read(folder.join("y")).unwrap(), b"second");
        // A second call finds the artifact even without the files.
        fs::remove_dir_all(cache.root.join("files")).unwrap();
        assert_eq!(cache.fetch("plain").unwrap(), folder);
        assert!(
            matches!(cache.fetch("none"), Err(ArtifactError::Spec(SpecError::Unknown(name))) if name == "none")
        );
        fs::remove_dir_all(&cache.root).unwrap();
    }

    #[test]
    fn parts_become_one_file_or_nothing() {
        let good = cache("join", &spec(&sha256(b"firstsecond")), &[b"first", b"second"]);
        let folder = good.fetch("joined").unwrap();
        assert_eq!(fs::read(folder.join("all")).unwrap(), b"firstsecond");
        assert_eq!(fs::read_dir(good.root.join("files")).unwrap().count(), 0);
        fs::remove_dir_all(&good.root).unwrap();

        let bad = cache("bad", &spec(&sha256(b"other")), &[b"first", b"second"]);
        assert!(matches!(bad.fetch("joined"), Err(ArtifactError::Join { .. })));
        assert!(!bad.path("joined").unwrap().exists());
        fs::remove_dir_all(&bad.root).unwrap();
    }
}
