//! The release for Kubernetes: the device plugin with what makes an image and a DaemonSet of it. It is an
//! archive of its own, because a host without Kubernetes needs none of it, and operators make the image.

use std::path::{Path, PathBuf};

use super::error::DistError;
use super::files::read;
use super::host::{Packed, cargo, check};
use super::tarball::{self, files};

/// Name of the program and of the archive.
const PROGRAM: &str = "vgpu-device-plugin";

/// Additional files of the archive: their paths in it and in the workspace.
const FILES: &[(&str, &str)] = &[
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("LICENSE-MIT", "LICENSE-MIT"),
    ("kubernetes.md", "docs/kubernetes.md"),
    ("kubernetes/Containerfile", "packaging/kubernetes/Containerfile"),
    ("kubernetes/base/daemonset.yaml", "packaging/kubernetes/base/daemonset.yaml"),
    ("kubernetes/base/kustomization.yaml", "packaging/kubernetes/base/kustomization.yaml"),
    ("kubernetes/base/namespace.yaml", "packaging/kubernetes/base/namespace.yaml"),
    ("kubernetes/base/profiles.toml", "packaging/kubernetes/base/profiles.toml"),
    ("kubernetes/base/rbac.yaml", "packaging/kubernetes/base/rbac.yaml"),
    ("kubernetes/example/kustomization.yaml", "packaging/kubernetes/example/kustomization.yaml"),
    ("kubernetes/example/pod.yaml", "packaging/kubernetes/example/pod.yaml"),
];

/// Compiles the program into `folder`, unless it lies in `built`, and returns its path.
pub fn build(root: &Path, folder: &Path, built: Option<&Path>) -> Result<PathBuf, DistError> {
    cargo(root, folder, built, "vgpu-kubernetes", PROGRAM)
}

/// Packs the program with its accompanying files.
pub fn pack(root: &Path, version: &str, program: &Path) -> Result<Packed, DistError> {
    let bytes = read(program)?;
    let (glibc, needed) = check(program, &bytes)?;
    let mut documents = Vec::new();
    for (name, source) in FILES {
        documents.push(((*name).to_owned(), read(&root.join(source))?));
    }
    let name = format!("{PROGRAM}-{version}-x86_64-linux-gnu");
    let archive = tarball::pack(&name, files("bin/vgpu-device-plugin", &bytes, &documents))
        .map_err(|source| DistError::File { path: PathBuf::from(&name), source })?;
    let program_bytes = bytes.len() as u64;
    Ok(Packed { name, archive, glibc, needed, program_bytes, documents, program: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is added to the kustomize folder, and not to the archive, would be missing in a release.
    #[test]
    fn the_archive_has_the_whole_kustomize_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut folders = vec![PathBuf::from("packaging/kubernetes")];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let path = folder.join(entry.file_name());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(path);
                    continue;
                }
                assert!(FILES.iter().any(|(_, source)| Path::new(source) == path), "{}", path.display());
                count += 1;
            }
        }
        assert_eq!(count, 8);
    }
}
