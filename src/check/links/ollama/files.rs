//! Checks that the files of an Ollama are present and complete, and that its user may read and execute them.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::server::InstalledServer;
use crate::check::context::CheckContext;
use crate::check::messages::Rights;
use crate::check::rights;
use crate::diagnosis::Finding;
use crate::diagnosis::cause::ollama as cause;
use crate::diagnosis::fix::ollama as fix;
use crate::ollama::era::Era;
use crate::ollama::variant::Variant;
use crate::ollama::{Ollama, installer, layout};
use crate::program::elf::{self, ElfError};

/// Returns a finding for files that Ollama's user may not read or execute.
pub async fn refused(
    context: &CheckContext,
    ollama: &Ollama,
    real: &Path,
    needs: Option<&InstalledServer>,
) -> std::io::Result<Option<Finding>> {
    // Where Ollama looks first: if it cannot look there, it takes another place, or none.
    let first = layout::first(real);
    let server = (ollama.era == Era::C).then(|| ollama.libraries.join("llama-server"));
    let paths = [Some(first), Some(ollama.libraries.clone()), Variant::base(ollama), server.clone()];
    let needed = needs.map(InstalledServer::own).unwrap_or_default();
    let paths: Vec<PathBuf> = paths.into_iter().flatten().chain(needed).collect();
    let who = rights::who(context);
    let denied = |errno: Option<i32>| errno == Some(Errno::EACCES as i32);
    for Rights { path, read, execute, at, no_exec, .. } in rights::query(context, &paths).await? {
        let (shown, file) = (path.display(), Some(&path) == server.as_ref());
        if denied(read) {
            let found = format!("{who} may not read {shown}: Permission denied");
            let finding = Finding::fail(cause::LIBRARIES_UNREADABLE, found);
            return Ok(Some(readable(finding, &path, &at).detail(format!("{} refuses it", at.display()))));
        }
        if file && denied(execute) && !no_exec {
            let found = format!("{who} may not execute {shown}: Permission denied");
            let finding = Finding::fail(cause::NOT_EXECUTABLE, found);
            return Ok(Some(searched(finding, &path, &at)));
        }
    }
    Ok(None)
}

/// Returns the finding about a file or directory of Ollama's that may not be read, with the remedy for `at`:
/// a directory on the way to it, which is not Ollama's and whose other files concern nobody, or itself.
fn readable(finding: Finding, path: &Path, at: &Path) -> Finding {
    let itself = path == at || std::fs::canonicalize(path).is_ok_and(|real| real == at);
    if itself || !at.is_dir() { finding } else { finding.fix(fix::SEARCHABLE) }.with("path", at.display())
}

/// Returns the finding about a program that may not be executed, with the remedy for `at`: the directory on
/// the way to it that may not be searched, or the file itself.
pub fn searched(finding: Finding, path: &Path, at: &Path) -> Finding {
    if at.is_dir() {
        finding.fix(fix::SEARCHABLE).with("path", at.display())
    } else {
        finding.with("path", path.display())
    }
}

/// Returns a finding for a program or library of Ollama's that is truncated or not a program. Backends are
/// examined by the next link.
pub fn damaged(ollama: &Ollama) -> Option<Finding> {
    let server = ollama.libraries.join("llama-server");
    if ollama.era == Era::C {
        if server.is_dir() {
            return Some(broken(&server, &"it is a directory"));
        }
        if no_program(&server).unwrap_or(false) {
            return Some(broken(&server, &"it is neither an ELF file nor a script"));
        }
    }
    let entries = std::fs::read_dir(&ollama.libraries).into_iter().flatten().flatten();
    // Of the backends for kinds of processors one is used, and GGML passes over those that it cannot load.
    let spare = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("libggml-cpu-");
    let needed = entries.filter(|entry| !spare(entry)).map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = needed.filter(|path| path.is_file()).collect();
    paths.sort();
    paths.iter().find_map(|path| {
        // Missing permission is reported by an earlier check, and a script is not an ELF file.
        let error = elf::whole(&vgpu_paths::open_regular(path).ok()?).err()?;
        (!matches!(error, ElfError::NotElf)).then(|| broken(path, &error))
    })
}

/// Returns whether the file is neither a program nor a script for the kernel (`ENOEXEC`, execve(2)).
fn no_program(path: &Path) -> std::io::Result<bool> {
    let file = vgpu_paths::open_regular(path)?;
    let mut head = [0; 2];
    let script = matches!(file.read_at(&mut head, 0), Ok(2)) && head == *b"#!";
    Ok(!script && matches!(elf::whole(&file), Err(ElfError::NotElf)))
}

/// Creates the finding for a damaged file.
pub fn broken(path: &Path, error: &dyn std::fmt::Display) -> Finding {
    Finding::fail(cause::OLLAMA_DAMAGED, format!("{} is damaged: {error}", path.display()))
        .with("install", installer::command())
}

