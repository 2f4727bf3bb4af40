//! Lists the CUDA libraries that this process has mapped, with their paths.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

/// Returns the paths of all mapped files that are named like NVIDIA's interfaces, whether ours or NVIDIA's.
/// The path of a library in memory is `/memfd:NAME (deleted)`.
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

/// Returns the path of the mapped file of the library `name`, in any version: `libcuda.so.1` is mapped as
/// `libcuda.so.580.159.04`.
pub fn path_of(name: &str) -> Option<String> {
    let stem = name.split_once(".so").map_or(name, |(stem, _)| stem);
    let of_it = |path: &&String| {
        let file = path.trim_end_matches(" (deleted)").rsplit(['/', ':']).next().unwrap_or_default();
        file.strip_prefix(stem).is_some_and(|rest| rest.starts_with(".so"))
    };
    cuda_libraries().ok()?.iter().find(of_it).cloned()
}

/// Returns what is mapped at an address: the path of a file, or "ordinary memory".
pub fn at(address: usize) -> Result<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("read /proc/self/maps")?;
    let line =
        maps.lines().find(|line| contains(line, address)).context("find an address in the mappings")?;
    Ok(line.find('/').map_or_else(|| "ordinary memory".to_owned(), |at| line[at..].to_owned()))
}

/// Returns whether a line of the mappings describes the mapping that contains the address.
fn contains(line: &str, address: usize) -> bool {
    let range = line.split(' ').next().and_then(|range| range.split_once('-'));
    let range = range.map(|(start, end)| [start, end].map(|end| usize::from_str_radix(end, 16)));
    matches!(range, Some([Ok(start), Ok(end)]) if (start..end).contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_from_files() {
        let heap = Box::new(0_u8);
        assert_eq!(at(&raw const *heap as usize).unwrap(), "ordinary memory");
        let code = at(contains as *const () as usize).unwrap();
        assert!(code.starts_with('/') && code.contains("vgpu_standin"), "{code}");
    }
}
