//! Searches for the files of a library of CUDA's toolkit: where the loader looks, in toolkits, and in Python
//! environments, into which NVIDIA's packages for `pip` install libraries.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Directories that the loader searches last, on the common distributions.
const LOADER: [&str; 5] =
    ["lib64", "usr/lib64", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib"];
/// Variables that name the directory of a toolkit.
const TOOLKIT_VARIABLES: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
/// Variables that name the directory of a Python environment.
const PYTHON_VARIABLES: [&str; 2] = ["VIRTUAL_ENV", "CONDA_PREFIX"];
/// Directories of the system's own Python environments.
const PYTHON: [&str; 2] = ["usr/local", "usr"];

/// A file system and an environment in which libraries are searched.
pub(super) struct LibrarySearch<'a> {
    /// Directory in place of `/`.
    pub(super) root: &'a Path,
    /// Returns the value of an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl LibrarySearch<'_> {
    /// Returns the files called `name`, those that the loader would find first.
    pub(super) fn files(&self, name: &str) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.paths("LD_LIBRARY_PATH").map(|path| path.join(name)).collect();
        files.extend(self.cached(name));
        let directories = LOADER.map(|path| self.root.join(path)).into_iter();
        let directories = directories.chain(self.toolkits()).chain(self.python());
        files.extend(directories.map(|path| path.join(name)));
        let mut found: Vec<PathBuf> = Vec::new();
        for file in files {
            if file.is_file() && !found.contains(&file) {
                found.push(file);
            }
        }
        found
    }

    /// Returns the directories that a variable lists.
    fn paths(&self, variable: &str) -> impl Iterator<Item = PathBuf> + use<> {
        let value = (self.variable)(variable).unwrap_or_default();
        let paths: Vec<_> = std::env::split_paths(&value).collect();
        // The loader takes an empty entry for the working directory, in which a service has no libraries.
        paths.into_iter().filter(|path| path.is_absolute())
    }

    /// Returns the paths that the loader's cache has for a name. The cache consists of a table and of strings
    /// that each end with a zero.
    fn cached(&self, name: &str) -> Vec<PathBuf> {
        let cache = fs::read(self.root.join("etc/ld.so.cache")).unwrap_or_default();
        let end = format!("/{name}");
        let strings = cache.split(|byte| *byte == 0);
        let paths = strings.filter(|text| text.starts_with(b"/") && text.ends_with(end.as_bytes()));
        paths.map(|path| self.root.join(&*String::from_utf8_lossy(&path[1..]))).collect()
    }

    /// Returns the directories of libraries of toolkits, the newest version first.
    fn toolkits(&self) -> Vec<PathBuf> {
        let named = TOOLKIT_VARIABLES.iter().flat_map(|variable| self.paths(variable));
        let mut installed = children(&self.root.join("usr/local"), |name| name.starts_with("cuda"));
        // `cuda` is the version that the system prefers, usually a link to one of the others.
        installed.sort_by_key(|path| (!path.ends_with("cuda"), std::cmp::Reverse(version(path))));
        let directories = named.chain(installed).chain([self.root.join("opt/cuda")]);
        directories.map(|path| path.join("lib64")).collect()
    }

    /// Returns the directories of libraries of Python environments: those that variables name, that of the
    /// first `python3` of the path, and the system's.
    fn python(&self) -> Vec<PathBuf> {
        let mut environments: Vec<PathBuf> =
            PYTHON_VARIABLES.iter().flat_map(|variable| self.paths(variable)).collect();
        let program = self.paths("PATH").find(|path| path.join("python3").exists());
        environments.extend(program.and_then(|path| path.parent().map(Path::to_owned)));
        environments.extend(PYTHON.map(|path| self.root.join(path)));
        let mut directories = Vec::new();
        for environment in environments {
            for libraries in ["lib", "lib64"].map(|path| environment.join(path)) {
                let versions = children(&libraries, |name| name.starts_with("python3"));
                let packages = versions
                    .iter()
                    .flat_map(|path| ["site-packages", "dist-packages"].map(|part| path.join(part)));
                let vendors = packages.map(|path| path.join("nvidia"));
                directories
                    .extend(vendors.flat_map(|path| children(&path, |_| true)).map(|path| path.join("lib")));
                // Conda installs libraries beside Python.
                directories.push(libraries);
            }
        }
        directories
    }
}

/// Returns the numbers in the name of a toolkit's directory, such as 13 and 0 for `cuda-13.0`.
fn version(path: &Path) -> Vec<u32> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split(['-', '.']).filter_map(|part| part.parse().ok()).collect()
}

