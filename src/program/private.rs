//! Finds code that requests the private export tables of NVIDIA's driver (`cuGetExportTable`): a statically
//! linked CUDA runtime, which is nvcc's default, and NVIDIA's cuDNN, NCCL and cuFFT. The tables include a
//! check that the driver is genuine, which this project does not circumvent. Only files and the libraries in
//! their headers are examined; libraries that a program opens at run time are not.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::elf::{self, Elf, ElfError, ReadAt};
use super::search::Search;
use super::texts;
use crate::diagnosis::Remedy;
use crate::diagnosis::fix::backend as fix;

/// SONAME prefixes of NVIDIA's libraries that request the tables, with the libraries' names.
const LIBRARIES: [(&str, &str); 4] =
    [("libcudnn", "cuDNN"), ("libnccl.so", "NCCL"), ("libcufft.so", "cuFFT"), ("libcufftw.so", "cuFFT")];
/// SONAME prefix of the CUDA runtime.
const RUNTIME: &str = "libcudart.so";
/// SONAME by which the runtime opens the driver's library, with its terminating zero.
const DRIVER: &[u8] = b"libcuda.so.1\0";
/// Name of the driver function that returns the tables, with its terminating zero.
const FUNCTION: &[u8] = b"cuGetExportTable\0";
/// Id of the runtime's private table. It is a constant in NVIDIA's libcudart of CUDA 12.9 and 13 and in their
/// libcublas, into which the runtime is linked, but not in GGML's backends, which need libcudart.
const TABLE: [u8; 16] =
    [0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9];
/// Evidence for a positive result of [`linked_in`].
pub const SEEN: &str = "among its constants are the names libcuda.so.1 and cuGetExportTable and the id of the CUDA runtime's private table";
/// Maximum number of files that are read for one program.
const MOST: usize = 256;

/// A file that requests the private tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The runtime is statically linked into this file.
    Runtime(PathBuf),
    /// A library of NVIDIA's that a file needs.
    Library {
        /// Path of the file that needs the library.
        by: PathBuf,
        /// SONAME of the library.
        soname: String,
        /// NVIDIA's name for the library.
        name: &'static str,
    },
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(path) => write!(
                f,
                "{} has the CUDA runtime linked in, which asks for NVIDIA's private export tables",
                path.display()
            ),
            Self::Library { by, soname, name } => write!(
                f,
                "{} needs {soname}, NVIDIA's {name}, which asks for NVIDIA's private export tables",
                by.display()
            ),
        }
    }
}

impl Asker {
    /// Returns the remedy that the user can apply.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Runtime(_) => fix::LINKED_IN,
            Self::Library { .. } => fix::LIBRARY_ASKS,
        }
    }
}

/// Result of the search for the files of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableAskers {
    /// Files that request the tables, in the order of the search.
    pub askers: Vec<Asker>,
    /// Files that could not be read, one message each.
    pub unseen: Vec<String>,
}

/// Returns NVIDIA's name of a library that requests the tables, by its SONAME.
pub fn asks(soname: &str) -> Option<&'static str> {
    LIBRARIES.iter().find(|(begin, _)| soname.starts_with(begin)).map(|(_, name)| *name)
}

/// Returns whether the runtime is statically linked into a file with the headers `elf`. A file that needs
/// libcudart, or is libcudart itself, is not counted.
pub fn linked_in(file: &impl ReadAt, elf: &Elf) -> Result<bool, ElfError> {
    if elf.needed.iter().chain(&elf.soname).any(|name| name.starts_with(RUNTIME)) {
        return Ok(false);
    }
    let (constants, _) = elf::constants(file, ".rodata")?;
    Ok(texts::search(file, &constants, [DRIVER, FUNCTION, &TABLE])? == [true; 3])
}

/// Finds the files that request the tables among `files` and the libraries that they need. Libraries are
/// looked up with `search` and in the directories that each file names. SONAMEs in `ours` are skipped,
/// because vgpu-run replaces those libraries.
pub fn find_askers(files: Vec<PathBuf>, search: &Search, ours: &BTreeSet<&str>) -> TableAskers {
    let mut found = TableAskers::default();
    let mut met = BTreeSet::new();
    let mut open = std::collections::VecDeque::from(files);
    let mut looked = 0;
    while let Some(path) = open.pop_front() {
        looked += 1;
        if looked > MOST {
            found.unseen.push(format!("{} and more: these are too many libraries", path.display()));
            break;
        }
        let elf = match read(&path, &mut found) {
            Ok(elf) => elf,
            Err(error) => {
                found.unseen.push(format!("{}: {}", path.display(), crate::error::chain(&error)));
                continue;
            }
        };
        let mut search = search.clone();
        search.run_path.splice(..0, folders(&elf, &path));
        for soname in elf.needed {
            if ours.contains(soname.as_str()) || !met.insert(soname.clone()) {
                continue;
            }
            if let Some(name) = asks(&soname) {
                found.askers.push(Asker::Library { by: path.clone(), soname, name });
                continue;
            }
            match search.files(&soname).into_iter().next() {
                Some((library, _)) => open.push_back(library),
                None => {
                    found
                        .unseen
                        .push(format!("{}: it needs {soname}, which cannot be found", path.display()));
                }
            }
        }
    }
    found
}

/// Reads a file's headers, and records the file if the runtime is linked into it.
fn read(path: &Path, found: &mut TableAskers) -> Result<Elf, ElfError> {
    let file = vgpu_paths::open_regular(path).map_err(|error| ElfError::Read("file", error))?;
    let elf = Elf::read(&file)?;
    if linked_in(&file, &elf)? {
        found.askers.push(Asker::Runtime(path.to_owned()));
    }
    Ok(elf)
}

/// Returns the directories in which a file looks for its libraries; `$ORIGIN` is replaced by the file's own
/// directory.
fn folders(elf: &Elf, path: &Path) -> Vec<PathBuf> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let origin = real.parent().unwrap_or(Path::new("/")).display().to_string();
    let list = elf.run_path.as_deref().unwrap_or_default();
    list.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin).into())
        .collect()
}

#[cfg(test)]
#[path = "private_tests.rs"]
mod tests;
