//! The functions of libcuda that the other shims call by name.

use core::ffi::{c_int, c_uint, c_void};

use crate::CUresult;
use crate::driver::{CUcontext, CUdevice, CUuuid};
use crate::table::GetExportTable;

unsafe extern "C" {
    fn cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) -> CUresult;
    fn cuDriverGetVersion(version: *mut c_int) -> CUresult;
    fn cuInit(flags: c_uint) -> CUresult;
    fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult;
    fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult;
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
}

/// Functions of a libcuda that stays loaded. Each does what the manual says of the function after which it is
/// named. Only this crate makes such sets.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub(crate) get_export_table: GetExportTable,
    pub(crate) driver_get_version: unsafe extern "C" fn(*mut c_int) -> CUresult,
    pub(crate) init: unsafe extern "C" fn(c_uint) -> CUresult,
    pub(crate) ctx_get_current: unsafe extern "C" fn(*mut CUcontext) -> CUresult,
    pub(crate) ctx_set_current: unsafe extern "C" fn(CUcontext) -> CUresult,
    pub(crate) device_get: unsafe extern "C" fn(*mut CUdevice, c_int) -> CUresult,
    pub(crate) device_primary_ctx_retain: unsafe extern "C" fn(*mut CUcontext, CUdevice) -> CUresult,
}

/// The functions of the libcuda.so.1 with which the object is linked that uses this constant. The loader
/// keeps that library as long as the object. An object that does not use the constant needs no libcuda.
pub const LINKED: Calls = Calls {
    get_export_table: cuGetExportTable,
    driver_get_version: cuDriverGetVersion,
    init: cuInit,
    ctx_get_current: cuCtxGetCurrent,
    ctx_set_current: cuCtxSetCurrent,
    device_get: cuDeviceGet,
    device_primary_ctx_retain: cuDevicePrimaryCtxRetain,
};