/// Returns a finding for missing files without which Ollama uses no GPU.
pub fn incomplete(ollama: &Ollama, real: &Path) -> Option<Finding> {
    let folder = ollama.libraries.display();
    let incomplete = |cause, found: &str| Finding::fail(cause, found).with("install", installer::command());
    if real.parent() == Some(&ollama.libraries) || !ollama.libraries.is_dir() {
        let expected = layout::first(real);
        let found = format!("Ollama's library directory {} does not exist", expected.display());
        return Some(incomplete(cause::LIBRARIES_MISSING, &found));
    }
    let server = ollama.libraries.join("llama-server");
    if ollama.era == Era::C && rights::missing(&server) {
        let found = format!("this Ollama needs llama-server, and {folder} has none");
        return Some(incomplete(cause::MIXED_INSTALL, &found).expected(server.display().to_string()));
    }
    if ollama.era != Era::C && server.exists() {
        let found = format!("{folder} is of a newer release than the program");
        return Some(incomplete(cause::MIXED_INSTALL, &found));
    }
    let found = || format!("libggml-base.so is not in {folder}");
    Variant::base(ollama).is_none().then(|| incomplete(cause::LIBRARIES_MISSING, &found()))
}

/// Returns remarks on files of several releases in the library directory.
pub fn leftovers(ollama: &Ollama) -> Vec<String> {
    let entries = std::fs::read_dir(&ollama.libraries).into_iter().flatten().flatten();
    let bases: BTreeSet<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("libggml-base.so"))
        .filter_map(|entry| std::fs::canonicalize(entry.path()).ok())
        .collect();
    if bases.len() < 2 {
        return Vec::new();
    }
    let names: Vec<_> = bases.iter().map(|path| path.display().to_string()).collect();
    vec![format!("several builds of one library: {}", names.join(", "))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_directory_on_the_way_is_opened_alone() {
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.join("home/ollama")).unwrap();
        let command = |at: &Path| {
            let finding = Finding::fail(cause::LIBRARIES_UNREADABLE, "refused");
            readable(finding, &scratch.join("home/ollama"), at).fix.unwrap().command.unwrap()
        };
        let home = scratch.join("home");
        assert_eq!(command(&home), format!("chmod a+x {}", home.display()));
        let own = scratch.join("home/ollama");
        assert_eq!(command(&own), format!("chmod -R a+rX {}", own.display()));
    }

    #[test]
    fn folders_that_lack_something() {
        let scratch = Scratch::new();
        let libraries = scratch.join("lib/ollama");
        let real = scratch.join("bin/ollama");
        let ollama = |era| Ollama { era, libraries: libraries.clone() };
        let cause = |era| incomplete(&ollama(era), &real).and_then(|finding| finding.cause);
        assert_eq!(cause(Era::C), Some(cause::LIBRARIES_MISSING));
        let found = incomplete(&ollama(Era::C), &real).unwrap().found;
        assert_eq!(found, format!("Ollama's library directory {} does not exist", libraries.display()));
        std::fs::create_dir_all(&libraries).unwrap();
        assert_eq!(cause(Era::C), Some(cause::MIXED_INSTALL), "no llama-server");
        assert_eq!(cause(Era::B), Some(cause::LIBRARIES_MISSING), "no libggml-base");
        std::fs::write(libraries.join("libggml-base.so.0"), "a").unwrap();
        assert_eq!(cause(Era::B), None);
        std::fs::write(libraries.join("llama-server"), "").unwrap();
        assert_eq!(cause(Era::C), None);
        assert_eq!(cause(Era::B), Some(cause::MIXED_INSTALL), "of a newer release");
        assert!(leftovers(&ollama(Era::C)).is_empty());
        std::fs::write(libraries.join("libggml-base.so.0.9.1"), "b").unwrap();
        assert_eq!(leftovers(&ollama(Era::C)).len(), 1);
    }

    #[test]
    fn programs_that_are_none() {
        let scratch = Scratch::new();
        let server = scratch.join("llama-server");
        let found = || {
            damaged(&Ollama { era: Era::C, libraries: scratch.path().to_owned() })
                .map(|finding| (finding.cause, finding.found))
        };
        std::fs::create_dir(&server).unwrap();
        let (cause, words) = found().unwrap();
        assert_eq!(cause, Some(cause::OLLAMA_DAMAGED));
        assert!(words.contains("it is a directory"), "{words}");
        std::fs::remove_dir(&server).unwrap();
        for (content, whole) in [("", false), ("MZ", false), ("#!/bin/sh\nexit 0\n", true)] {
            std::fs::write(&server, content).unwrap();
            assert_eq!(found().is_none(), whole, "{content}");
        }
        std::fs::copy("/proc/self/exe", &server).unwrap();
        assert_eq!(found(), None);
    }
}
