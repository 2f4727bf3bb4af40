//! Opens libcuda.so.1 as a CUDA program does: the library, the first device's context, and tables of its
//! functions.

use std::ffi::{c_int, c_uint, c_void};

use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Handle of a context, stream, event, module, function, or graph.
pub type Handle = *mut c_void;
/// Status code of a call: a `CUresult` or a `cublasStatus_t`.
pub type Code = c_int;
/// Status code for success, in both libraries.
pub const SUCCESS: Code = 0;

type Init = unsafe extern "C" fn(c_uint) -> Code;
type Retain = unsafe extern "C" fn(*mut Handle, c_int) -> Code;
type SetCurrent = unsafe extern "C" fn(Handle) -> Code;

/// Loads the library and makes the first device's primary context current in this thread.
///
/// # Errors
///
/// Fails if the library is missing or there is no device.
pub fn open() -> Result<Library> {
    // SAFETY: the library's initialisers are those that any user of it runs.
    let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.context("load libcuda.so.1")?;
    // SAFETY: cuda.h: `CUresult cuInit(unsigned int)`.
    let init = *unsafe { library.get::<Init>(b"cuInit") }?;
    // SAFETY: `CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice)`.
    let retain = *unsafe { library.get::<Retain>(b"cuDevicePrimaryCtxRetain") }?;
    // SAFETY: `CUresult cuCtxSetCurrent(CUcontext)`.
    let set_current = *unsafe { library.get::<SetCurrent>(b"cuCtxSetCurrent") }?;
    let mut context = std::ptr::null_mut();
    // SAFETY: no preconditions.
    done("cuInit", unsafe { init(0) })?;
    // SAFETY: a live place for the context.
    done("cuDevicePrimaryCtxRetain", unsafe { retain(&raw mut context, 0) })?;
    // SAFETY: the context that was just retained.
    done("cuCtxSetCurrent", unsafe { set_current(context) })?;
    Ok(library)
}

/// Turns the status of the call `what` into a result.
///
/// # Errors
///
/// Fails if the status is not success.
pub fn done(what: &str, code: Code) -> Result<()> {
    if code == SUCCESS { Ok(()) } else { bail!("{what} returned {code}") }
}

/// Declares `Cuda`: pointers to the functions that a program uses, with their types in cuda.h, and the
/// library, which stays open. `Cuda::begin` opens the library and looks the functions up.
macro_rules! functions {
    ($( $field:ident = $name:literal ( $($argument:ty),* ); )*) => {
        /// The library and the functions that this program uses.
        pub struct Cuda {
            $( $field: unsafe extern "C" fn($($argument),*) -> $crate::driver::Code, )*
            _library: libloading::os::unix::Library,
        }

        impl Cuda {
            /// Opens the library, makes the first device's context current in this thread, and looks the
            /// functions up.
            ///
            /// # Errors
            ///
            /// Fails if the library or a function is missing, or if there is no device.
            pub fn begin() -> anyhow::Result<Self> {
                let library = $crate::driver::open()?;
                Ok(Self {
                    $( $field: {
                        // SAFETY: the field's type is the function's in cuda.h.
                        let symbol = unsafe { library.get($name.as_bytes()) };
                        *anyhow::Context::context(symbol, concat!("find ", $name))?
                    }, )*
                    _library: library,
                })
            }
        }
    };
}

pub(crate) use functions;
