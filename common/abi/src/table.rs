//! The private table by which libcudart, libcublas and libnvidia-ml use libcuda, the only shim that owns the
//! device: it is returned by `cuGetExportTable` for [`UUID`], as NVIDIA's own libraries do it with theirs.
//!
//! Functions that the driver API offers are called by name; the table holds the others.

use core::ffi::{c_int, c_void};
use core::ptr;

use vgpu_wire::Counters;
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::VectorOp;
use vgpu_wire::facts::DeviceFacts;

use crate::CUresult;
use crate::driver::functions::cuGetExportTable;

/// Identifier of the table, drawn at random for this project.
pub const UUID: [u8; 16] =
    [0x76, 0x67, 0x70, 0x75, 0x2d, 0x72, 0x75, 0x6e, 0x8f, 0x1c, 0x4e, 0x5b, 0xa2, 0x90, 0x37, 0xd1];

/// Version of the table, the same for all shims of one build.
pub const VERSION: u32 = 4;

/// A device of this guest as libcuda found it. It exists as long as the process.
#[derive(Debug)]
#[repr(C)]
pub struct Device {
    /// Facts that the host announces of the device.
    pub facts: DeviceFacts,
    /// PCI address in the guest: domain, bus, device, function.
    pub pci: [u32; 4],
    /// Subsystem id as NVML reports it: device id in the high half, vendor id in the low.
    pub subsystem: u32,
    /// Reserved, always 0.
    pub reserved: u32,
}

/// The private table, an array of pointers that are never null behind a header.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Table {
    /// `size_of::<Table>()` in the library that made the table.
    pub bytes: usize,
    /// [`VERSION`] of the library that made the table.
    pub version: u32,
    /// Reserved, always 0.
    pub reserved: u32,
    /// Returns success; NOT_INITIALIZED in a forked child; DEINITIALIZED after exit handlers ran. Initialises
    /// nothing.
    pub life: unsafe extern "C" fn() -> CUresult,
    /// Initialises as `cuInit(0)` does, then stores the number of devices of the guest, independent of
    /// CUDA_VISIBLE_DEVICES. They are in the order of their PCI addresses.
    pub device_count: unsafe extern "C" fn(*mut c_int) -> CUresult,
    /// Stores the device with this index (not the CUDA ordinal).
    pub device: unsafe extern "C" fn(c_int, *mut *const Device) -> CUresult,
    /// Stores the index of the device with this CUDA ordinal.
    pub visible: unsafe extern "C" fn(c_int, *mut c_int) -> CUresult,
    /// Stores free and total memory in bytes of the device with this index. Needs no context.
    pub memory_info: unsafe extern "C" fn(c_int, *mut u64, *mut u64) -> CUresult,
    /// Sends a matrix product to a stream (a `CUstream` in the current context) and fills in the structure's
    /// `stream`. While the stream is captured, the product becomes a node of the graph.
    pub gemm: unsafe extern "C" fn(*mut c_void, *const Gemm) -> CUresult,
    /// Sends a triangular solve to a stream, as [`Self::gemm`] does.
    pub solve: unsafe extern "C" fn(*mut c_void, *const TriangularSolve) -> CUresult,
    /// Sends a product of cuBLASLt to a stream, as [`Self::gemm`] does. Not supported without `EPILOGUES` in
    /// [`Self::abilities`].
    pub matmul: unsafe extern "C" fn(*mut c_void, *const MatmulLt) -> CUresult,
    /// Sends a vector operation to a stream, as [`Self::gemm`] does. Not supported without `VECTORS` in
    /// [`Self::abilities`]. With an address in host memory, waits for the sum and stores it there, and
    /// ignores the structure's own address of the result; with null, the sum is stored in device memory, and
    /// the call does not wait.
    pub vector: unsafe extern "C" fn(*mut c_void, *const VectorOp, *mut c_void) -> CUresult,
    /// Stores the [`DeviceFacts::abilities`] of the current context's device.
    pub abilities: unsafe extern "C" fn(*mut u32) -> CUresult,
    /// Stores the counters of the process, summed over all devices.
    pub counters: unsafe extern "C" fn(*mut Counters) -> CUresult,
    /// Stores the number of messages that the host has taken in the current context's session
    /// (`RETURN_DONE`).
    pub done: unsafe extern "C" fn(*mut u64) -> CUresult,
    /// Makes a round trip to the host of the device with this index, to measure it.
    pub echo: unsafe extern "C" fn(c_int) -> CUresult,
}

impl Table {
    /// Requests the table from a libcuda. Returns `None` if it is not this project's, or of another build.
    ///
    /// # Safety
    /// `get` is the `cuGetExportTable` of a libcuda that stays loaded.
    pub unsafe fn ask(get: cuGetExportTable) -> Option<&'static Self> {
        let mut found: *const c_void = ptr::null();
        // SAFETY: both pointers are to live values of the right type, the function is as the caller says.
        let status = unsafe { get(&raw mut found, &UUID) };
        let table = found.cast::<Self>();
        if status.ok().is_err() || table.is_null() || !table.is_aligned() {
            return None;
        }
        // SAFETY: what answers to the UUID is a table of some version, and all start with their size.
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
