//! The private table by which libcudart, libcublas and libnvidia-ml reach libcuda, the only shim
//! that owns the device: `cucuGetExportTable` with [`UUID`], as NVIDIA's own libraries do it with theirs.
//!
//! Everything that the driver API itself offers is called by its name; the table holds the rest.

use core::ffi::{c_int, c_void};
use core::ptr;

use vgpu_wire::Counters;
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::VectorOp;
use vgpu_wire::facts::DeviceFacts;

use crate::CUresult;
use crate::driver::functions::cuGetExportTable;

/// Names the table. Made at random for this project.
pub const UUID: [u8; 16] =
    [0x76, 0x67, 0x70, 0x75, 0x2d, 0x72, 0x75, 0x6e, 0x8f, 0x1c, 0x4e, 0x5b, 0xa2, 0x90, 0x37, 0xd1];

/// Version of the table; all shims of one build have the same.
pub const VERSION: u32 = 4;

/// A device of this guest, as libcuda knows it. Lives as long as the process.
#[derive(Debug)]
#[repr(C)]
pub struct Device {
    /// What the host says of it.
    pub facts: DeviceFacts,
    /// PCI address in the guest: domain, bus, device, function.
    pub pci: [u32; 4],
    /// Subsystem id as NVML reports it: device in the high half, vendor in the low.
    pub subsystem: u32,
    /// Always 0.
    pub reserved: u32,
}

/// The table. Pointers are never null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Table {
    /// `size_of::<Table>()` in the library that made the table.
    pub bytes: usize,
    /// Always [`VERSION`] of the library that made the table.
    pub version: u32,
    /// Always 0.
    pub reserved: u32,
    /// Success; NOT_INITIALIZED in a forked child; DEINITIALIZED after exit handlers ran. Initialises
    /// nothing.
    pub life: unsafe extern "C" fn() -> CUresult,
    /// Initialises as `cuInit(0)`, then stores how many devices the guest has, whatever
    /// CUDA_VISIBLE_DEVICES says, in the order of their addresses.
    pub device_count: unsafe extern "C" fn(*mut c_int) -> CUresult,
    /// Stores the device of that index (not the CUDA ordinal).
    pub device: unsafe extern "C" fn(c_int, *mut *const Device) -> CUresult,
    /// Stores the index of the device that has the CUDA ordinal.
    pub visible: unsafe extern "C" fn(c_int, *mut c_int) -> CUresult,
    /// Stores free and total memory of the device of that index. Needs no context.
    pub memory_info: unsafe extern "C" fn(c_int, *mut u64, *mut u64) -> CUresult,
    /// Sends a matrix product to a stream (`CUstream`, in the current context); `stream` of the
    /// structure is filled in. Captured when the stream captures.
    pub gemm: unsafe extern "C" fn(*mut c_void, *const Gemm) -> CUresult,
    /// The same for a triangular solve.
    pub solve: unsafe extern "C" fn(*mut c_void, *const TriangularSolve) -> CUresult,
    /// The same for a product of cuBLASLt. Not supported where [`Self::abilities`] lacks the bit.
    pub matmul: unsafe extern "C" fn(*mut c_void, *const MatmulLt) -> CUresult,
    /// The same for an operation on vectors. With a place in host memory a sum is stored there, which is
    /// waited for, and the structure's own address of the result is not used; null: the sum is stored in
    /// device memory, and nobody waits.
    pub vector: unsafe extern "C" fn(*mut c_void, *const VectorOp, *mut c_void) -> CUresult,
    /// Stores the [`DeviceFacts::abilities`] of the current context's device.
    pub abilities: unsafe extern "C" fn(*mut u32) -> CUresult,
    /// Stores the process's counters, summed over all devices.
    pub counters: unsafe extern "C" fn(*mut Counters) -> CUresult,
    /// Stores how many messages the host has carried out in the current context's session.
    pub done: unsafe extern "C" fn(*mut u64) -> CUresult,
    /// Makes a round trip to the host of the device of that index, and nothing else.
    pub echo: unsafe extern "C" fn(c_int) -> CUresult,
}

impl Table {
    /// Asks a libcuda for the table. `None`: it is not this project's, or not of this build.
    ///
    /// # Safety
    /// `get` is the `cucuGetExportTable` of a libcuda that stays loaded.
    pub unsafe fn ask(get: cuGetExportTable) -> Option<&'static Self> {
        let mut found: *const c_void = ptr::null();
        // SAFETY: both pointers are to live values of the right type, the function is as the caller says.
        let status = unsafe { get(&raw mut found, &UUID) };
        let table = found.cast::<Self>();
        if status.ok().is_err() || table.is_null() || !table.is_aligned() {
            return None;
        }
        // SAFETY: what answers to the UUID is a table of some version, and all begin with their size.
        let bytes = unsafe { (*table).bytes };
        // SAFETY: as above; the version follows the size.
        let version = unsafe { (*table).version };
        if bytes != size_of::<Self>() || version != VERSION {
            return None;
        }
        // SAFETY: it is a table of this very build, constant, and libcuda stays.
        Some(unsafe { &*table })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::CUuuid;

    unsafe extern "C" fn other(_: *mut *const c_void, _: *const CUuuid) -> CUresult {
        CUresult::INVALID_VALUE
    }

    unsafe extern "C" fn older(found: *mut *const c_void, _: *const CUuuid) -> CUresult {
        static HEAD: [usize; 2] = [16, 0];
        // SAFETY: `Table::ask` hands in a place.
        unsafe { found.write((&raw const HEAD).cast()) };
        CUresult::SUCCESS
    }

    #[test]
    fn takes_only_its_own_table() {
        // SAFETY: both functions do what cucuGetExportTable may do.
        assert!(unsafe { Table::ask(other) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { Table::ask(older) }.is_none());
    }
}
