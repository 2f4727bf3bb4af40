//! Functions of libcuda that the other shims call by name.

use crate::driver::functions::{
    cuCtxGetCurrent, cuCtxSetCurrent, cuDeviceGet, cuDevicePrimaryCtxRetain, cuDriverGetVersion,
    cuGetExportTable, cuInit,
};

/// Functions of a libcuda that stays loaded. Each behaves as the manual says of the function after which it
/// is named. Only this crate creates such sets.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub(crate) get_export_table: cuGetExportTable,
    pub(crate) driver_get_version: cuDriverGetVersion,
    pub(crate) init: cuInit,
    pub(crate) ctx_get_current: cuCtxGetCurrent,
    pub(crate) ctx_set_current: cuCtxSetCurrent,
    pub(crate) device_get: cuDeviceGet,
    pub(crate) device_primary_ctx_retain: cuDevicePrimaryCtxRetain,
}

/// Functions of the libcuda.so.1 that the object is linked with. The loader keeps that library as long as the
/// object. An object that does not use this constant needs no libcuda.
pub const LINKED: Calls = Calls {
    get_export_table: cuGetExportTable,
    driver_get_version: cuDriverGetVersion,
    init: cuInit,
    ctx_get_current: cuCtxGetCurrent,
    ctx_set_current: cuCtxSetCurrent,
    device_get: cuDeviceGet,
    device_primary_ctx_retain: cuDevicePrimaryCtxRetain,
};
