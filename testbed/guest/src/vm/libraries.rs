//! Dependencies of a program on libraries of the host, as the host's loader resolves them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use goblin::container::Ctx;
use goblin::elf::program_header::PT_DYNAMIC;
use goblin::elf::{Elf, ProgramHeader};

/// Number of bytes at the start of a file that contain its ELF headers.
const HEADERS: u64 = 1 << 16;

/// Path of the loader for x86-64 glibc programs, which every such program names.
pub const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Error of a run of the dynamic loader.
#[derive(Debug, thiserror::Error)]
#[error("ask {LOADER} what {program} needs: {why}")]
pub struct LibraryError {
    program: PathBuf,
    why: String,
}

/// Returns the libraries that a program or library needs, by the paths where the host's loader finds them,
/// and the loader. Static programs need none, and libraries that the host lacks are omitted.
///
/// # Errors
/// Fails if the loader cannot be run.
pub fn needed_by(program: &Path) -> Result<BTreeSet<PathBuf>, LibraryError> {
    let error = |why: String| LibraryError { program: program.to_owned(), why };
    if is_static(program).map_err(|source| error(source.to_string()))? {
        return Ok(BTreeSet::new());
    }
    let mut command = Command::new(LOADER);
    // As `ldd` asks.
    command.arg(program).env("LD_TRACE_LOADED_OBJECTS", "1").env_remove("LD_PRELOAD");
    let output = command.output().map_err(|source| error(source.to_string()))?;
    if !output.status.success() {
        return Err(error(format!("{} {}", output.status, String::from_utf8_lossy(&output.stderr).trim())));
    }
    let mut found = found(&String::from_utf8_lossy(&output.stdout));
    found.insert(PathBuf::from(LOADER));
    Ok(found)
}

/// Returns whether a file needs no dynamic loader, because it is static or no ELF file.
fn is_static(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(HEADERS).read_to_end(&mut start)?;
    let Ok(header) = Elf::parse_header(&start) else { return Ok(true) };
    let (Ok(class), Ok(order)) = (header.container(), header.endianness()) else { return Ok(true) };
    let context = Ctx::new(class, order);
    let segments = ProgramHeader::parse(&start, header.e_phoff as usize, header.e_phnum.into(), context);
    Ok(!segments.is_ok_and(|segments| segments.iter().any(|segment| segment.p_type == PT_DYNAMIC)))
}

/// Returns the paths in the loader's list, whose lines read `NAME => PATH (0x...)`.
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
    fn what_is_no_program_needs_nothing() {
        assert!(needed_by(Path::new("/proc/version")).unwrap().is_empty());
        assert!(needed_by(Path::new("/does/not/exist")).is_err());
    }

    #[test]
    fn a_program_of_this_system_needs_its_c_library() {
        let own = std::env::current_exe().unwrap();
        let found = needed_by(&own).unwrap();
        assert!(found.iter().any(|path| path.ends_with("libc.so.6")), "{found:?}");
        assert!(found.contains(Path::new(LOADER)));
    }
}
