//! Stream memory operations. Only the second versions are declared: the first ones need a parameter of the
//! kernel module, `NVreg_EnableStreamMemOPs`, that is off unless an administrator sets it.

use core::ffi::c_uint;

use crate::driver::{CUdeviceptr, CUresult, CUstream, StreamMemoryOperation};

functions! {
    // Stream Memory Operations
    cuStreamWaitValue32_v2(
        stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint
    ) | cuStreamWaitValue32_v2_ptsz;
    cuStreamWaitValue64_v2(
        stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint
    ) | cuStreamWaitValue64_v2_ptsz;
    cuStreamWriteValue32_v2(
        stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint
    ) | cuStreamWriteValue32_v2_ptsz;
    cuStreamWriteValue64_v2(
        stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint
    ) | cuStreamWriteValue64_v2_ptsz;
    cuStreamBatchMemOp_v2(
        stream: CUstream, count: c_uint, operations: *mut StreamMemoryOperation, flags: c_uint
    ) | cuStreamBatchMemOp_v2_ptsz;
}
