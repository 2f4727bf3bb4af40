//! Kernel modules: which files a module needs, in the order of loading. The package has no `modules.dep` (its
//! installation would make one), so each module is asked.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;

/// Reasons why a kernel module cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum ModuleError {
    #[error("read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("understand the module {path}")]
    Elf { path: PathBuf, source: goblin::error::Error },
    #[error("find the kernel module {0}")]
    Absent(String),
}

/// Modules of one kernel by name, each with its file.
#[derive(Debug)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    /// Names of the modules that are built into the kernel.
    built_in: Vec<String>,
}

/// Returns the name of a module's file, in which `-` is replaced by `_`.
fn name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?.strip_suffix(".ko")?;
    Some(name.replace('-', "_"))
}

impl Modules {
    /// Finds the modules below `folder`, such as `/lib/modules/6.1.0-50-cloud-amd64`.
    pub fn below(folder: &Path) -> Result<Self, ModuleError> {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let error = |source| ModuleError::File { path: folder.clone(), source };
            for entry in fs::read_dir(&folder).map_err(error)? {
                let entry = entry.map_err(error)?;
                if entry.file_type().map_err(error)?.is_dir() {
                    folders.push(entry.path());
                } else if let Some(name) = name(&entry.path()) {
                    files.insert(name, entry.path());
                }
            }
        }
        let path = folder.join("modules.builtin");
        let list = fs::read_to_string(&path).map_err(|source| ModuleError::File { path, source })?;
        let built_in = list.lines().filter_map(|line| name(Path::new(line))).collect();
        Ok(Self { files, built_in })
    }

    /// Returns the files of these modules and of their dependencies, in the order of loading.
    pub fn order(&self, wanted: &[&str]) -> Result<Vec<PathBuf>, ModuleError> {
        let mut order = Vec::new();
        for name in wanted {
            self.add(name, &mut order)?;
        }
        Ok(order)
    }

    fn add(&self, name: &str, order: &mut Vec<PathBuf>) -> Result<(), ModuleError> {
        if self.built_in.iter().any(|own| own == name) {
            return Ok(());
        }
        let path = self.files.get(name).ok_or_else(|| ModuleError::Absent(name.to_owned()))?;
        if order.contains(path) {
            return Ok(());
        }
        let bytes = fs::read(path).map_err(|source| ModuleError::File { path: path.clone(), source })?;
        let needs = needs(&bytes).map_err(|source| ModuleError::Elf { path: path.clone(), source })?;
        for needed in needs {
            self.add(&needed, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

/// Returns the dependencies of a module, from `depends=a,b` in its section `.modinfo`.
fn needs(module: &[u8]) -> Result<Vec<String>, goblin::error::Error> {
    let elf = Elf::parse(module)?;
    let section = elf
        .section_headers
        .iter()
        .find(|section| elf.shdr_strtab.get_at(section.sh_name) == Some(".modinfo"))
        .and_then(|section| module.get(section.file_range()?));
    Ok(depends(section.unwrap_or_default()))
}

/// Returns the dependencies that the bytes of a section `.modinfo` list.
fn depends(modinfo: &[u8]) -> Vec<String> {
    let mut lines = modinfo.split(|byte| *byte == 0).filter_map(|line| str::from_utf8(line).ok());
    let list = lines.find_map(|line| line.strip_prefix("depends=")).unwrap_or_default();
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        assert_eq!(
            depends(b"license=GPL\0\0depends=virtio,virtio-ring\0name=x\0"),
            ["virtio", "virtio_ring"]
        );
        assert!(depends(b"depends=\0").is_empty() && depends(b"\xff\0").is_empty());
        assert_eq!(name(Path::new("a/virtio-pci.ko")).unwrap(), "virtio_pci");
        assert!(name(Path::new("a/x.ko.xz")).is_none());
    }

    #[test]
    fn what_is_built_in_needs_no_file_and_what_is_nowhere_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/drivers/virtio/virtio.ko\n").unwrap();
        let modules = Modules::below(folder.path()).unwrap();
        assert!(modules.order(&["virtio"]).unwrap().is_empty());
        assert!(matches!(modules.order(&["fuse"]), Err(ModuleError::Absent(name)) if name == "fuse"));
    }
}
