//! The real libggml-cuda.so builds, from the artifact cache, and NVIDIA's libraries to lay beside them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tempfile::TempDir;
use vgpu_artifacts::Cache;
use vgpu_device::parse_compute_capability;

/// A build of libggml-cuda.so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The CUDA 12 build: PTX for compute capabilities 5.0 to 8.0.
    Cuda12,
    /// The CUDA 13 build: compute capabilities 7.5 and later.
    Cuda13,
}

impl Backend {
    /// Both builds.
    pub const ALL: [Self; 2] = [Self::Cuda12, Self::Cuda13];

    /// Returns the name of the build in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda12 => "cuda12",
            Self::Cuda13 => "cuda13",
        }
    }

    /// Returns the compute capabilities for which the build has code.
    pub const fn capabilities(self) -> &'static [&'static str] {
        match self {
            Self::Cuda12 => &["5.0", "6.1", "7.0", "7.5", "8.0", "8.6"],
            Self::Cuda13 => &["7.5", "8.0", "8.6", "8.9", "9.0"],
        }
    }

    /// Returns the oldest driver that compiles the build's PTX, which has version 8.4 or 9.1 of the language.
    ///
    /// Minor version compatibility of CUDA does not extend to PTX: a driver compiles the versions of its own
    /// release and older ones. Sources: "PTX ISA", release history (8.4 came with CUDA 12.4, 9.1 with 13.1);
    /// "CUDA Toolkit Release Notes", table of toolkits and their drivers.
    #[must_use]
    pub const fn oldest_driver(self) -> &'static str {
        match self {
            Self::Cuda12 => "550.54.14",
            Self::Cuda13 => "590.44.01",
        }
    }

    /// Returns the build with the newest code that a GPU of a compute capability can run, the first one on a
    /// tie. PTX is also compiled for later GPUs.
    pub fn for_capability(cc: &str) -> Result<Self> {
        let newest =
            |build: &Self| build.newest_code(cc).transpose().map(|code| code.map(|code| (code, *build)));
        let mut found: Vec<_> = Self::ALL.iter().filter_map(newest).collect::<Result<_>>()?;
        found.sort_by_key(|&(code, _)| std::cmp::Reverse(code));
        let all = || Self::ALL.map(|build| build.capabilities().join(" ")).join(" ");
        found.first().map(|&(_, build)| build).with_context(|| {
            format!("no libggml-cuda.so here has code for compute capability {cc}; there is {}", all())
        })
    }

    /// Returns the build `wish`, or an error if a GPU of that compute capability cannot run it. Without a
    /// wish, returns that of [`for_capability`](Self::for_capability).
    pub fn chosen(wish: Option<Self>, cc: &str) -> Result<Self> {
        let Some(build) = wish else { return Self::for_capability(cc) };
        if build.newest_code(cc)?.is_none() {
            let (name, oldest) = (build.name(), build.capabilities()[0]);
            bail!("the {name} build has no code for compute capability {cc}: it begins at {oldest}");
        }
        Ok(build)
    }

    /// Returns the newest compute capability of the build's code that a GPU of `cc` can run.
    fn newest_code(self, cc: &str) -> Result<Option<(u32, u32)>> {
        let read = |text: &str| {
            parse_compute_capability(text).with_context(|| format!("read the compute capability {text}"))
        };
        let has: Vec<_> = self.capabilities().iter().map(|text| read(text)).collect::<Result<_>>()?;
        let asked = read(cc)?;
        Ok(has.into_iter().filter(|&code| code <= asked).max())
    }

    /// Returns the cached directory that contains the build with libggml-base.so and libggml, fetched if
    /// missing.
    pub fn folder(self) -> Result<PathBuf> {
        let name = match self {
            Self::Cuda12 => "ggml-cuda12",
            Self::Cuda13 => "ggml-cuda13",
        };
        vgpu_artifacts::fetch(name).with_context(|| format!("fetch {name}"))
    }

    /// Returns the cached directory of NVIDIA's libcudart, libcublas and libcublasLt for the build's CUDA
    /// major, fetched if missing.
    pub fn nvidia(self) -> Result<PathBuf> {
        let name = match self {
            Self::Cuda12 => "nvidia-cuda12",
            Self::Cuda13 => "nvidia-cuda13",
        };
        vgpu_artifacts::fetch(name).with_context(|| format!("fetch {name}"))
    }

    /// Returns the cached directory of NVIDIA's libraries, or `None` if it has not been fetched.
    pub fn nvidia_if_there(self) -> Result<Option<PathBuf>> {
        let name = match self {
            Self::Cuda12 => "nvidia-cuda12",
            Self::Cuda13 => "nvidia-cuda13",
        };
        let path =
            Cache::open().and_then(|cache| cache.path(name)).with_context(|| format!("find {name}"))?;
        Ok(path.is_dir().then_some(path))
    }

    /// Returns a temporary directory that contains the backend and NVIDIA's own libcudart, libcublas and
    /// libcublasLt.
    pub fn beside_nvidia(self) -> Result<TempDir> {
        let folder = TempDir::with_prefix("vgpu-beside-")?;
        link_all(&self.folder()?, folder.path())?;
        link_all(&self.nvidia()?, folder.path())?;
        Ok(folder)
    }
}

/// Hard-links the shared objects of `from` into `to`, because `$ORIGIN` would follow a symlink to the cache.
/// Falls back to symlinks across file systems.
fn link_all(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_string_lossy().contains(".so") {
            continue;
        }
        let source = entry.path().canonicalize()?;
        let target = to.join(&name);
        if std::fs::hard_link(&source, &target).is_err() {
            symlink(&source, &target).with_context(|| format!("link {}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_for_gpus() {
        let build = |wish, cc| Backend::chosen(wish, cc).map_err(|error| error.to_string());
        assert_eq!(build(None, "6.1"), Ok(Backend::Cuda12));
        assert_eq!(build(None, "8.6"), Ok(Backend::Cuda12));
        assert_eq!(build(None, "8.9"), Ok(Backend::Cuda13));
        assert_eq!(build(None, "12.0"), Ok(Backend::Cuda13));
        assert_eq!(build(Some(Backend::Cuda12), "12.0"), Ok(Backend::Cuda12));
        let refused = "the cuda13 build has no code for compute capability 6.1: it begins at 7.5";
        assert_eq!(build(Some(Backend::Cuda13), "6.1"), Err(refused.to_owned()));
        assert!(build(None, "3.5").unwrap_err().starts_with("no libggml-cuda.so here has code for"));
        assert!(build(None, "x").is_err());
    }
}
