//! Loads cuBLAS and cuBLASLt and finds their functions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::functions;

/// Names by which the loader finds cuBLAS, each with the oldest driver (`cuDriverGetVersion`) that it
/// supports.
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
    /// Loads the library at `path`, or the newest that supports a driver of this version. The call takes as
    /// long as the loader needs for several hundred megabytes.
    pub(crate) fn load(path: Option<&Path>, driver_version: u32) -> Result<Arc<Self>, NoBlas> {
        if let Some(path) = path {
            return Self::open(path).map_err(|why| NoBlas { tried: vec![why] });
        }
        let mut tried = Vec::new();
        for (soname, least) in SONAMES {
            if driver_version < least {
                tried.push(format!("{soname} needs a driver of CUDA {} or later", least / 1000));
                continue;
            }
            match Self::open(Path::new(soname)) {
                Ok(blas) => return Ok(blas),
                Err(why) => tried.push(why),
            }
        }
        Err(NoBlas { tried })
    }

    /// Returns whether the host has cuBLASLt.
    pub(crate) const fn has_lt(&self) -> bool {
        self.lt.is_some()
    }

    fn open(path: &Path) -> Result<Arc<Self>, String> {
        let (library, table) = find(path, FunctionTable::find)?;
        tracing::info!("cuBLAS is {}", path.display());
        let lt = lt_beside(path).ok_or_else(|| format!("{} has no version in its name", path.display()));
        let (lt_library, lt) = match lt.and_then(|path| find(&path, LtTable::find)) {
            Ok((library, table)) => (Some(library), Some(table)),
            Err(why) => {
                tracing::warn!("products with epilogues are refused, because cuBLASLt cannot be used: {why}");
                (None, None)
            }
        };
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

/// Returns the path of the cuBLASLt that belongs to a cuBLAS: the library of the same version in the same
/// directory.
fn lt_beside(path: &Path) -> Option<PathBuf> {
    let version = path.file_name()?.to_str()?.strip_prefix("libcublas.")?;
    Some(path.with_file_name(format!("libcublasLt.{version}")))
}
