//! CUDA's driver API and the one cuBLAS call that hostile programs use. Each call returns its status, which a
//! siege reports.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::driver::{Code, Handle, SUCCESS, done, functions};

/// Size in bytes of a block's shared memory on every device.
const SHARED: u32 = 48 << 10;

type HostFunction = extern "C" fn(*mut c_void);

/// Declares the table of functions and a method for each that calls it. The types are those of cuda.h, with
/// references in place of pointers that must be valid.
macro_rules! methods {
    ($( $field:ident = $name:literal ( $($argument:ident : $ty:ty),* ); )*) => {
        functions! { $( $field = $name($($ty),*); )* }

        impl Cuda {
            $(
                #[doc = concat!("`", $name, "`")]
                #[allow(clippy::too_many_arguments, reason = "the function has as many")]
                pub fn $field(&self, $($argument: $ty),*) -> Code {
                    // SAFETY: pointers that the function follows are references; addresses and handles are
                    // numbers, which the library checks.
                    unsafe { (self.$field)($($argument),*) }
                }
            )*
        }
    };
}

methods! {
    synchronize = "cuCtxSynchronize"();
    alloc = "cuMemAlloc_v2"(address: &mut u64, bytes: usize);
    free = "cuMemFree_v2"(address: u64);
    copy = "cuMemcpyDtoDAsync_v2"(to: u64, from: u64, bytes: usize, stream: Handle);
    fill = "cuMemsetD8Async"(to: u64, value: u8, bytes: usize, stream: Handle);
    fill_rows = "cuMemsetD2D8Async"(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);
    load = "cuModuleLoadData"(module: &mut Handle, image: &c_char);
    function = "cuModuleGetFunction"(function: &mut Handle, module: Handle, name: &c_char);
    stream = "cuStreamCreate"(stream: &mut Handle, flags: c_uint);
    event = "cuEventCreate"(event: &mut Handle, flags: c_uint);
    host_function = "cuLaunchHostFunc"(stream: Handle, function: HostFunction, data: Handle);
    begin_capture = "cuStreamBeginCapture_v2"(stream: Handle, mode: c_uint);
    end_capture = "cuStreamEndCapture"(stream: Handle, graph: &mut Handle);
    instantiate = "cuGraphInstantiateWithFlags"(executable: &mut Handle, graph: Handle, flags: u64);
    launch_graph = "cuGraphLaunch"(executable: Handle, stream: Handle);
    launch_kernel = "cuLaunchKernel"(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint,
        stream: Handle, parameters: Option<&mut [*mut c_void; 2]>, extra: Option<&mut [*mut c_void; 1]>
    );
    launch_cooperative = "cuLaunchCooperativeKernel"(
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
        shared: c_uint,
        stream: Handle, parameters: Option<&mut [*mut c_void; 2]>
    );
}

impl Cuda {
    /// Loads a module from PTX text.
    ///
    /// # Errors
    ///
    /// Returns the status of the failed call.
    pub fn module(&self, ptx: &str) -> Result<Handle, Code> {
        let text = CString::new(ptx).unwrap_or_default();
        let mut module = std::ptr::null_mut();
        match self.load(&mut module, first(&text)) {
            SUCCESS => Ok(module),
            code => Err(code),
        }
    }

    /// Looks up the kernel `k` of a module, which is the name of all hostile kernels.
    ///
    /// # Errors
    ///
    /// Returns the status of the failed call.
    pub fn kernel(&self, module: Handle) -> Result<Handle, Code> {
        let mut function = std::ptr::null_mut();
        match self.function(&mut function, module, first(c"k")) {
            SUCCESS => Ok(function),
            code => Err(code),
        }
    }

    /// Launches a kernel with the two words of parameters that hostile kernels declare and do not read.
    pub fn launch(&self, function: Handle, [x, y, z]: [u32; 3], threads: u32, stream: Handle) -> Code {
        let (mut first, mut second) = (0_u64, 0_u64);
        let mut parameters: [*mut c_void; 2] = [(&raw mut first).cast(), (&raw mut second).cast()];
        self.launch_kernel(function, x, y, z, threads, 1, 1, 0, stream, Some(&mut parameters), None)
    }

    /// Launches a kernel as [`Cuda::launch`] does, but cooperatively, with as much shared memory as every
    /// device has.
    pub fn launch_together(&self, function: Handle, blocks: u32, threads: u32, stream: Handle) -> Code {
        let (mut first, mut second) = (0_u64, 0_u64);
        let mut parameters: [*mut c_void; 2] = [(&raw mut first).cast(), (&raw mut second).cast()];
        self.launch_cooperative(function, blocks, 1, 1, threads, 1, 1, SHARED, stream, Some(&mut parameters))
    }
}

/// Returns a reference to the first character of a text, as C functions expect it.
fn first(text: &CStr) -> &c_char {
    // SAFETY: a text has at least its final zero, and lives as long as the reference.
    unsafe { &*text.as_ptr() }
}

type Create = unsafe extern "C" fn(&mut Handle) -> c_int;
type Strided = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    &f32,
    u64,
    c_int,
    i64,
    u64,
    c_int,
    i64,
    &f32,
    u64,
    c_int,
    i64,
    c_int,
) -> c_int;

/// The cuBLAS library with one handle.
pub struct Blas {
    handle: Handle,
    strided: Strided,
    _library: Library,
}

impl Blas {
    /// Loads the library and creates a handle.
    ///
    /// # Errors
    ///
    /// Fails if the library is missing or creating the handle fails.
    pub fn begin() -> Result<Self> {
        // SAFETY: the library's initialisers are those that any user of it runs.
        let library = unsafe { Library::open(Some("libcublas.so.12"), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.context("load libcublas.so.12")?;
        // SAFETY: cublas_api.h: `cublasStatus_t cublasCreate_v2(cublasHandle_t *)`.
        let create = *unsafe { library.get::<Create>(b"cublasCreate_v2") }?;
        // SAFETY: the type is the function's in cublas_api.h; device addresses are numbers.
        let strided = *unsafe { library.get::<Strided>(b"cublasSgemmStridedBatched") }?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a live place for the handle.
        done("cublasCreate", unsafe { create(&mut handle) })?;
        Ok(Self { handle, strided, _library: library })
    }

    /// Requests `count` products of a 1x1 matrix with itself, all stored to the same address.
    pub fn products(&self, matrix: u64, count: c_int) -> Code {
        let (one, none) = (1.0, 0.0);
        // SAFETY: the scalars live as long as the call; the device address is a number.
        unsafe {
            (self.strided)(
                self.handle,
                0,
                0,
                1,
                1,
                1,
                &one,
                matrix,
                1,
                0,
                matrix,
                1,
                0,
                &none,
                matrix,
                1,
                0,
                count,
            )
        }
    }
}
