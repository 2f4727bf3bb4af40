//! The address of the project: `repository` in Cargo.toml, and the documents that repeat it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::ReleaseError;
use super::read;

/// Start of every address of a repository.
const FORGE: &str = "https://github.com/";
/// Path of a repository that does not exist.
const PLACEHOLDER: &str = "OWNER/REPO";
/// Pages of a repository that documents name. Addresses of other projects have none of these.
const PAGES: &[&str] = &["/releases", "/security/", "/issues"];
/// Documents and directories of documents that readers meet.
const DOCUMENTS: &[&str] = &["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs", ".github", "install.sh"];

#[derive(Deserialize)]
struct Root {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    repository: String,
}

/// Where the project's releases are published.
#[derive(Clone, Debug)]
pub struct Home {
    address: String,
}

impl Home {
    /// Reads the address from the Cargo.toml of the workspace at `root`.
    pub fn read(root: &Path) -> Result<Self, ReleaseError> {
        let path = root.join("Cargo.toml");
        let parsed: Root = toml::from_str(&read(&path)?)
            .map_err(|source| ReleaseError::Manifest { path, source: Box::new(source) })?;
        Self::new(&parsed.workspace.package.repository)
    }

    /// Takes an address of the form `https://github.com/OWNER/REPO`.
    fn new(address: &str) -> Result<Self, ReleaseError> {
        let whole = address.strip_prefix(FORGE).and_then(repository).filter(|(_, rest)| rest.is_empty());
        match whole {
            Some(_) => Ok(Self { address: address.to_owned() }),
            None => Err(ReleaseError::Repository(address.to_owned())),
        }
    }

    /// Returns the address, without a slash at its end.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether the address is the one that stands for an address.
    pub fn is_placeholder(&self) -> bool {
        self.path() == PLACEHOLDER
    }

    /// Returns the address of the directory with the files of a version.
    pub fn release(&self, version: &str) -> String {
        format!("{}/releases/download/v{version}", self.address)
    }

    /// Fails if the repository that publishes is another one.
    pub(super) fn agrees_with(&self, repository: Option<&str>) -> Result<(), ReleaseError> {
        match repository.filter(|repository| *repository != self.path()) {
            None => Ok(()),
            Some(found) => {
                Err(ReleaseError::OtherRepository { found: found.to_owned(), address: self.address.clone() })
            }
        }
    }

    /// Fails if a document of the workspace at `root` names another repository's releases, security page or
    /// issues.
    pub fn check_documents(&self, root: &Path) -> Result<(), ReleaseError> {
        let mut others = Vec::new();
        for name in DOCUMENTS {
            for path in files(&root.join(name))? {
                let bytes =
                    fs::read(&path).map_err(|source| ReleaseError::File { path: path.clone(), source })?;
                let shown = path.strip_prefix(root).unwrap_or(&path).display();
                // What is no text, such as a picture, names no address.
                let text = String::from_utf8_lossy(&bytes);
                others.extend(self.foreign(&text).into_iter().map(|found| format!("{shown} has {found}")));
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        Err(ReleaseError::Documents { address: self.address.clone(), others })
    }

    /// Returns the addresses of other repositories' pages in a text.
    fn foreign(&self, text: &str) -> Vec<String> {
        let named = text.split(FORGE).skip(1).filter_map(repository);
        let of_a_page = named.filter(|(_, rest)| PAGES.iter().any(|page| rest.starts_with(page)));
        of_a_page.filter(|(path, _)| *path != self.path()).map(|(path, _)| format!("{FORGE}{path}")).collect()
    }

    fn path(&self) -> &str {
        self.address.strip_prefix(FORGE).unwrap_or_default()
    }
}

/// Splits a text that starts with `OWNER/REPO` after that.
fn repository(text: &str) -> Option<(&str, &str)> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
    let slash = text.find(|letter| !plain(letter)).filter(|at| *at > 0 && text[*at..].starts_with('/'))?;
    let name = text[slash + 1..].find(|letter| !plain(letter)).map_or(text.len(), |at| slash + 1 + at);
    (name > slash + 1).then(|| text.split_at(name))
}

/// Returns the files at or below a path. A path that does not exist has none.
fn files(path: &Path) -> Result<Vec<PathBuf>, ReleaseError> {
    if !path.is_dir() {
        return Ok(if path.exists() { vec![path.to_owned()] } else { Vec::new() });
    }
    let failed = |source| ReleaseError::File { path: path.to_owned(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        found.extend(files(&entry.map_err(failed)?.path())?);
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_repository() {
        let home = Home::new("https://github.com/some-one/vgpu.run").unwrap();
        assert_eq!(home.release("1.0.0"), "https://github.com/some-one/vgpu.run/releases/download/v1.0.0");
        assert!(!home.is_placeholder());
        assert!(Home::new("https://github.com/OWNER/REPO").unwrap().is_placeholder());
        for wrong in
            ["http://github.com/a/b", "https://github.com/a", "https://github.com/a/b/", "https://x.org/a/b"]
        {
            assert!(matches!(Home::new(wrong), Err(ReleaseError::Repository(_))), "{wrong}");
        }
        assert!(home.agrees_with(Some("some-one/vgpu.run")).is_ok());
        let other = home.agrees_with(Some("fork/vgpu.run"));
        assert!(matches!(other, Err(ReleaseError::OtherRepository { .. })));
    }

    #[test]
    fn documents_that_name_another_repository_are_named() {
        let home = Home::new("https://github.com/a/b").unwrap();
        let text = "https://github.com/a/b/releases/x https://github.com/c/d/releases https://github.com/c/d \
                    (https://github.com/a/bb/issues)";
        assert_eq!(home.foreign(text), ["https://github.com/c/d", "https://github.com/a/bb"]);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("docs")).unwrap();
        fs::write(folder.path().join("README.md"), "https://github.com/a/b/issues").unwrap();
        home.check_documents(folder.path()).unwrap();
        fs::write(folder.path().join("docs/x.md"), "https://github.com/OWNER/REPO/security/x").unwrap();
        let refused = home.check_documents(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("docs/x.md has https://github.com/OWNER/REPO"), "{refused}");
    }

    /// The documents of this workspace, which CI checks long before a release is made.
    #[test]
    fn this_workspace_has_one_address() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let home = Home::read(root).unwrap();
        home.check_documents(root).unwrap();
        let readme = fs::read_to_string(root.join("README.md")).unwrap();
        let line = format!("curl -fsSL {}/releases/latest/download/install.sh | sh", home.address());
        assert!(readme.contains(&line), "README.md has no line {line}");
    }
}
