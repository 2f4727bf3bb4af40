//! Options of the cuda executor.

use std::path::PathBuf;

use vgpu_device::Addresses;
use vgpu_wire::AddressRange;

use crate::driver::blas::library::FoundBlas;

/// GPU memory that a context usually takes, in bytes: what CUDA 12 takes on recent GPUs, rounded up.
pub const CONTEXT_BYTES: u64 = 640 << 20;

/// Options of the executor: the GPU and driver to use, and the resources that guests get.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Path of the driver's library. `None` selects the `libcuda.so.1` that the loader finds.
    pub libcuda: Option<PathBuf>,
    /// Path or name of cuBLAS. `None` selects `libcublas.so.13`, or `libcublas.so.12`: what the loader finds,
    /// or what a toolkit or a Python environment has.
    pub libcublas: Option<PathBuf>,
    /// Files of cuBLAS that another process has found with these options. `None` searches them when they are
    /// first needed.
    pub found_blas: Option<FoundBlas>,
    /// UUID of the GPU, or of a part of one. `None` selects the first.
    pub uuid: Option<[u8; 16]>,
    /// GPU memory for all guests together, in bytes. `None` selects everything that contexts do not take.
    pub memory: Option<u64>,
    /// GPU memory that each context takes, in bytes.
    pub context_bytes: u64,
    /// Number of simultaneous contexts for which GPU memory is reserved.
    pub contexts: u32,
    /// Device addresses that are reported to guests. The executor keeps them from other device processes for
    /// as long as it lives.
    pub addresses: Addresses,
    /// Range in which sessions map device memory. It is all of `addresses`, unless the driver is a stand-in
    /// that gives others.
    pub range: AddressRange,
    /// Version of the driver as NVML reports it. `None` asks the kernel module, or NVML.
    pub driver_text: Option<String>,
    /// Path of NVML. `None` selects the `libnvidia-ml.so.1` that the loader finds. It is loaded only where
    /// the kernel module's files are missing.
    pub libnvidia_ml: Option<PathBuf>,
    /// Directory in place of `/`, in which cuBLAS and the kernel module's files are searched, for tests.
    pub root: PathBuf,
}

impl CudaOptions {
    /// Returns the options for the first GPU with all memory that two contexts leave, at the given addresses.
    #[must_use]
    pub fn new(addresses: Addresses) -> Self {
        Self {
            libcuda: None,
            libcublas: None,
            found_blas: None,
            uuid: None,
            memory: None,
            context_bytes: CONTEXT_BYTES,
            contexts: 2,
            range: addresses.range(),
            addresses,
            driver_text: None,
            libnvidia_ml: None,
            root: "/".into(),
        }
    }
}
