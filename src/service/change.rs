//! Plans, shows, confirms and applies changes of files.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use nix::unistd::Uid;
use similar::TextDiff;

use super::error::ServiceError;
use super::receipt::Receipt;
use super::root::SystemRoot;
use crate::cli::ChangeOptions;

/// A planned change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Path of the file.
    pub path: PathBuf,
    /// Current content. `None` if the file does not exist.
    pub old: Option<String>,
    /// Intended content. `None` if the file is to be removed.
    pub new: Option<String>,
}

impl FileChange {
    /// Formats the change as diff(1) does.
    fn shown(&self) -> String {
        let name = |text: &Option<String>| match text {
            Some(_) => self.path.display().to_string(),
            None => "/dev/null".to_owned(),
        };
        let (old, new) = (self.old.as_deref().unwrap_or(""), self.new.as_deref().unwrap_or(""));
        TextDiff::from_lines(old, new).unified_diff().header(&name(&self.old), &name(&self.new)).to_string()
    }
}

/// Opens the system whose root directory is `path`.
pub fn open_root(path: &Path) -> Result<SystemRoot, ServiceError> {
    SystemRoot::open(path).map_err(|source| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        ServiceError::File { path, source }
    })
}

/// Returns the current content of a file, or `None` if it does not exist. A file that is not UTF-8 text is an
/// error, because vgpu-run did not write it.
pub fn current(root: &SystemRoot, path: &Path) -> Result<Option<String>, ServiceError> {
    let bytes =
        root.read_if_there(path).map_err(|source| ServiceError::File { path: root.path(path), source })?;
    let text = |bytes| String::from_utf8(bytes).map_err(|_| ServiceError::Foreign(path.to_owned()));
    bytes.map(text).transpose()
}

/// Plans the changes that create the files of `wanted`. Existing files must be unchanged since `before` was
/// written.
pub fn to_have(
    root: &SystemRoot,
    before: &Receipt,
    wanted: &Receipt,
) -> Result<Vec<FileChange>, ServiceError> {
    let mut changes = Vec::new();
    for (path, text) in &wanted.files {
        let old = current(root, path)?;
        match &old {
            Some(old) if old == text => continue,
            Some(old) => match before.files.get(path) {
                Some(written) if written == old => {}
                Some(_) => return Err(ServiceError::Changed(vec![path.clone()])),
                None => return Err(ServiceError::Foreign(path.clone())),
            },
            None => {}
        }
        changes.push(FileChange { path: path.clone(), old, new: Some(text.clone()) });
    }
    Ok(changes)
}

/// Plans the removal of the files of `before` that `wanted` lacks.
pub fn to_lose(
    root: &SystemRoot,
    before: &Receipt,
    wanted: &Receipt,
) -> Result<Vec<FileChange>, ServiceError> {
    let (mut changes, mut changed) = (Vec::new(), Vec::new());
    for (path, written) in before.files.iter().filter(|(path, _)| !wanted.files.contains_key(*path)) {
        match current(root, path) {
            Ok(None) => {}
            Ok(Some(old)) if old == *written => {
                changes.push(FileChange { path: path.clone(), old: Some(old), new: None });
            }
            Ok(Some(_)) | Err(ServiceError::Foreign(_)) => changed.push(path.clone()),
            Err(error) => return Err(error),
        }
    }
    if changed.is_empty() { Ok(changes) } else { Err(ServiceError::Changed(changed)) }
}

/// Fails if the change needs root and this process is not root. Another system's directory tree and
/// `--dry-run` do not need root.
pub fn may(root: &SystemRoot, options: &ChangeOptions) -> Result<(), ServiceError> {
    let needs_root = root.is_this() && !options.dry_run;
    if needs_root && !Uid::effective().is_root() { Err(ServiceError::NotRoot) } else { Ok(()) }
}

/// Prints the changes as a diff.
pub fn show(changes: &[FileChange]) {
    let text: String = changes.iter().map(FileChange::shown).collect();
    print(&text);
}

/// Prints to stdout. Errors are ignored, because the exit code reports the result.
pub fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Asks the user for confirmation, unless `--yes` was given. Fails if there is no terminal or the user
/// declines.
pub fn agree(options: &ChangeOptions) -> Result<(), ServiceError> {
    if options.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(ServiceError::Unasked);
    }
    print("Go on? [y/N] ");
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => Err(ServiceError::Declined),
    }
}

/// Applies the changes. Directories that had to be created are added to the receipt.
pub fn make(root: &SystemRoot, changes: &[FileChange], receipt: &mut Receipt) -> Result<(), ServiceError> {
    for change in changes {
        let error = |source| ServiceError::File { path: root.path(&change.path), source };
        match &change.new {
            Some(text) => {
                receipt.folders.extend(root.make_folders(&change.path).map_err(error)?);
                root.write(&change.path, text).map_err(error)?;
            }
            None => root.remove(&change.path).map_err(error)?,
        }
    }
    Ok(())
}
