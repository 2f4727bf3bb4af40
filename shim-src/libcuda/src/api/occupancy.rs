//! Occupancy: how many blocks of a kernel a multiprocessor holds.

use std::ffi::{c_int, c_uint};

use vgpu_abi::driver::{BlockToShared, CUfunction};

use crate::arg::Out;
use crate::object::library::function as get;
use crate::object::occupancy::best_block;

exports! {
    /// Stores the number of blocks of a kernel that one multiprocessor can hold.
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>, function: CUfunction, threads: c_int, shared: usize,
    ) -> CUresult {
        let function = get(function)?;
        blocks.check()?.set(function.occupancy(threads, shared, 0)?.cast_signed())
    }

    /// Stores the number of blocks of a kernel that one multiprocessor can hold, with flags.
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>, function: CUfunction, threads: c_int, shared: usize, flags: c_uint,
    ) -> CUresult {
        let function = get(function)?;
        blocks.check()?.set(function.occupancy(threads, shared, flags)?.cast_signed())
    }

    /// Stores the block size with which a kernel occupies the device best, and the smallest grid that fills
    /// it.
    pub fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, function: CUfunction, shared_of: BlockToShared, shared: usize,
        limit: c_int,
    ) -> CUresult {
        let function = get(function)?;
        let (grid, block) = (grid.check()?, block.check()?);
        let (least, threads) = best_block(function, shared_of, shared, limit, 0)?;
        grid.set(least)?;
        block.set(threads)
    }

    /// Stores the block size with which a kernel occupies the device best, and the smallest grid, with flags.
    pub fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>, block: Out<c_int>, function: CUfunction, shared_of: BlockToShared, shared: usize,
        limit: c_int, flags: c_uint,
    ) -> CUresult {
        let function = get(function)?;
        let (grid, block) = (grid.check()?, block.check()?);
        let (least, threads) = best_block(function, shared_of, shared, limit, flags)?;
        grid.set(least)?;
        block.set(threads)
    }
}
