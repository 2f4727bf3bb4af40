//! GGML's CUDA backends: where they lie, and which CUDA they need.

use std::path::{Path, PathBuf};

use crate::program::elf::{Elf, ElfError};

/// The backend's file name.
const BACKEND: &str = "libggml-cuda.so";
/// The library whose version tells the CUDA major.
const RUNTIME: &str = "libcudart.so.";

/// Backends of an Ollama: one in each directory `cuda_vNN` of its library directory.
pub fn of_library_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join(BACKEND)).collect()
}

/// Candidates for the backend of a llama.cpp build: beside the program, or in the adjacent library directory.
pub fn beside(executable: &Path) -> Vec<PathBuf> {
    let folder = executable.parent().unwrap_or(Path::new("/"));
    vec![folder.join(BACKEND), folder.join("../lib").join(BACKEND)]
}

/// The CUDA majors that the backend at `path` is linked with: one, unless it is made strangely.
pub fn majors(path: &Path) -> Result<Vec<u32>, ElfError> {
    let file = vgpu_paths::open_regular(path).map_err(|error| ElfError::Read("file", error))?;
    Ok(Elf::read(&file)?.needed.iter().filter_map(|name| major(name)).collect())
}

/// The CUDA major of a runtime library's SONAME.
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
