//! Which libraries of the host a program needs: as the host's own loader says.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The loader of glibc programs for x86-64, at the place that every one of them names.
pub const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// The loader cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("ask {LOADER} what {program} needs: {why}")]
pub struct LibraryError {
    program: PathBuf,
    why: String,
}

/// The libraries that a program or library needs and the host has, by the paths where the loader finds them, with the loader. What is
/// static needs none.
///
/// # Errors
/// The loader cannot be run.
pub fn of(program: &Path) -> Result<BTreeSet<PathBuf>, LibraryError> {
    let error = |why: String| LibraryError { program: program.to_owned(), why };
    let output = Command::new(LOADER).arg("--list").arg(program).env_remove("LD_PRELOAD").output();
    let output = output.map_err(|source: io::Error| error(source.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // The loader's word for static programs; what it does not find it says on stdout, and goes on.
    if !output.status.success() && !said.contains("statically linked") && !said.contains("not found") {
        return Err(error(said.trim().to_owned()));
    }
    let mut found = found(&String::from_utf8_lossy(&output.stdout));
    found.insert(PathBuf::from(LOADER));
    Ok(found)
}

/// The paths in the loader's list: `NAME => PATH (0x...)`.
fn found(list: &str) -> BTreeSet<PathBuf> {
    let paths = list.lines().filter_map(|line| {
        let (_, path) = line.split_once(" => ")?;
        let (path, _) = path.split_once(" (0x")?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_loader_are_read() {
        let list = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibcuda.so.1 => not found\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found: Vec<PathBuf> = found(list).into_iter().collect();
        assert_eq!(found, [PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6")]);
    }

    #[test]
    fn a_program_of_this_system_needs_its_c_library() {
        let own = std::env::current_exe().unwrap();
        let found = of(&own).unwrap();
        assert!(found.iter().any(|path| path.ends_with("libc.so.6")), "{found:?}");
        assert!(found.contains(Path::new(LOADER)));
    }
}
