//! The way to libcuda: the private table, and the calls that give a thread a context.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use vgpu_abi::blas::BlasStatus;
use vgpu_abi::driver::{CUcontext, CUdevice, CUuuid};
use vgpu_abi::table::Table;
use vgpu_abi::{CUresult, log};
use vgpu_wire::body::gemm::Gemm;

use crate::Result;

unsafe extern "C" {
    fn cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) -> CUresult;
    fn cuInit(flags: c_uint) -> CUresult;
    fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult;
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
}

/// libcuda's table. Without one nothing can be initialised, and the log says why, once.
fn table() -> Result<&'static Table> {
    static TABLE: OnceLock<Option<&'static Table>> = OnceLock::new();
    TABLE
        .get_or_init(|| {
            // SAFETY: the loader bound the function to the libcuda.so.1 that this object needs, which so
            // stays loaded as long as this object.
            let table = unsafe { Table::ask(cuGetExportTable) };
            if table.is_none() {
                log::error(format_args!(
                    "cuBLASLt: libcuda.so.1 is not that of vgpu-run, or of another build"
                ));
            }
            table
        })
        .ok_or(BlasStatus::NOT_INITIALIZED)
}

/// Initialises libcuda and gives the thread a context if it has none: the primary one of the first device, as the
/// runtime API does, on which NVIDIA's cuBLASLt stands.
pub fn prepare() -> Result {
    let prepared = || {
        table().map_err(|_| CUresult::NOT_INITIALIZED)?;
        // SAFETY: takes no pointers.
        unsafe { cuInit(0) }.ok()?;
        let mut context = CUcontext::NULL;
        // SAFETY: called with a place for the answer.
        unsafe { cuCtxGetCurrent(&raw mut context) }.ok()?;
        if context != CUcontext::NULL {
            return Ok(());
        }
        let mut device = 0;
        // SAFETY: called with a place for the answer.
        unsafe { cuDeviceGet(&raw mut device, 0) }.ok()?;
        // SAFETY: called with a place for the answer.
        unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) }.ok()?;
        // SAFETY: takes no pointers; libcuda checks its handles.
        unsafe { cuCtxSetCurrent(context) }.ok()
    };
    prepared().map_err(|status: CUresult| {
        log::info(format_args!("cuBLASLt: no handle without a context: {status}"));
        if status == CUresult::OUT_OF_MEMORY { BlasStatus::ALLOC_FAILED } else { BlasStatus::NOT_INITIALIZED }
    })
}

/// Gives a product to a stream.
pub fn multiply(stream: usize, product: &Gemm) -> Result {
    let stream: *mut c_void = std::ptr::without_provenance_mut(stream);
    // SAFETY: an entry of libcuda's table, called with a stream, which it checks, and a live structure.
    unsafe { (table()?.gemm)(stream, product) }.ok().map_err(|status| {
        log::info(format_args!("cuBLASLt: a matrix product is refused: {status}"));
        BlasStatus::from(status)
    })
}
