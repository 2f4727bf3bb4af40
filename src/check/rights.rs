//! Determines whether the user that Ollama runs as may read, write and execute the files it needs. If this
//! process can become that user, a worker tries it as that user. Files that may not be examined do not count
//! as missing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::AccessFlags;

use super::child;
use super::context::CheckContext;
use super::messages::Rights;
use super::steps::{StepReport, Steps};
use crate::program::find;

/// Time limit for the worker's query, which takes little time.
const LIMIT: Duration = Duration::from_secs(2);

/// Queries what the user may do with each of `paths`, in their order. Empty if this process cannot become
/// that user, because its own rights say nothing about another user's.
pub async fn query(context: &CheckContext, paths: &[PathBuf]) -> io::Result<Vec<Rights>> {
    let Some(user) = &context.runs_as else {
        let another = context.found_subject.as_ref().is_some_and(|subject| subject.become_by.is_some());
        return Ok(if another { Vec::new() } else { paths.iter().map(|path| own_rights(path)).collect() });
    };
    let mut command = child::ourselves(Some(user));
    command.arg("rights").args(paths);
    let outcome = child::run_limited(command, &context.environment, context.time(LIMIT)).await?;
    let answers: Vec<Rights> =
        Steps::read(&outcome.stdout).done.iter().filter_map(StepReport::said).collect();
    if answers.len() != paths.len() {
        let how = outcome.trouble().unwrap_or_else(|| "ended without an answer".into());
        return Err(io::Error::other(format!("the process that looked as {} {how}", user.user)));
    }
    Ok(answers)
}

/// Returns the user whose rights are queried, as the subject of a sentence.
pub fn who(context: &CheckContext) -> String {
    context.runs_as.as_ref().map_or_else(|| "this user".into(), |user| format!("the user {}", user.user))
}

/// Determines what this process may do with `path`.
pub fn own_rights(path: &Path) -> Rights {
    let read = match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::read_dir(path).map(drop),
        Ok(metadata) if metadata.is_file() => vgpu_paths::open_regular(path).map(drop),
        // Opening a file of another type may block.
        Ok(_) => find::may(path, AccessFlags::R_OK).map_err(io::Error::from),
        Err(error) => Err(error),
    };
    let execute = find::may(path, AccessFlags::X_OK);
    let write = find::may(path, AccessFlags::W_OK);
    let write = write.err().map(|errno| errno as i32);
    let read = read.err().map(|error| find::errno(&error) as i32);
    let execute = execute.err().map(|errno| errno as i32);
    let at = if read.is_none() && execute.is_none() { PathBuf::new() } else { find::refusing(path) };
    Rights { path: path.to_owned(), read, execute, write, at, no_exec: no_exec(path) }
}

/// Returns whether the file system is mounted noexec, so that changing the file's mode would not help.
fn no_exec(path: &Path) -> bool {
    statvfs(path).is_ok_and(|system| system.flags().contains(FsFlags::ST_NOEXEC))
}

/// Returns whether the file certainly does not exist. A file that cannot be examined may exist.
pub fn missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn what_this_process_may_do() {
        let scratch = Scratch::new();
        std::fs::write(scratch.join("file"), "").unwrap();
        let folder = own_rights(scratch.path());
        assert_eq!((folder.read, folder.execute), (None, None));
        let file = own_rights(&scratch.join("file"));
        // Nobody may execute it, root included.
        assert_eq!((file.read, file.execute), (None, Some(Errno::EACCES as i32)));
        assert_eq!(file.at, scratch.join("file"));
        std::fs::create_dir(scratch.join("path")).unwrap();
        std::os::unix::fs::symlink("../file", scratch.join("path/link")).unwrap();
        let link = own_rights(&scratch.join("path/link"));
        assert_eq!(link.at, std::fs::canonicalize(scratch.join("file")).unwrap(), "what it leads to");
        let absent = own_rights(&scratch.join("absent"));
        assert_eq!(absent.read, Some(Errno::ENOENT as i32));
        assert!(missing(&scratch.join("absent")) && !missing(scratch.path()));
        assert!(
            !missing(Path::new("/proc/self/exe/x")),
            "a file is no folder: that is not known to be missing"
        );
    }
}
