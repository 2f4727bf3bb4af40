//! Execution control and occupancy: attributes of kernels, which are named by the addresses of their host
//! stubs.

use core::ffi::{c_char, c_int, c_uint, c_void};

use vgpu_abi::driver::{CUdevice, CUfunction, CUkernel};
use vgpu_abi::runtime::{CudaError, FuncAttributes, Function, Kernel};

use crate::{kernels, process};

/// Ids of the `cudaFuncAttribute`s that can be set, from MaxDynamicSharedMemorySize to
/// ClusterSchedulingPolicyPreference. They are the driver's ids.
const SETTABLE: core::ops::RangeInclusive<c_uint> = 8..=15;

/// Returns the kernel of a host stub, and the driver's handle of the thread's device.
fn on_device(host: *const c_void) -> Result<(CUkernel, CUdevice), CudaError> {
    let runtime = process::enter()?;
    let device = runtime.device(runtime.current()?)?.handle;
    Ok((kernels::from_host(host)?, device))
}

/// Returns the function of a host stub in the thread's context.
fn in_context(host: *const c_void) -> Result<CUfunction, CudaError> {
    process::enter()?;
    let mut function = CUfunction::NULL;
    cu!(cuKernelGetFunction(&raw mut function, kernels::from_host(host)?)).map(|()| function)
}

fn occupancy(
    blocks: *mut c_int,
    host: *const c_void,
    threads: c_int,
    shared_bytes: usize,
    flags: c_uint,
) -> Result<(), CudaError> {
    let function = in_context(host)?;
    if blocks.is_null() {
        return Err(CudaError::INVALID_VALUE);
    }
    cu!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared_bytes, flags))
}

calls! {
    /// Stores a kernel's attributes.
    pub fn cudaFuncGetAttributes(place: *mut FuncAttributes, host: *const c_void) {
        let (kernel, device) = on_device(host)?;
        // The numbers are `CUfunction_attribute`'s.
        let attribute = |id: c_uint| {
            let mut value = 0;
            cu!(cuKernelGetAttribute(&raw mut value, id, kernel, device)).map(|()| value)
        };
        let bytes = |id| attribute(id).map(|value| value as usize);
        // An attribute that the driver does not know was never set.
        let newer = |id| match attribute(id) {
            Err(CudaError::INVALID_VALUE) => Ok(0),
            answer => answer,
        };
        store!(place, FuncAttributes {
            sharedSizeBytes: bytes(1)?,
            constSizeBytes: bytes(2)?,
            localSizeBytes: bytes(3)?,
            maxThreadsPerBlock: attribute(0)?,
            numRegs: attribute(4)?,
            ptxVersion: attribute(5)?,
            binaryVersion: attribute(6)?,
            cacheModeCA: attribute(7)?,
            maxDynamicSharedSizeBytes: attribute(8)?,
            preferredShmemCarveout: attribute(9)?,
            clusterDimMustBeSet: newer(10)?,
            requiredClusterWidth: newer(11)?,
            requiredClusterHeight: newer(12)?,
            requiredClusterDepth: newer(13)?,
            nonPortableClusterSizeAllowed: newer(14)?,
            clusterSchedulingPolicyPreference: newer(15)?,
            reserved: [0; 16],
        })
    }

    /// Sets an attribute of a kernel.
    pub fn cudaFuncSetAttribute(host: *const c_void, attribute: c_uint, value: c_int) {
        let (kernel, device) = on_device(host)?;
        if !SETTABLE.contains(&attribute) {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuKernelSetAttribute(attribute, value, kernel, device))
    }

    /// Sets an attribute of a kernel on one device. The program passes the kernel's handle.
    pub fn cudaKernelSetAttributeForDevice(kernel: Kernel, attribute: c_uint, value: c_int, ordinal: c_int) {
        let device = process::runtime()?.device(ordinal)?.handle;
        if !SETTABLE.contains(&attribute) {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuKernelSetAttribute(attribute, value, kernel, device))
    }

    /// Sets a kernel's preferred split between cache and shared memory.
    pub fn cudaFuncSetCacheConfig(host: *const c_void, config: c_uint) {
        let (kernel, device) = on_device(host)?;
        cu!(cuKernelSetCacheConfig(kernel, config, device))
    }

    /// Stores the mangled name of a kernel.
    pub fn cudaFuncGetName(name: *mut *const c_char, host: *const c_void) {
        process::runtime()?;
        let kernel = kernels::from_host(host)?;
        if name.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuKernelGetName(name, kernel))
    }

    /// Stores offset and size of a kernel's parameter in its parameter buffer.
    pub fn cudaFuncGetParamInfo(host: *const c_void, index: usize, offset: *mut usize, bytes: *mut usize) {
        process::runtime()?;
        let kernel = kernels::from_host(host)?;
        if offset.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuKernelGetParamInfo(kernel, index, offset, bytes))
    }

    /// Stores the number of blocks of a kernel that one multiprocessor can hold.
    pub fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        host: *const c_void,
        threads: c_int,
        shared_bytes: usize,
    ) {
        occupancy(blocks, host, threads, shared_bytes, 0)
    }

    /// Stores the number of blocks of a kernel that one multiprocessor can hold, with flags.
    pub fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int,
        host: *const c_void,
        threads: c_int,
        shared_bytes: usize,
        flags: c_uint,
    ) {
        occupancy(blocks, host, threads, shared_bytes, flags)
    }

    /// Stores the driver's function for a host stub.
    pub fn cudaGetFuncBySymbol(place: *mut Function, host: *const c_void) {
        store!(place, in_context(host)?)
    }

    /// Stores the kernel for a host stub.
    pub fn cudaGetKernel(place: *mut Kernel, host: *const c_void) {
        process::runtime()?;
        store!(place, kernels::hand(kernels::from_host(host)?))
    }
}
