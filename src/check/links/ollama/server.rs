//! What llama-server needs of libraries, examined without running it. It resolves a function when it is first
//! called: with a library of another release it lists its devices, and dies when a model is loaded.

use std::path::PathBuf;

use crate::diagnosis::Finding;
use crate::diagnosis::cause::ollama as cause;
use crate::ollama::era::Era;
use crate::ollama::needed::{self, Library, Unmet, shown};
use crate::ollama::symbols::Symbols;
use crate::ollama::{Ollama, installer};
use crate::program::elf::Elf;
use crate::program::search::Search;

/// llama-server as it is installed.
pub struct Server {
    symbols: Symbols,
    libraries: Result<Vec<Library>, Unmet>,
    /// Ollama's library folder.
    folder: PathBuf,
}

impl Server {
    /// Looks at that of an Ollama which has one. None: it is no program, or not whole, which others say.
    pub fn look(ollama: &Ollama) -> Option<Self> {
        if ollama.era != Era::C {
            return None;
        }
        let folder = ollama.libraries.clone();
        let file = vgpu_paths::open_regular(&folder.join("llama-server")).ok()?;
        let (elf, symbols) = (Elf::read(&file).ok()?, Symbols::read(&file).ok()?);
        // Ollama puts the folder before all others.
        let search = Search::new(Some(folder.as_os_str()), Vec::new());
        Some(Self { symbols, libraries: needed::libraries(&elf.needed, &search, false), folder })
    }

    /// The libraries of Ollama's own that it needs, or that which this process may not read.
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

    /// What it, or a library of Ollama's own that it needs, cannot get.
    pub fn unfit(&self) -> Option<Finding> {
        let again = |finding: Finding| finding.command(installer::command()).as_root();
        let libraries = match &self.libraries {
            Ok(libraries) => libraries,
            Err(unmet) => {
                let found = format!("llama-server cannot be loaded: {unmet}");
                let fix = "Install Ollama again; its archive brings its libraries. One of the system's, install from the distribution.";
                return Some(again(Finding::fail(cause::NEEDED_MISSING, found).fix(fix)));
            }
        };
        let given: Vec<&Symbols> =
            libraries.iter().map(|library| &library.symbols).chain([&self.symbols]).collect();
        let own = libraries.iter().filter_map(|library| {
            let (path, _) = library.file.as_ref().filter(|(path, _)| path.starts_with(&self.folder))?;
            Some((path.display().to_string(), &library.symbols))
        });
        [("llama-server".to_owned(), &self.symbols)].into_iter().chain(own).find_map(|(name, symbols)| {
            let lacking = needed::lacking(symbols, &given);
            if let Some(names) = lacking.absent.values().next() {
                let found =
                    format!("{name} asks for {}, which none of llama-server's libraries has", shown(names));
                let fix =
                    "Install Ollama again: its folder has files of two releases, or one of something else.";
                return Some(again(Finding::fail(cause::IMPORT_MISSING, found).fix(fix)));
            }
            let (node, from) = lacking.other_node.first()?.version.clone()?;
            let found = format!(
                "{name} asks for {} under the version {node}, which this {from} does not have",
                shown(&lacking.other_node)
            );
            let fix = "Use a newer distribution, or a release of Ollama that was built for this one.";
            Some(Finding::fail(cause::IMPORT_MISSING, found).fix(fix))
        })
    }
}
