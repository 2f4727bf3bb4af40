//! Which CUDA libraries this process has mapped, and from where.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

/// Paths of all mapped files whose name says that they are NVIDIA's interfaces, ours or NVIDIA's: an
/// in-memory library reads `/memfd:NAME (deleted)`.
pub fn cuda_libraries() -> Result<Vec<String>> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("read /proc/self/maps")?;
    let paths: BTreeSet<&str> = maps
        .lines()
        .filter_map(|line| line.find(['/', '[']).map(|at| &line[at..]))
        .filter(|path| {
            let path = path.trim_end_matches(" (deleted)");
            let name = path.rsplit(['/', ':']).next().unwrap_or(path);
            ["libcuda.", "libcudart.", "libcublas.", "libcublasLt.", "libnvidia-"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        })
        .collect();
    Ok(paths.into_iter().map(str::to_owned).collect())
}
