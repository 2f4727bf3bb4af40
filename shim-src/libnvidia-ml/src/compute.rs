//! Compute capability, compute mode and number of cores.

use std::ffi::{c_int, c_uint};

use vgpu_abi::export;
use vgpu_abi::nvml::{NvmlReturn, cores_per_multiprocessor};

use crate::arg::Out;
use crate::driver::attribute;
use crate::find::Handle;

export! {
    /// Stores the major and minor number of the compute capability.
    pub fn nvmlDeviceGetCudaComputeCapability(
        device: Handle, major: Out<c_int>, minor: Out<c_int>
    ) -> NvmlReturn {
        let facts = &device.gpu()?.device.facts;
        let (major, minor) = (major.check()?, minor.check()?);
        major.set(facts.cc_major.cast_signed())?;
        minor.set(facts.cc_minor.cast_signed())
    }

    /// Stores the compute mode. CUDA and NVML use the same numbers.
    pub fn nvmlDeviceGetComputeMode(device: Handle, mode: Out<c_uint>) -> NvmlReturn {
        let gpu = device.gpu()?;
        // Unlike for other attributes, 0 is a value here: the default mode.
        mode.set(gpu.attribute(attribute::COMPUTE_MODE).unwrap_or(0))
    }

    /// Stores the number of single-precision units: that of one multiprocessor times the number of
    /// multiprocessors.
    pub fn nvmlDeviceGetNumGpuCores(device: Handle, cores: Out<c_uint>) -> NvmlReturn {
        let gpu = device.gpu()?;
        let cores = cores.check()?;
        let facts = &gpu.device.facts;
        let each = cores_per_multiprocessor(facts.cc_major, facts.cc_minor).ok_or(NvmlReturn::NOT_SUPPORTED)?;
        cores.set(gpu.attribute(attribute::MULTIPROCESSOR_COUNT)? * each)
    }
}
