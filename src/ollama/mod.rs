//! Recognises an Ollama and its properties from its files, without running it.

pub mod address;
pub mod answers;
pub mod backends;
pub mod dependencies;
pub mod era;
pub mod evidence;
pub mod fatal;
pub mod fatbin;
pub mod installer;
pub mod layout;
pub mod log;
pub mod models;
pub mod processes;
pub mod sockets;
pub mod symbols;
pub mod variable;
pub mod variant;
pub mod version;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::program::Program;
use crate::program::elf::{Elf, ElfError};
use era::Era;

/// An installed Ollama: its program and libraries.
#[derive(Clone, Debug)]
pub struct Ollama {
    /// Method by which this release looks for GPUs.
    pub era: Era,
    /// Path of its library directory.
    pub libraries: PathBuf,
}

/// Recognises an Ollama. Only programs with Ollama's name or library directory are read.
pub fn recognise(program: &Program) -> Option<Ollama> {
    if !program.is_binary() {
        return None;
    }
    let file = program.file()?;
    // Path of the program as Ollama sees it, from which it derives its library directory.
    let executable = std::fs::canonicalize(&program.binary).ok()?;
    let working = std::env::current_dir().unwrap_or_default();
    let libraries = layout::library_folder(&executable, &working);
    let named = [Some(executable.as_path()), Some(program.path.as_path())]
        .iter()
        .filter_map(|path| path.as_ref()?.file_name())
        .any(|name| name.as_encoded_bytes().starts_with(b"ollama"));
    if !named && libraries.is_none() {
        return None;
    }
    match era::recognise(file) {
        Ok(era) => {
            let folder = || executable.parent().unwrap_or(&executable).to_owned();
            era.map(|era| Ollama { era, libraries: libraries.unwrap_or_else(folder) })
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(program = %executable.display(), error, "not read");
            None
        }
    }
}

/// Returns the CUDA major versions that a program's backends need: those of Ollama's own backends, or for
/// another program those that it is linked with and those of a backend next to it.
pub fn majors(program: &Program, elf: &Elf, ollama: Option<&Ollama>) -> BTreeSet<u32> {
    let mut majors: BTreeSet<u32> = elf.needed.iter().filter_map(|name| backends::major(name)).collect();
    let files = match (ollama, std::fs::canonicalize(&program.binary)) {
        (Some(ollama), _) => backends::of_library_folder(&ollama.libraries),
        (None, Ok(executable)) => backends::beside(&executable),
        (None, Err(_)) => Vec::new(),
    };
    for file in files {
        match backends::majors(&file) {
            Ok(found) => majors.extend(found),
            Err(ElfError::Read(_, error))
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => {
                tracing::warn!(backend = %file.display(), error = &error as &dyn std::error::Error, "not read");
            }
        }
    }
    majors
}
