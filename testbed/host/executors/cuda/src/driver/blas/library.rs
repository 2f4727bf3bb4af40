//! The library and its functions.

use std::path::Path;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::functions;

/// The names by which the loader finds cuBLAS, and the oldest driver (`cuDriverGetVersion`) that each works
/// with.
const SONAMES: [(&str, u32); 2] = [("libcublas.so.13", 13_000), ("libcublas.so.12", 12_000)];

/// Why there is no cuBLAS.
#[derive(Debug, thiserror::Error)]
#[error(
    "matrix products are refused, because cuBLAS cannot be used: {}; install cuBLAS of CUDA 12 or 13 on \
     this host, or name the file with --libcublas",
    tried.join("; ")
)]
pub(crate) struct NoBlas {
    /// What came of each library that was tried.
    tried: Vec<String>,
}

/// Declares the table of functions.
macro_rules! table {
    ($($name:ident)*) => {
        /// Functions of a library that stays loaded, named as cuBLAS names them.
        #[allow(non_snake_case, reason = "the names are cuBLAS's")]
        pub(super) struct Table { $( pub(super) $name: functions::$name, )* }

        impl Table {
            /// The functions, or the name of one that the library lacks.
            fn find(library: &Library) -> Result<Self, &'static str> {
                Ok(Self { $(
                    $name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the function in cublas_v2.h, see `functions`.
                        let found = unsafe { library.get::<functions::$name>(symbol) };
                        *found.map_err(|_| stringify!($name))?
                    },
                )* })
            }
        }
    };
}

table! {
    cublasCreate_v2 cublasDestroy_v2 cublasSetStream_v2 cublasSetWorkspace_v2
    cublasSetPointerMode_v2 cublasSetMathMode
    cublasGemmEx_64 cublasGemmBatchedEx_64 cublasGemmStridedBatchedEx_64
    cublasStrsm_v2_64 cublasDtrsm_v2_64 cublasCtrsm_v2_64 cublasZtrsm_v2_64
    cublasStrsmBatched_64 cublasDtrsmBatched_64 cublasCtrsmBatched_64 cublasZtrsmBatched_64
    cublasDotEx_64 cublasDotcEx_64 cublasNrm2Ex_64 cublasAxpyEx_64
    cublasSasum_v2_64 cublasDasum_v2_64 cublasScasum_v2_64 cublasDzasum_v2_64
}

/// cuBLAS of the host. Stays loaded while anything of it is in use.
pub(crate) struct Blas {
    pub(super) table: Table,
    /// Behind the functions, which are gone with it.
    _library: Library,
}

impl std::fmt::Debug for Blas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blas").finish_non_exhaustive()
    }
}

impl Blas {
    /// Loads the library, from `path` or as the loader finds it: the newest that a driver of this version
    /// works with. Takes as long as the loader takes for some hundred megabytes.
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

    fn open(path: &Path) -> Result<Arc<Self>, String> {
        // SAFETY: whoever starts the executor chose the library; its initialisers are those that any CUDA
        // program runs.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| format!("load {}: {error}", path.display()))?;
        let table = Table::find(&library).map_err(|lacks| format!("{} has no {lacks}", path.display()))?;
        tracing::info!("cuBLAS is {}", path.display());
        Ok(Arc::new(Self { table, _library: library }))
    }
}
