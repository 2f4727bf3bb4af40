//! Loads the driver's library and finds its functions, whose signatures `vgpu-abi` declares.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use vgpu_abi::driver::functions;

use super::error::{LoadError, check};

/// Name by which the loader finds the driver.
const SONAME: &str = "libcuda.so.1";

/// Declares the table of functions. Every driver has the required functions. An old driver or a stand-in may
/// lack the optional ones.
macro_rules! table {
    (required { $($name:ident)* } optional { $($extra:ident)* }) => {
        /// Functions of the driver, named as CUDA names them. The library stays loaded.
        #[allow(non_snake_case, reason = "the names are CUDA's")]
        pub(in crate::driver) struct FunctionTable {
            $( pub(in crate::driver) $name: functions::$name, )*
            $( pub(in crate::driver) $extra: Option<functions::$extra>, )*
        }

        impl FunctionTable {
            fn find(library: &Library, path: &Path) -> Result<Self, LoadError> {
                Ok(Self {
                    $( $name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the type is that of the symbol in cuda.h: both are one definition in
                        // `vgpu-abi`.
                        let found = unsafe { library.get::<functions::$name>(symbol) };
                        let too_old = |_| LoadError::TooOld { path: path.to_owned(), symbol: stringify!($name) };
                        *found.map_err(too_old)?
                    }, )*
                    $( $extra: {
                        let symbol = concat!(stringify!($extra), "\0").as_bytes();
                        // SAFETY: as above.
                        let found = unsafe { library.get::<functions::$extra>(symbol) };
                        found.ok().map(|symbol| *symbol)
                    }, )*
                })
            }
        }
    };
}

table! {
    required {
        cuInit cuDriverGetVersion cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetUuid_v2
        cuDeviceTotalMem_v2 cuDeviceGetAttribute
        cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxSetCurrent cuCtxSynchronize
        cuMemGetAllocationGranularity cuMemCreate cuMemRelease cuMemAddressReserve cuMemAddressFree cuMemMap
        cuMemUnmap cuMemSetAccess
        cuMemHostAlloc cuMemFreeHost cuMemHostRegister_v2 cuMemHostUnregister cuMemHostGetDevicePointer_v2
        cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpy3DAsync_v2
        cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async
        cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async
        cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamQuery cuStreamWaitEvent
        cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventSynchronize cuEventElapsedTime
        cuModuleLoadDataEx cuModuleUnload cuModuleGetFunction cuModuleGetGlobal_v2
        cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        cuLaunchKernel cuLaunchKernelEx cuLaunchHostFunc
        cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamGetCaptureInfo_v2 cuStreamUpdateCaptureDependencies
        cuGraphAddEmptyNode cuGraphDestroy cuGraphInstantiateWithFlags cuGraphExecDestroy cuGraphLaunch
    }
    optional {
        cuLinkCreate_v2 cuLinkAddData_v2 cuLinkComplete cuLinkDestroy
        cuMemGetInfo_v2 cuFuncGetParamInfo cuStreamWriteValue64_v2 cuStreamWaitValue32_v2
        cuGraphExecUpdate_v2 cuGraphExecKernelNodeSetParams_v2
        cuStreamGetCaptureInfo_v3 cuStreamUpdateCaptureDependencies_v2
    }
}

/// The host's driver, initialized. The library stays loaded while this value lives.
pub struct DriverLibrary {
    pub(in crate::driver) table: FunctionTable,
    /// Library, dropped after the functions, which are invalid without it.
    _library: Library,
}

impl std::fmt::Debug for DriverLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl DriverLibrary {
    /// Loads and initializes the library at `path`, or the one that the loader finds. It creates no context.
    pub(crate) fn load(path: Option<&Path>) -> Result<Arc<Self>, LoadError> {
        let path = path.unwrap_or(Path::new(SONAME));
        let failed = |error: libloading::Error| LoadError::Library {
            path: path.to_owned(),
            // The error itself says only which call failed.
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        };
        // SAFETY: whoever starts the executor chose the library; its initialisers are those that any CUDA
        // program runs.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(failed)?;
        let table = FunctionTable::find(&library, path)?;
        // SAFETY: takes no pointers.
        check("cuInit", unsafe { (table.cuInit)(0) })?;
        Ok(Arc::new(Self { table, _library: library }))
    }
}
