//! What the executor is started with.

use std::path::PathBuf;

use vgpu_device::Addresses;
use vgpu_wire::AddressRange;

/// GPU memory that a context takes for itself, bytes: what CUDA 12 takes on GPUs of the last years, rounded
/// up.
const CONTEXT_BYTES: u64 = 640 << 20;

/// Which GPU, which driver, and what of it the guests get.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// The driver's library. `None`: `libcuda.so.1`, as the loader finds it.
    pub libcuda: Option<PathBuf>,
    /// cuBLAS. `None`: `libcublas.so.13`, or `libcublas.so.12`, as the loader finds them.
    pub libcublas: Option<PathBuf>,
    /// The GPU, or part of one. `None`: the first.
    pub uuid: Option<[u8; 16]>,
    /// GPU memory that guests get together, bytes. `None`: all but what contexts take.
    pub memory: Option<u64>,
    /// GPU memory that each context takes for itself, bytes.
    pub context_bytes: u64,
    /// Contexts at a time for which GPU memory is set aside.
    pub contexts: u32,
    /// The device's addresses, which guests are told, and which the executor keeps from other device
    /// processes for as long as it lives.
    pub addresses: Addresses,
    /// Where device memory is mapped, in every session: all of `addresses`, unless the driver is a stand-in
    /// that gives other ones.
    pub range: AddressRange,
    /// Version text of the driver as NVML reports it. `None`: what the kernel module says of itself.
    pub driver_text: Option<String>,
}

impl CudaOptions {
    /// The first GPU of the host's driver, all of its memory beside that of two contexts, device addresses
    /// `addresses`.
    #[must_use]
    pub fn new(addresses: Addresses) -> Self {
        Self {
            libcuda: None,
            libcublas: None,
            uuid: None,
            memory: None,
            context_bytes: CONTEXT_BYTES,
            contexts: 2,
            range: addresses.range(),
            addresses,
            driver_text: None,
        }
    }
}
