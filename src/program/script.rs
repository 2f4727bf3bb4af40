//! Finds the file that the kernel loads for a script, which is the interpreter in the script's first line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::elf::ReadAt;

/// Number of bytes from which the kernel determines the kind of a file (BINPRM_BUF_SIZE).
const LOOKED_AT: usize = 256;

/// Maximum number of nested script interpreters before execve fails with ELOOP.
pub const DEEPEST: usize = 5;

/// Program to which execvp(3) passes a file that is neither ELF nor a script with an interpreter.
pub const SHELL: &str = "/bin/sh";

/// Kind of a file according to its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The file is an ELF binary.
    Elf,
    /// The file is a script with this interpreter.
    Script(PathBuf),
    /// Any other file: text without `#!`, an empty file, or a format that only the kernel knows.
    Other,
}

/// Determines the kind of `file` from its first bytes.
pub fn kind(file: &impl ReadAt) -> std::io::Result<FileKind> {
    let mut head = [0; LOOKED_AT];
    let mut filled = 0;
    while filled < head.len() {
        match file.read_at(&mut head[filled..], filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    let head = &head[..filled];
    if head.starts_with(goblin::elf::header::ELFMAG) {
        return Ok(FileKind::Elf);
    }
    Ok(interpreter(head).map_or(FileKind::Other, |path| FileKind::Script(OsStr::from_bytes(path).into())))
}

/// Returns the interpreter in the first line of `head`, parsed as the kernel does: blanks before it are
/// skipped, and a blank, a zero or the end of the line ends it. A name that continues beyond `head` is
/// ignored.
fn interpreter(head: &[u8]) -> Option<&[u8]> {
    let line = head.strip_prefix(b"#!")?;
    let end = line.iter().position(|byte| *byte == b'\n');
    let whole = end.is_some() || head.len() < LOOKED_AT;
    let line = &line[..end.unwrap_or(line.len())];
    let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
    let name = &line[start..];
    let stop = name.iter().position(|byte| matches!(byte, b' ' | b'\t' | 0));
    if stop.is_none() && !whole {
        return None;
    }
    Some(&name[..stop.unwrap_or(name.len())]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> FileKind {
        kind(&text).unwrap()
    }

    fn script(path: &str) -> FileKind {
        FileKind::Script(path.into())
    }

    #[test]
    fn first_lines_as_the_kernel_reads_them() {
        assert_eq!(of(b"#!/bin/sh\necho\n"), script("/bin/sh"));
        assert_eq!(of(b"#! \t/usr/bin/env python3 -u\n"), script("/usr/bin/env"));
        assert_eq!(of(b"#!/bin/sh"), script("/bin/sh"));
        assert_eq!(of(b"#!/bin/sh\0rest"), script("/bin/sh"));
        assert_eq!(of(b"#!\n"), FileKind::Other);
        assert_eq!(of(b"#!   \n/bin/sh"), FileKind::Other);
        assert_eq!(of(b"echo hello\n"), FileKind::Other);
        assert_eq!(of(b""), FileKind::Other);
        assert_eq!(of(b"\x7fELF\x02"), FileKind::Elf);
    }

    #[test]
    fn an_interpreter_that_is_cut_off_is_none() {
        let mut long = b"#!/".to_vec();
        long.resize(300, b'x');
        assert_eq!(of(&long), FileKind::Other);
        long[200] = b' ';
        assert!(matches!(of(&long), FileKind::Script(_)));
    }
}
