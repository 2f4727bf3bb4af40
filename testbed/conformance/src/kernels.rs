//! The kernels that cases launch.

use std::ffi::c_void;
use std::ptr;

use vgpu_abi::driver::{CUfunction, CUmodule, CUstream};

use crate::calls::*;

const KERNELS: &str = concat!(include_str!("kernels.ptx"), "\0");

/// Loads the kernels into the current context.
pub fn load_kernels() -> CUmodule {
    get!(CUmodule, cuModuleLoadData(KERNELS.as_ptr().cast()))
}

/// Launches a kernel of one dimension whose parameters are an address and numbers.
pub fn try_launch(
    function: CUfunction,
    [blocks, threads]: [u32; 2],
    stream: CUstream,
    mut address: u64,
    numbers: &[u32],
) -> Status {
    let mut numbers = numbers.to_vec();
    let mut params: Vec<*mut c_void> = vec![(&raw mut address).cast()];
    params.extend(numbers.iter_mut().map(|number| ptr::from_mut(number).cast::<c_void>()));
    let params = params.as_mut_ptr();
    cu!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, ptr::null_mut()))
}

/// Launches as [`try_launch`] does. The launch must succeed.
pub fn launch_with(function: CUfunction, shape: [u32; 2], stream: CUstream, address: u64, numbers: &[u32]) {
    assert_eq!(try_launch(function, shape, stream, address, numbers), 0);
}

/// Returns the number at an address, once all work is complete.
pub fn read_number(address: u64) -> u32 {
    ok!(cuCtxSynchronize());
    u32::from_le_bytes(download(address, 4).try_into().expect("four bytes"))
}
