//! Finds the files of cuBLAS and cuBLASLt, loads them, and finds their functions.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::{Deserialize, Serialize};

use super::exports::exports;
use super::functions;
use super::search::LibrarySearch;

/// Names of cuBLAS, each with the oldest driver (`cuDriverGetVersion`) that it supports.
const SONAMES: [(&str, u32); 2] = [("libcublas.so.13", 13_000), ("libcublas.so.12", 12_000)];

/// Reason for which cuBLAS cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "matrix products are refused, because cuBLAS cannot be used: {}; install cuBLAS of CUDA 12 or 13 on \
     this host, or name the file with --libcublas",
    tried.join("; ")
)]
pub(crate) struct NoBlas {
    /// Result of each library that was tried.
    tried: Vec<String>,
}

/// Declares a table of functions.
macro_rules! table {
    ($(#[$meta:meta])* $table:ident { $($name:ident)* }) => {
        $(#[$meta])*
        #[allow(non_snake_case, reason = "the names are cuBLAS's")]
        pub(super) struct $table { $( pub(super) $name: functions::$name, )* }

        impl $table {
            /// Returns the name of a function that is not among the exports of a library, if there is one.
            fn lacks(exports: &HashSet<String>) -> Option<&'static str> {
                let all: &[&'static str] = &[$( stringify!($name) ),*];
                all.iter().copied().find(|name| !exports.contains(*name))
            }

            /// Finds all functions, or returns the name of one that the library lacks.
            fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self { $(
                    $name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the function in NVIDIA's headers, see `functions`.
                        let found = unsafe { library.get::<functions::$name>(symbol) };
                        *found.map_err(|_| stringify!($name))?
                    },
                )* })
            }
        }
    };
}

table! {
    /// Functions of cuBLAS, named as cuBLAS names them. The library stays loaded.
    FunctionTable {
        cublasCreate_v2 cublasDestroy_v2 cublasSetStream_v2 cublasSetWorkspace_v2
        cublasSetPointerMode_v2 cublasSetMathMode
        cublasGemmEx_64 cublasGemmBatchedEx_64 cublasGemmStridedBatchedEx_64
        cublasStrsm_v2_64 cublasDtrsm_v2_64 cublasCtrsm_v2_64 cublasZtrsm_v2_64
        cublasStrsmBatched_64 cublasDtrsmBatched_64 cublasCtrsmBatched_64 cublasZtrsmBatched_64
        cublasDotEx_64 cublasDotcEx_64 cublasNrm2Ex_64 cublasAxpyEx_64
        cublasSasum_v2_64 cublasDasum_v2_64 cublasScasum_v2_64 cublasDzasum_v2_64
    }
}

table! {
    /// Functions of cuBLASLt, named as cuBLASLt names them.
    LtTable {
        cublasLtMatmul cublasLtMatmulAlgoGetHeuristic
        cublasLtMatmulDescCreate cublasLtMatmulDescSetAttribute cublasLtMatmulDescDestroy
        cublasLtMatrixLayoutCreate cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutDestroy
        cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceSetAttribute cublasLtMatmulPreferenceDestroy
    }
}

/// Files of cuBLAS that one process has found, for other processes, which need not search for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FoundBlas(pub(crate) Vec<BlasFiles>);

/// The files of a cuBLAS that has all functions, and of the cuBLASLt beside it. Nothing is loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlasFiles {
    blas: PathBuf,
    /// cuBLASLt, or why the host has none that can be used.
    lt: Result<PathBuf, String>,
}

impl BlasFiles {
    /// Finds the library at `path`, or each that supports a driver of this version, the newest first. A path
    /// without a directory is the name of a library that is searched. `root` is the directory in place of
    /// `/`.
    pub(crate) fn find(path: Option<&Path>, driver_version: u32, root: &Path) -> Result<Vec<Self>, NoBlas> {
        let search = LibrarySearch { root, variable: &|name| std::env::var_os(name) };
        let mut tried = Vec::new();
        let mut files = Vec::new();
        let mut add = |name: &Path, tried: &mut Vec<String>| {
            let found = search.files(&name.to_string_lossy());
            if found.is_empty() {
                tried.push(format!("there is no {}", name.display()));
            }
            files.extend(found);
        };
        match path {
            Some(name) if name.components().count() == 1 => add(name, &mut tried),
            Some(path) => files.push(path.to_owned()),
            None => {
                for (soname, least) in SONAMES {
                    if driver_version < least {
                        tried.push(format!("{soname} needs a driver of CUDA {} or later", least / 1000));
                    } else {
                        add(Path::new(soname), &mut tried);
                    }
                }
            }
        }
        let mut usable = Vec::new();
        for file in files {
            match examine(&file, FunctionTable::lacks) {
                Ok(()) => usable.push(Self { lt: lt_beside(&file), blas: file }),
                Err(why) => tried.push(why),
            }
        }
        if usable.is_empty() { Err(NoBlas { tried }) } else { Ok(usable) }
    }

