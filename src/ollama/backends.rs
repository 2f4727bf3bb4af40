//! Finds GGML's CUDA backends and the CUDA versions that they need.

use std::path::{Path, PathBuf};

use crate::program::elf::{Elf, ElfError};

/// File name of the CUDA backend.
const BACKEND: &str = "libggml-cuda.so";
/// SONAME prefix of the runtime library. The number after it is the CUDA major version.
const RUNTIME: &str = "libcudart.so.";

/// Returns the possible backend paths of an Ollama: one in each directory `cuda_vNN` of its library
/// directory.
pub fn of_library_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join(BACKEND)).collect()
}

/// Returns the possible backend paths of a llama.cpp build: next to the program, or in the adjacent library
/// directory.
pub fn beside(executable: &Path) -> Vec<PathBuf> {
    let folder = executable.parent().unwrap_or(Path::new("/"));
    vec![folder.join(BACKEND), folder.join("../lib").join(BACKEND)]
}

/// Returns the CUDA major versions that the backend at `path` is linked with. A regular build has exactly
/// one.
pub fn majors(path: &Path) -> Result<Vec<u32>, ElfError> {
    let file = vgpu_paths::open_regular(path).map_err(|error| ElfError::Read("file", error))?;
    Ok(Elf::read(&file)?.needed.iter().filter_map(|name| major(name)).collect())
}

/// Parses the CUDA major version from the SONAME of a runtime library.
pub fn major(soname: &str) -> Option<u32> {
    soname.strip_prefix(RUNTIME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn majors_of_sonames() {
        assert_eq!(major("libcudart.so.12"), Some(12));
        assert_eq!(major("libcudart.so.13"), Some(13));
        assert_eq!(major("libcudart.so.12.8.90"), None);
        assert_eq!(major("libcublas.so.12"), None);
        assert_eq!(major("libcudart.so"), None);
    }

    #[test]
    fn a_library_folders_backends() {
        let scratch = Scratch::new();
        assert!(of_library_folder(&scratch.join("missing")).is_empty());
        std::fs::create_dir(scratch.join("cuda_v12")).unwrap();
        std::fs::write(scratch.join("libggml-base.so"), "").unwrap();
        let found = of_library_folder(scratch.path());
        assert!(found.contains(&scratch.join("cuda_v12/libggml-cuda.so")));
        for file in found {
            assert!(majors(&file).is_err());
        }
    }

    #[test]
    fn a_file_that_needs_no_cuda() {
        assert!(majors(Path::new("/proc/self/exe")).unwrap().is_empty());
    }
}
