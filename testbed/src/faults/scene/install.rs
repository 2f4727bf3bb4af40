//! Installs Ollama's files as a release lays them out.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use vgpu_artifacts::executable;
use vgpu_testbed::backends::Backend;
use vgpu_testbed::programs;

use super::Scene;
use crate::faults::settings::Era;

/// Hard-links a file, or copies it where that is impossible.
pub fn link(from: &Path, to: &Path) -> Result<()> {
    let source = from.canonicalize().with_context(|| format!("find {}", from.display()))?;
    if fs::hard_link(&source, to).is_err() {
        fs::copy(&source, to).with_context(|| format!("copy to {}", to.display()))?;
    }
    Ok(())
}

/// Replaces a file that may have other hard links by a copy of its own.
pub fn own_copy(path: &Path) -> Result<()> {
    let copy = path.with_extension("copy");
    fs::copy(path, &copy).with_context(|| format!("copy {}", path.display()))?;
    fs::rename(&copy, path).with_context(|| format!("replace {}", path.display()))
}

/// Writes an executable script.
pub fn script(path: &Path, text: &str) -> Result<()> {
    Ok(executable::write(path, format!("#!/bin/sh\n{text}\n").as_bytes())?)
}

/// Returns the directory of the built programs.
fn built(name: &str) -> Result<PathBuf> {
    let standin = programs::standin()?;
    Ok(standin.with_file_name(name))
}

impl Scene {
    /// Links those files of a cached directory that `wanted` accepts into another directory.
    fn fill(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
        for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            if wanted(&name.to_string_lossy()) {
                link(&entry.path(), &to.join(&name))?;
            }
        }
        Ok(())
    }

    /// Creates the tree of a release: lib/ollama with a directory for each CUDA, which contains NVIDIA's own
    /// libraries.
    pub(super) fn install(&self, backends: &[Backend]) -> Result<()> {
        let libraries = self.path("usr/lib/ollama");
        fs::create_dir_all(self.path("usr/bin"))?;
        fs::create_dir_all(&libraries)?;
        executable::copy(&built(self.era.program())?, &self.ollama())?;
        symlink("../usr/bin/ollama", self.path("path/ollama"))?;
        let common = Backend::Cuda13.folder()?;
        Self::fill(&common, &libraries, |name| {
            name.starts_with("libggml-base") || name.starts_with("libggml-cpu")
        })?;
        for entry in fs::read_dir(&common)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("libggml.") {
                link(&entry.path(), &libraries.join("libggml.so"))?;
            }
            if name.starts_with("libllama.") && self.era == Era::C {
                link(&entry.path(), &libraries.join("libllama.so"))?;
            }
        }
        if self.era == Era::C {
            executable::copy(&built("ollama-llama-server")?, &libraries.join("llama-server"))?;
        }
        for backend in backends {
            let (name, major) = match backend {
                Backend::Cuda12 => ("cuda_v12", "12.8.90"),
                Backend::Cuda13 => ("cuda_v13", "13.0.88"),
            };
            let folder = libraries.join(name);
            fs::create_dir(&folder)?;
            link(&backend.folder()?.join("libggml-cuda.so"), &folder.join("libggml-cuda.so"))?;
            for entry in fs::read_dir(backend.nvidia()?)? {
                let entry = entry?;
                let soname = entry.file_name().to_string_lossy().into_owned();
                let Some((stem, _)) = soname.rsplit_once(".so.") else { continue };
                // As in a release, the file name has the full version and the SONAME is a link to it.
                let full = format!("{stem}.so.{major}");
                link(&entry.path(), &folder.join(&full))?;
                symlink(&full, folder.join(&soname))?;
            }
        }
        Ok(())
    }
}
