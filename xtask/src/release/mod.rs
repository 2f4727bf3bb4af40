//! What a release publishes: the assets of [`crate::dist`] made for the address at which they will lie,
//! and the notes, after the version, the change log and the documents' addresses have been found to agree.
//!
//! Nothing here publishes: `.github/workflows/release.yml` does, with what this has made, when a tag is pushed.

mod changelog;
mod error;
mod home;

use std::fs;
use std::path::{Path, PathBuf};

pub use error::ReleaseError;
pub use home::Home;

use crate::dist::{self, Release};
use crate::shims::sha256;

/// Name of the change log.
const CHANGELOG: &str = "CHANGELOG.md";
/// Directory, below the workspace, with exactly the files that are published.
const ASSETS: &str = "target/publish";
/// Text of the release's page.
const NOTES: &str = "target/publish.md";

/// What the caller knows about the release.
#[derive(Debug, Default)]
pub struct Request {
    /// Tag that starts the release. Without one, the changes may still be listed as unreleased.
    pub tag: Option<String>,
    /// Repository that will publish the release, as `OWNER/REPO`, if that is known.
    pub repository: Option<String>,
    /// Whether the address in Cargo.toml may be the placeholder.
    pub placeholder: bool,
    /// Directory with programs of hosts that are packed instead of being compiled. They have symbols and
    /// paths of this machine.
    pub built: Option<PathBuf>,
}

/// A release that is ready to be published.
#[derive(Debug)]
pub struct Ready {
    /// Version of the release.
    pub version: String,
    /// Address of the directory that the installer downloads from.
    pub url: String,
    /// Whether the notes come from the unreleased changes.
    pub unreleased: bool,
    /// Names, sizes in bytes and SHA-256 of the files to publish, by name.
    pub assets: Vec<(String, u64, String)>,
    /// Directory of these files.
    pub folder: PathBuf,
    /// File with the text of the release's page.
    pub notes: PathBuf,
    /// What was built.
    pub release: Release,
}

/// Checks, builds and collects everything that the release of the workspace at `root` publishes.
pub fn prepare(root: &Path, request: &Request) -> Result<Ready, ReleaseError> {
    let home = Home::read(root)?;
    home.agrees_with(request.repository.as_deref())?;
    if home.is_placeholder() && !request.placeholder {
        return Err(ReleaseError::Placeholder(home.address().to_owned()));
    }
    let version = dist::version(root)?;
    if let Some(tag) = request.tag.as_deref().filter(|tag| *tag != format!("v{version}")) {
        return Err(ReleaseError::Tag { tag: tag.to_owned(), version });
    }
    let changes = changelog::read(&read(&root.join(CHANGELOG))?, &version, request.tag.is_some())?;
    home.check_documents(root)?;

    let url = home.release(&version);
    let release = dist::build_release(root, Some(&url), home.address(), request.built.as_deref())?;
    let folder = root.join(ASSETS);
    let assets = collect(&root.join("target/dist"), &folder)?;
    let notes = root.join(NOTES);
    write(&notes, changes.text.as_bytes())?;
    Ok(Ready { version, url, unreleased: changes.unreleased, assets, folder, notes, release })
}

/// Copies SHA256SUMS and the files that it names from `from` into `to`, which is emptied first, and verifies
/// each against its digest.
fn collect(from: &Path, to: &Path) -> Result<Vec<(String, u64, String)>, ReleaseError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReleaseError::File { path, source }
    };
    if to.exists() {
        fs::remove_dir_all(to).map_err(failed(to))?;
    }
    fs::create_dir_all(to).map_err(failed(to))?;
    let sums = read(&from.join(dist::SUMS))?;
    let mut assets = vec![(dist::SUMS.to_owned(), sums.len() as u64, sha256(sums.as_bytes()))];
    write(&to.join(dist::SUMS), sums.as_bytes())?;
    for line in sums.lines() {
        let (expected, name) =
            line.split_once("  ").ok_or_else(|| ReleaseError::Sums { line: line.to_owned() })?;
        let path = from.join(name);
        let bytes = fs::read(&path).map_err(failed(&path))?;
        let found = sha256(&bytes);
        if found != expected {
            return Err(ReleaseError::Digest { name: name.to_owned(), found });
        }
        write(&to.join(name), &bytes)?;
        assets.push((name.to_owned(), bytes.len() as u64, found));
    }
    assets.sort();
    Ok(assets)
}

fn read(path: &Path) -> Result<String, ReleaseError> {
    fs::read_to_string(path).map_err(|source| ReleaseError::File { path: path.to_owned(), source })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ReleaseError> {
    fs::write(path, bytes).map_err(|source| ReleaseError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_sums_name_is_published() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("dist"), folder.path().join("publish"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("old.tar.gz"), "of an earlier release").unwrap();
        fs::write(from.join("a"), "one").unwrap();
        fs::write(from.join("other"), "is not published").unwrap();
        fs::write(from.join(dist::SUMS), format!("{}  a\n", sha256(b"one"))).unwrap();
        let names: Vec<_> = collect(&from, &to).unwrap().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["SHA256SUMS", "a"]);
        let mut there: Vec<_> = fs::read_dir(&to)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        there.sort();
        assert_eq!(there, names);
        fs::write(from.join("a"), "two").unwrap();
        assert!(matches!(collect(&from, &to), Err(ReleaseError::Digest { name, .. }) if name == "a"));
        fs::write(from.join(dist::SUMS), "nothing\n").unwrap();
        assert!(matches!(collect(&from, &to), Err(ReleaseError::Sums { .. })));
    }
}