    /// Returns why there is no cuBLASLt that can be used, or `None` if there is one.
    pub(crate) fn lacks_lt(&self) -> Option<&str> {
        self.lt.as_ref().err().map(String::as_str)
    }
}

/// The host's cuBLAS and cuBLASLt. They stay loaded while this value lives.
pub(crate) struct Blas {
    pub(super) table: FunctionTable,
    /// Functions of cuBLASLt, or `None` if the host has none, which was logged.
    pub(super) lt: Option<LtTable>,
    /// Libraries, dropped after the functions, which are invalid without them.
    _libraries: (Library, Option<Library>),
}

impl std::fmt::Debug for Blas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blas").finish_non_exhaustive()
    }
}

impl Blas {
    /// Loads the first library that can be loaded. The call takes as long as the loader needs for several
    /// hundred megabytes.
    pub(crate) fn load(files: &[BlasFiles]) -> Result<Arc<Self>, NoBlas> {
        let mut tried = Vec::new();
        for files in files {
            match Self::open(files) {
                Ok(blas) => return Ok(blas),
                Err(why) => tried.push(why),
            }
        }
        Err(NoBlas { tried })
    }

    /// Loads cuBLASLt before cuBLAS, which needs it: the loader takes a library that is loaded already,
    /// whatever its directory, and otherwise might find none, or one of another version.
    fn open(files: &BlasFiles) -> Result<Arc<Self>, String> {
        let lt = files.lt.clone().and_then(|path| find(&path, LtTable::find));
        let (lt_library, lt) = match lt {
            Ok((library, table)) => (Some(library), Some(table)),
            Err(why) => {
                tracing::warn!("products with epilogues are refused, because cuBLASLt cannot be used: {why}");
                (None, None)
            }
        };
        let (library, table) = find(&files.blas, FunctionTable::find)?;
        tracing::info!("cuBLAS is {}", files.blas.display());
        Ok(Arc::new(Self { table, lt, _libraries: (library, lt_library) }))
    }
}

/// Loads a library and finds its functions.
fn find<T>(
    path: &Path,
    functions: impl FnOnce(&Library) -> Result<T, &'static str>,
) -> Result<(Library, T), String> {
    // SAFETY: whoever starts the executor chose the library; its initialisers are those that any CUDA program
    // runs.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| format!("load {}: {error}", path.display()))?;
    let table = functions(&library).map_err(|lacks| format!("{} has no {lacks}", path.display()))?;
    Ok((library, table))
}

/// Checks that a file is a library with all functions of a table.
fn examine(path: &Path, lacks: fn(&HashSet<String>) -> Option<&'static str>) -> Result<(), String> {
    match lacks(&exports(path)?) {
        Some(lacks) => Err(format!("{} has no {lacks}", path.display())),
        None => Ok(()),
    }
}

/// Returns the path of the cuBLASLt that belongs to a cuBLAS: the library of the same version in the same
/// directory.
fn lt_beside(path: &Path) -> Result<PathBuf, String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = name.strip_prefix("libcublas.");
    let version = version.ok_or_else(|| format!("{} has no version in its name", path.display()))?;
    let path = path.with_file_name(format!("libcublasLt.{version}"));
    examine(&path, LtTable::lacks).map(|()| path)
}

/// Returns the files called `name`, such as `libcublas.so.13`, where the executor searches cuBLAS.
#[must_use]
pub fn cublas_files(name: &str) -> Vec<PathBuf> {
    LibrarySearch { root: Path::new("/"), variable: &|name| std::env::var_os(name) }.files(name)
}
