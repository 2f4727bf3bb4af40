//! What asks NVIDIA's driver for its private export tables (`cuGetExportTable`): a CUDA runtime that is
//! linked statically, as nvcc does unless told otherwise, and NVIDIA's cuDNN, NCCL and cuFFT. Behind the
//! tables is a check that the driver is genuine, which is not defeated here. Told from files alone, and only
//! of the libraries that they name: what a program opens later by itself is in none of its headers.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::elf::{self, Elf, ElfError, ReadAt};
use super::search::Search;
use super::texts;
use crate::diagnosis::Remedy;
use crate::diagnosis::fix::backend as fix;

/// SONAME prefixes of NVIDIA's libraries that ask for the tables.
const LIBRARIES: [(&str, &str); 4] =
    [("libcudnn", "cuDNN"), ("libnccl.so", "NCCL"), ("libcufft.so", "cuFFT"), ("libcufftw.so", "cuFFT")];
/// SONAME prefix of the runtime.
const RUNTIME: &str = "libcudart.so";
/// The driver's library, which the runtime opens by this name.
const DRIVER: &[u8] = b"libcuda.so.1\0";
/// The function that it takes the tables from.
const FUNCTION: &[u8] = b"cuGetExportTable\0";
/// The id of the table that is for the runtime. NVIDIA's libcudart of CUDA 12.9 and 13 has it among its
/// constants, and so have their libcublas, into which the runtime is linked; GGML's backends, which need
/// libcudart, have not.
const TABLE: [u8; 16] =
    [0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9];
/// Evidence for a positive result of [`linked_in`].
pub const SEEN: &str = "among its constants are the names libcuda.so.1 and cuGetExportTable and the id of the CUDA runtime's private table";
/// Maximum number of libraries of one program that are read.
const MOST: usize = 256;

/// Something that asks for the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// The runtime is linked into this file.
    Runtime(PathBuf),
    /// A library of NVIDIA's.
    Library {
        /// The file that needs it.
        by: PathBuf,
        /// SONAME of the library.
        soname: String,
        /// NVIDIA's name of the library.
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
    /// What the user can do about it.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Runtime(_) => fix::LINKED_IN,
            Self::Library { .. } => fix::LIBRARY_ASKS,
        }
    }
}

/// Result of the search for one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableAskers {
    /// Files that ask, in the order in which they were found.
    pub askers: Vec<Asker>,
    /// Files that could not be read, one line each.
    pub unseen: Vec<String>,
}

/// NVIDIA's name of a library that asks, found by its SONAME.
pub fn asks(soname: &str) -> Option<&'static str> {
    LIBRARIES.iter().find(|(begin, _)| soname.starts_with(begin)).map(|(_, name)| *name)
}

/// Whether the runtime is linked into a file whose headers say `elf`. One that needs libcudart, or is it, has
/// it from there.
pub fn linked_in(file: &impl ReadAt, elf: &Elf) -> Result<bool, ElfError> {
    if elf.needed.iter().chain(&elf.soname).any(|name| name.starts_with(RUNTIME)) {
        return Ok(false);
    }
    let (constants, _) = elf::constants(file, ".rodata")?;
    Ok(texts::search(file, &constants, [DRIVER, FUNCTION, &TABLE])? == [true; 3])
}

/// Finds what asks among `files` and the libraries that they need, which are searched as `search` says and in
/// the directories that each file names. Libraries named in `ours` are skipped, because vgpu-run replaces
/// them.
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

/// Reads a file's headers, and notes if the runtime is linked into it.
fn read(path: &Path, found: &mut TableAskers) -> Result<Elf, ElfError> {
    let file = vgpu_paths::open_regular(path).map_err(|error| ElfError::Read("file", error))?;
    let elf = Elf::read(&file)?;
    if linked_in(&file, &elf)? {
        found.askers.push(Asker::Runtime(path.to_owned()));
    }
    Ok(elf)
}

/// The folders that a file names for what it needs; `$ORIGIN` is the one it lies in.
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
