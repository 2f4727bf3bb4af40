//! Types and codes of the runtime API (`driver_types.h`) of both CUDA majors.
//!
//! A type that differs between the majors says which one it belongs to. Handles are those of the driver API:
//! a `cudaStream_t` is a `CUstream`, and so on.

use core::ffi::{c_int, c_uint};

mod error;
mod handles;
mod structures;

pub use error::CudaError;
pub use handles::{Event, Function, Graph, GraphExec, GraphNode, Kernel, Library, Stream};
pub use structures::{
    Dim3, Extent, FuncAttributes, KernelNodeParams, LaunchConfig, Memcpy3DParms, Memcpy3DPeerParms,
    MemsetParams, PitchedPtr, PointerAttributes12, PointerAttributes13, Position,
};

/// `cudaMemcpyKind`: copies from host memory to host memory.
pub const MEMCPY_HOST_TO_HOST: c_uint = 0;
/// `cudaMemcpyKind`: copies from host memory to the device.
pub const MEMCPY_HOST_TO_DEVICE: c_uint = 1;
/// `cudaMemcpyKind`: copies from the device to host memory.
pub const MEMCPY_DEVICE_TO_HOST: c_uint = 2;
/// `cudaMemcpyKind`: copies from device memory to device memory.
pub const MEMCPY_DEVICE_TO_DEVICE: c_uint = 3;
/// `cudaMemcpyKind`: the addresses determine the direction.
pub const MEMCPY_DEFAULT: c_uint = 4;

/// `cudaMemoryType`: memory that CUDA does not know.
pub const MEMORY_UNREGISTERED: c_uint = 0;
/// `cudaMemoryType`: pinned or registered host memory.
pub const MEMORY_HOST: c_uint = 1;
/// `cudaMemoryType`: device memory.
pub const MEMORY_DEVICE: c_uint = 2;
/// `cudaMemoryType`: managed memory.
pub const MEMORY_MANAGED: c_uint = 3;

/// `cudaInvalidDeviceId`: the number that names no device.
pub const INVALID_DEVICE_ID: c_int = -2;

/// `cudaDeviceMapHost`, a flag that `cudaGetDeviceFlags` always stores.
pub const DEVICE_MAP_HOST: c_uint = 8;
/// `cudaDeviceMask`, all flags that `cudaSetDeviceFlags` accepts: the scheduling flags, MapHost,
/// LmemResizeToMax and SyncMemops.
pub const DEVICE_FLAGS: c_uint = 0x9f;
