//! Examines the libraries that llama-server needs, without running it. llama-server resolves a function at
//! its first call, so with a library of another release it lists its devices and crashes when a model is
//! loaded.

use std::path::PathBuf;

use crate::diagnosis::Finding;
use crate::diagnosis::cause::ollama as cause;
use crate::diagnosis::fix::ollama as fix;
use crate::ollama::dependencies::{self, NeededLibrary, Unmet, shown};
use crate::ollama::era::Era;
use crate::ollama::symbols::Symbols;
use crate::ollama::{Ollama, installer};
use crate::program::elf::Elf;
use crate::program::search::Search;

/// The installed llama-server, with its imports and libraries.
pub struct InstalledServer {
    symbols: Symbols,
    libraries: Result<Vec<NeededLibrary>, Unmet>,
    /// Path of the library directory of this Ollama.
    folder: PathBuf,
}

impl InstalledServer {
    /// Examines the llama-server of an Ollama that has one. Returns `None` if the file is not a complete
    /// program, which other checks report.
    pub fn examine(ollama: &Ollama) -> Option<Self> {
        if ollama.era != Era::C {
            return None;
        }
        let folder = ollama.libraries.clone();
        let file = vgpu_paths::open_regular(&folder.join("llama-server")).ok()?;
        let (elf, symbols) = (Elf::read(&file).ok()?, Symbols::read(&file).ok()?);
        // Ollama puts the folder before all others.
        let search = Search::new(Some(folder.as_os_str()), Vec::new());
        Some(Self { symbols, libraries: dependencies::libraries(&elf.needed, &search, false), folder })
    }

    /// Returns the paths of Ollama's own libraries that llama-server needs, or the path of the one that this
    /// process may not read.
    pub fn own(&self) -> Vec<PathBuf> {
        match &self.libraries {
            Ok(libraries) => {
                let files = libraries.iter().filter_map(|library| Some(&library.file.as_ref()?.0));
                files.filter(|path| path.starts_with(&self.folder)).cloned().collect()
            }
            Err(Unmet::Refused { path, .. }) => vec![path.clone()],
            Err(_) => Vec::new(),
        }
    }

    /// Returns a finding for libraries or functions that llama-server, or a library of Ollama's that it
    /// needs, cannot get.
    pub fn unfit(&self) -> Option<Finding> {
        let libraries = match &self.libraries {
            Ok(libraries) => libraries,
            Err(unmet) => {
                let found =
                    format!("{} cannot be loaded: {unmet}", self.folder.join("llama-server").display());
                let finding = Finding::fail(cause::NEEDED_MISSING, found);
                return Some(finding.with("install", installer::command()));
            }
        };
        let given: Vec<&Symbols> =
            libraries.iter().map(|library| &library.symbols).chain([&self.symbols]).collect();
        let own = libraries.iter().filter_map(|library| {
            let (path, _) = library.file.as_ref().filter(|(path, _)| path.starts_with(&self.folder))?;
            Some((path.display().to_string(), &library.symbols))
        });
        [("llama-server".to_owned(), &self.symbols)].into_iter().chain(own).find_map(|(name, symbols)| {
            let lacking = dependencies::lacking(symbols, &given);
            if let Some(names) = lacking.absent.values().next() {
                let found =
                    format!("{name} asks for {}, which none of llama-server's libraries has", shown(names));
                let finding = Finding::fail(cause::IMPORT_MISSING, found);
                return Some(finding.with("install", installer::command()));
            }
            let (node, from) = lacking.other_node.first()?.version.clone()?;
            let found = format!(
                "{name} asks for {} under the version {node}, which this {from} does not have",
                shown(&lacking.other_node)
            );
            Some(Finding::fail(cause::IMPORT_MISSING, found).fix(fix::OLD_SYSTEM))
        })
    }
}
