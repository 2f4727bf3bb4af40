//! Paths of Ollama's libraries, and the environment of its children.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Returns the resolved path of this program, by which Ollama starts its own children.
pub fn own() -> Result<PathBuf> {
    std::fs::canonicalize("/proc/self/exe").context("find this program")
}

/// Returns Ollama's library directory, as Ollama determines `LibOllamaPath`.
pub fn libraries() -> Result<PathBuf> {
    let own = own()?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places = [beside.parent().unwrap_or(beside).join("lib/ollama"), beside.join("lib/ollama")];
    Ok(places.into_iter().find(|place| place.is_dir()).unwrap_or_else(|| beside.to_owned()))
}

/// Returns the directories in `libraries` that contain a file with `ggml-` in its name. As in Ollama,
/// `OLLAMA_LLM_LIBRARY` limits them.
pub fn variants(libraries: &Path) -> Vec<PathBuf> {
    let has_backend = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("ggml-"))
    };
    let wanted = std::env::var("OLLAMA_LLM_LIBRARY").unwrap_or_default();
    let entries = std::fs::read_dir(libraries).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && has_backend(path))
        .filter(|path| {
            wanted.is_empty() || path.file_name().is_some_and(|name| name.to_string_lossy() == wanted)
        })
        .collect();
    found.sort();
    found
}

/// Returns the backend in a variant's directory: the first `libggml-*.so*` that is neither the base nor a CPU
/// backend.
pub fn backend(variant: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(variant).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let other = name.starts_with("libggml-base") || name.starts_with("libggml-cpu");
            name.starts_with("libggml-") && name.contains(".so") && !other
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Returns whether a library directory has a CPU backend, which every load of a model needs. Like GGML, it
/// says which file it cannot load.
pub fn has_processor_backend(libraries: &Path) -> bool {
    let entries = std::fs::read_dir(libraries).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("libggml-cpu"));
    let (whole, damaged): (Vec<PathBuf>, Vec<PathBuf>) = named
        .map(|entry| entry.path())
        .partition(|path| path.metadata().is_ok_and(|file| file.is_file() && file.len() > 0));
    for path in damaged {
        let path = path.display();
        eprintln!("load_backend: failed to load {path}: {path}: file too short");
    }
    !whole.is_empty()
}

/// Sets LD_LIBRARY_PATH to `first`, followed by the inherited directories that are not among them.
pub fn search(command: &mut Command, first: &[&Path]) {
    let mut folders: Vec<PathBuf> = first.iter().map(|path| (*path).to_owned()).collect();
    for folder in std::env::split_paths(&std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()) {
        if !folder.as_os_str().is_empty() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let joined: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    command.env("LD_LIBRARY_PATH", joined.join(":"));
}

/// Formats the names of directories for the log's field `libdirs`.
pub fn names(folders: &[&Path]) -> String {
    let name = |folder: &&Path| folder.file_name().map(|name| name.to_string_lossy().into_owned());
    folders.iter().filter_map(name).collect::<Vec<_>>().join(",")
}
