//! Finds the block size with which a kernel occupies a device best.

use std::ffi::{c_int, c_uint};

use vgpu_abi::driver::{BlockToShared, attribute as device, function_attribute as id};

use crate::Result;
use crate::object::function::Function;

/// Number of threads of a warp.
const WARP: u32 = 32;

/// Returns the smallest grid that fills the device, and the block size with which a multiprocessor holds the
/// most threads.
pub fn best_block(
    function: &Function,
    shared_of: BlockToShared,
    shared: usize,
    limit: c_int,
    flags: c_uint,
) -> Result<(c_int, c_int)> {
    function.number()?;
    let gpu = function.gpu();
    let mut most = function.known(id::MAX_THREADS_PER_BLOCK);
    if limit > 0 {
        most = most.min(limit.cast_unsigned());
    }
    let per_processor = gpu.attribute(device::MAX_THREADS_PER_MULTIPROCESSOR).max(0).cast_unsigned();
    let mut best = (0, 0, 0);
    let mut threads = most;
    while threads > 0 {
        let size = c_int::try_from(threads).unwrap_or(c_int::MAX);
        let shared = match shared_of {
            // SAFETY: the export's caller promised a function of this signature.
            Some(shared_of) => unsafe { shared_of(size) },
            None => shared,
        };
        let blocks = function.occupancy(size, shared, flags)?;
        if blocks * threads > best.0 {
            best = (blocks * threads, size, blocks);
        }
        if best.0 >= per_processor {
            break;
        }
        // From the most threads down to whole warps.
        threads = threads.saturating_sub(1) / WARP * WARP;
    }
    let processors = gpu.attribute(device::MULTIPROCESSOR_COUNT).max(0);
    Ok((processors.saturating_mul(best.2.cast_signed()), best.1))
}
