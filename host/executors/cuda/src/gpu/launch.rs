//! Launches of kernels.

use vgpu_abi::CUresult;
use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, LAUNCH_PROGRAMMATIC, Launch};

use crate::driver::error::DriverError;
use crate::driver::stream::LaunchShape;
use crate::gpu::code::LoadedKernel;

/// Returns the shape of the launch that a message requests.
pub(crate) fn shape(body: &Launch) -> LaunchShape {
    LaunchShape {
        grid: body.grid,
        block: body.block,
        cluster: (body.cluster != [0; 3]).then_some(body.cluster),
        shared_bytes: body.shared_bytes,
        cooperative: body.flags & LAUNCH_COOPERATIVE != 0,
        programmatic: body.flags & LAUNCH_PROGRAMMATIC != 0,
        priority: (body.priority != 0).then_some(body.priority),
    }
}

/// Checks that `params` has all bytes that the kernel reads. Their values are not checked.
pub(crate) fn check(kernel: &LoadedKernel, params: &[u8]) -> Result<(), DriverError> {
    if kernel.param_bytes.is_some_and(|bytes| params.len() < bytes as usize) {
        return Err(DriverError { call: "launch a kernel", code: CUresult::INVALID_VALUE });
    }
    Ok(())
}
