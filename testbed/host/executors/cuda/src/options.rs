//! What the executor is started with.

use std::path::PathBuf;

use vgpu_device::ADDRESS_SPAN;

/// GPU memory that a context takes for itself, bytes: what CUDA 12 takes on GPUs of the last years, rounded
/// up.
const CONTEXT_BYTES: u64 = 640 << 20;

/// Which GPU, which driver, and what of it the guests get.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The driver's library. `None`: `libcuda.so.1`, as the loader finds it.
    pub libcuda: Option<PathBuf>,
    /// The GPU, or part of one. `None`: the first.
    pub uuid: Option<[u8; 16]>,
    /// GPU memory that guests get together, bytes. `None`: all but what contexts take.
    pub memory: Option<u64>,
    /// GPU memory that each context takes for itself, bytes.
    pub context_bytes: u64,
    /// Contexts at a time for which GPU memory is set aside.
    pub contexts: u32,
    /// Where device addresses start.
    pub address_base: u64,
    /// Bytes of device addresses, of which each session has all.
    pub address_bytes: u64,
    /// Version text of the driver as NVML reports it. `None`: what the kernel module says of itself.
    pub driver_text: Option<String>,
}

impl CudaOptions {
    /// The first GPU of the host's driver, all of its memory beside that of two contexts, device addresses
    /// from `address_base` on.
    #[must_use]
    pub const fn new(address_base: u64) -> Self {
        Self {
            libcuda: None,
            uuid: None,
            memory: None,
            context_bytes: CONTEXT_BYTES,
            contexts: 2,
            address_base,
            address_bytes: ADDRESS_SPAN,
            driver_text: None,
        }
    }
}
