//! Version of NVIDIA's kernel module, as its files state it. NVML itself asks the module.

use std::path::Path;

/// Files in which the kernel module states its version: the number alone, and a sentence with it. A container
/// may lack either, or both.
const MODULE_VERSIONS: [&str; 2] = ["sys/module/nvidia/version", "proc/driver/nvidia/version"];

/// Returns the version that the kernel module states in a file below `root`, such as 580.65.06, or `None` if
/// the module is not loaded or its files are hidden.
#[must_use]
pub fn module_version(root: &Path) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    MODULE_VERSIONS.iter().find_map(|file| {
        let text = std::fs::read_to_string(root.join(file)).ok()?;
        text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the version that files of this content below a root state.
    fn version(files: &[(&str, &str)]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        module_version(folder.path())
    }

    #[test]
    fn the_version_is_read_from_the_file_that_is_there() {
        let number = ("sys/module/nvidia/version", "580.159.04\n");
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:09:38 UTC 2025\n\
                      GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.44.01  Release Build\n";
        let file = "proc/driver/nvidia/version";
        assert_eq!(version(&[number, (file, closed)]).as_deref(), Some("580.159.04"));
        assert_eq!(version(&[(file, closed)]).as_deref(), Some("580.65.06"));
        assert_eq!(version(&[(file, open)]).as_deref(), Some("590.44.01"));
        assert_eq!(version(&[(file, "NVRM version: unknown\n1.2.3")]), None);
        assert_eq!(version(&[]), None);
    }
}
