//! The CUDA backends that an Ollama contains, and the environment that Ollama gives to a process which uses
//! one.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::Ollama;
use super::era::Era;
use super::variable::var;
use crate::env::{Environment, LD_LIBRARY_PATH};
use crate::program::search;

/// File name of the CUDA backend.
pub const BACKEND: &str = "libggml-cuda.so";
/// Variable that limits Ollama to the directory of this name.
const ONLY: &str = "OLLAMA_LLM_LIBRARY";
/// Variable with the path of the backend that llama-server loads.
const BACKEND_PATH: &str = "GGML_BACKEND_PATH";
/// Variable with the directories in which a runner of the second era looks for backends.
const LIBRARY_PATH: &str = "OLLAMA_LIBRARY_PATH";

/// A directory of Ollama's that contains a CUDA backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Path of the directory, such as `…/lib/ollama/cuda_v12`.
    pub folder: PathBuf,
}

impl Variant {
    /// Returns the directories below `libraries` that contain a backend or are named like one, with those
    /// that Ollama prefers first.
    pub fn all(libraries: &Path) -> Vec<Self> {
        let entries = std::fs::read_dir(libraries).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter(|entry| {
                let path = entry.path();
                let named = entry.file_name().to_string_lossy().starts_with("cuda_");
                path.is_dir() && (named || path.join(BACKEND).symlink_metadata().is_ok())
            })
            .map(|entry| Self { folder: entry.path() })
            .collect();
        found.sort_by(|one, other| other.folder.cmp(&one.folder));
        found
    }

    /// Returns the name of the directory, such as `cuda_v12`.
    pub fn name(&self) -> String {
        self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the path of the backend's library.
    pub fn backend(&self) -> PathBuf {
        self.folder.join(BACKEND)
    }

    /// Returns the path of the library that llama-server loads from this directory: the first by name that is
    /// neither GGML's base nor a backend of the processor.
    pub fn loaded(&self) -> PathBuf {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let backend = |name: &String| {
            let kind = name.strip_prefix("libggml-").filter(|_| name.contains(".so"));
            kind.is_some_and(|kind| !kind.starts_with("base") && !kind.starts_with("cpu"))
        };
        names.filter(backend).min().map_or_else(|| self.backend(), |name| self.folder.join(name))
    }

    /// Returns whether OLLAMA_LLM_LIBRARY permits this backend.
    pub fn chosen(&self, environment: &Environment) -> bool {
        let only = var(environment, ONLY);
        only.is_none_or(|only| self.folder.file_name() == Some(only))
    }

    /// Derives the environment that Ollama gives a process which uses this backend.
    pub fn environment(&self, ollama: &Ollama, environment: &Environment) -> Environment {
        let mut environment = environment.clone();
        let mut folders = vec![ollama.libraries.clone(), self.folder.clone()];
        if let Some(inherited) = environment.get(LD_LIBRARY_PATH) {
            for folder in search::split(inherited) {
                if !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
        }
        environment.set(LD_LIBRARY_PATH, joined(&folders));
        match ollama.era {
            Era::A | Era::B => environment.set(LIBRARY_PATH, joined(&folders[..2])),
            // Ollama takes an empty one for none.
            Era::C if environment.get(BACKEND_PATH).is_none_or(OsStr::is_empty) => {
                environment.set(BACKEND_PATH, self.loaded());
            }
            Era::C => {}
        }
        environment
    }

    /// Returns the path of the base library of this Ollama, which all backends need.
    pub fn base(ollama: &Ollama) -> Option<PathBuf> {
        let mut found: Vec<PathBuf> = std::fs::read_dir(&ollama.libraries)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("libggml-base.so"))
            .map(|entry| entry.path())
            .filter(|path| path.exists())
            .collect();
        // Ollama takes the first by name: libggml-base.so before libggml-base.so.0.
        found.sort();
        found.into_iter().next()
    }
}

fn joined(folders: &[PathBuf]) -> OsString {
    let folders: Vec<&OsStr> = folders.iter().map(|folder| folder.as_os_str()).collect();
    folders.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn ollama(scratch: &Scratch, era: Era) -> Ollama {
        Ollama { era, libraries: scratch.path().to_owned() }
    }

    #[test]
    fn newer_backends_come_first() {
        let scratch = Scratch::new();
        for folder in ["cuda_v12", "cuda_v13", "vulkan", "own"] {
            std::fs::create_dir(scratch.join(folder)).unwrap();
        }
        std::fs::write(scratch.join("own").join(BACKEND), "").unwrap();
        std::fs::write(scratch.join("cuda_v14"), "").unwrap();
        let names: Vec<_> = Variant::all(scratch.path()).iter().map(Variant::name).collect();
        assert_eq!(names, ["own", "cuda_v13", "cuda_v12"]);
        let only = Environment::from_iter([(ONLY, "cuda_v12")]);
        let chosen: Vec<_> =
            Variant::all(scratch.path()).into_iter().filter(|one| one.chosen(&only)).collect();
        assert_eq!(chosen.len(), 1);
        assert!(chosen[0].chosen(&Environment::from_iter([(ONLY, "")])));
    }

    #[test]
    fn folders_of_ollama_come_before_inherited_ones() {
        let scratch = Scratch::new();
        let variant = Variant { folder: scratch.join("cuda_v12") };
        let inherited = Environment::from_iter([(LD_LIBRARY_PATH, "/x:/y:/x"), ("A", "1")]);
        let new = variant.environment(&ollama(&scratch, Era::C), &inherited);
        let top = scratch.path().display();
        let expected = format!("{top}:{top}/cuda_v12:/x:/y");
        assert_eq!(new.get(LD_LIBRARY_PATH).unwrap().to_str().unwrap(), expected);
        assert_eq!(new.get(BACKEND_PATH).unwrap(), scratch.join("cuda_v12/libggml-cuda.so").as_os_str());
        assert_eq!(new.get(LIBRARY_PATH), None);
        let old = variant.environment(&ollama(&scratch, Era::B), &Environment::default());
        assert_eq!(old.get(LIBRARY_PATH).unwrap().to_str().unwrap(), format!("{top}:{top}/cuda_v12"));
        let empty = Environment::from_iter([(BACKEND_PATH, "")]);
        assert_eq!(
            variant.environment(&ollama(&scratch, Era::C), &empty).get(BACKEND_PATH),
            new.get(BACKEND_PATH)
        );
        let set = Environment::from_iter([(BACKEND_PATH, "/mine")]);
        assert_eq!(variant.environment(&ollama(&scratch, Era::C), &set).get(BACKEND_PATH).unwrap(), "/mine");
    }
}