/// Returns the entries of a directory whose names are wanted, in the order of their names.
fn children(directory: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let wanted = entries.filter(|entry| wanted(&String::from_utf8_lossy(entry.file_name().as_bytes())));
    let mut found: Vec<PathBuf> = wanted.map(|entry| entry.path()).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "libcublas.so.13";

    /// Makes files of this name in directories below a root, and returns the order in which they are found.
    fn found(directories: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for directory in directories {
            fs::create_dir_all(root.join(directory)).unwrap();
            fs::write(root.join(directory).join(NAME), []).unwrap();
        }
        let value = |name: &str| {
            let (_, value) = variables.iter().find(|(other, _)| *other == name)?;
            Some(OsString::from(value.replace('@', &root.to_string_lossy())))
        };
        if let Some(cache) = value("cache") {
            fs::create_dir_all(root.join("etc")).unwrap();
            fs::write(root.join("etc/ld.so.cache"), cache.to_string_lossy().replace(' ', "\0")).unwrap();
        }
        let files = LibrarySearch { root, variable: &value }.files(NAME);
        let directory = |path: &PathBuf| {
            let relative = path.parent().unwrap().strip_prefix(root).unwrap();
            relative.to_string_lossy().into_owned()
        };
        files.iter().map(directory).collect()
    }

    #[test]
    fn what_the_loader_finds_comes_first() {
        let all = ["usr/local/cuda/lib64", "usr/lib/x86_64-linux-gnu", "cached", "elsewhere"];
        let cache = ("cache", "header libcublas.so.13 /cached/libcublas.so.13 /cached/libcublas.so.12 end");
        let order = ["elsewhere", "cached", "usr/lib/x86_64-linux-gnu", "usr/local/cuda/lib64"];
        assert_eq!(found(&all, &[("LD_LIBRARY_PATH", "@/nowhere::@/elsewhere"), cache]), order);
        assert_eq!(found(&all, &[]), order[2..]);
    }

    #[test]
    fn toolkits_are_tried_from_the_newest_on() {
        let all = [9, 12, 13].map(|major| format!("usr/local/cuda-{major}.1/lib64"));
        let mut all: Vec<&str> = all.iter().map(String::as_str).collect();
        all.extend(["opt/cuda/lib64", "usr/local/cuda/lib64", "home/toolkit/lib64", "usr/local/other/lib64"]);
        let order = [
            "home/toolkit/lib64",
            "usr/local/cuda/lib64",
            "usr/local/cuda-13.1/lib64",
            "usr/local/cuda-12.1/lib64",
            "usr/local/cuda-9.1/lib64",
            "opt/cuda/lib64",
        ];
        assert_eq!(found(&all, &[("CUDA_HOME", "@/home/toolkit")]), order);
    }

    #[test]
    fn packages_of_python_environments_are_searched() {
        let own = "venv/lib/python3.12/site-packages/nvidia/cu13/lib";
        let conda = "conda/lib/python3.11/site-packages/nvidia/cublas/lib";
        let local = "usr/local/lib/python3.13/dist-packages/nvidia/cu13/lib";
        let system = "usr/lib64/python3.9/site-packages/nvidia/cu13/lib";
        let all = [system, local, conda, own, "conda/lib"];
        assert_eq!(found(&all, &[]), [local, system]);
        let variables = [("CONDA_PREFIX", "@/conda"), ("VIRTUAL_ENV", "@/venv")];
        assert_eq!(found(&all, &variables), [own, conda, "conda/lib", local, system]);
        // An environment that is named only by the path, in which its program lies.
        let all = [own, "venv/bin"];
        assert_eq!(found(&all, &[("PATH", "@/bin:@/venv/bin")]), [] as [&str; 0], "it has no python3");
    }

    #[test]
    fn the_environment_of_the_first_python_is_searched() {
        let folder = tempfile::tempdir().unwrap();
        let libraries = folder.path().join("venv/lib/python3.12/site-packages/nvidia/cu13/lib");
        fs::create_dir_all(&libraries).unwrap();
        fs::write(libraries.join(NAME), []).unwrap();
        fs::create_dir_all(folder.path().join("venv/bin")).unwrap();
        fs::write(folder.path().join("venv/bin/python3"), []).unwrap();
        let path = folder.path().join("venv/bin").into_os_string();
        let variable = |name: &str| (name == "PATH").then(|| path.clone());
        let search = LibrarySearch { root: Path::new("/does/not/exist"), variable: &variable };
        assert_eq!(search.files(NAME), [libraries.join(NAME)]);
    }
}
